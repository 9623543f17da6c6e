"""Ledgers made of messages, without a store."""

from collections.abc import Sequence

from crushpy.context.facts import FactReader
from crushpy.context.ledger import Ledger
from crushpy.core.messages import Message
from crushpy.security.redact import redact


def extend_ledger(ledger: Ledger, messages: Sequence[Message], *, cwd: str) -> Ledger:
    """The ledger with the facts of the messages that follow."""
    found = FactReader(cwd, redact=redact).extract_all(messages)
    return ledger.merged(found)
