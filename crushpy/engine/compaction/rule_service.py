"""The standing rules of one conversation: listed, added and withdrawn by the user."""

import asyncio
from collections.abc import Callable
from functools import lru_cache

from crushpy.context.ledger import Ledger
from crushpy.context.pins import pin_limit
from crushpy.context.standing_rules import ADDED, WITHDRAWN, CarriedRules, RuleFact, RulePhrases, carry_rules
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Note
from crushpy.core.templates import PHRASES, Templates, read_phrases, read_template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.evidence_sources import load_ledger
from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable


class RuleList(Data, frozen=True, omit_defaults=False):
    rules: tuple[RuleFact, ...]
    """Those that ended included."""
    tokens: int
    """Of all that apply, as far as they fit."""
    limit: int
    left_out: int
    """How many would be left out at a boundary now."""

    @property
    def valid(self) -> list[RuleFact]:
        """Those that apply."""
        return [rule for rule in self.rules if not rule.ended]


def rule_phrases(templates: Templates) -> Callable[[], RulePhrases]:
    """Reads the phrases in force at each call; an edit of the template applies to the next prompt."""
    return lambda: templates.first_usable(PHRASES, lambda _, path: _compiled(read_template(path), str(path)))


@lru_cache(maxsize=2)
def _compiled(source: str, origin: str) -> RulePhrases:
    return RulePhrases(read_phrases(source, origin))


def rule_limit(scope: AgentScope) -> int:
    """Tokens that all rules together may take."""
    window = scope.gauge.window(scope.session.info.model)
    return pin_limit(scope.settings.compaction.rule_tokens, window)


async def carried_rules(scope: AgentScope, ledger: Ledger) -> CarriedRules:
    """The rules of `ledger` as a child would receive them."""
    rules, dropped = ledger.rules or (), ledger.dropped.get("rules", 0)
    count = scope.gauge.count
    return await asyncio.to_thread(
        carry_rules, rules, rule_limit(scope), count, dropped=dropped, redact=redact
    )


class RuleService:
    """A change is a note in the session: the model sees it with the next request, and branches inherit it."""

    def __init__(self, scope: AgentScope, is_busy: Callable[[], bool]) -> None:
        self._scope, self._session, self._is_busy = scope, scope.session, is_busy

    async def listed(self) -> RuleList:
        await asyncio.to_thread(self._scope.gauge.load)
        ledger = await load_ledger(self._session, self._scope.services.store, store_missing=False)
        carried = await carried_rules(self._scope, ledger)
        return RuleList(ledger.rules or (), carried.tokens, rule_limit(self._scope), carried.left_out)

    async def add(self, text: str) -> RuleFact:
        """Adds a rule. `UsageError` if it is empty, known or too long."""
        text = encodable(text.strip())
        if not text:
            raise UsageError("the rule is empty", "Give its text.")
        listed = await self.listed()
        same = next((rule for rule in listed.valid if rule.text == text), None)
        if same is not None:
            raise UsageError(f"this is a standing rule already, number {same.number}")
        size = self._scope.gauge.count(text)
        if listed.tokens + size > listed.limit:
            raise UsageError(
                f"this does not fit: it takes {size:,} tokens, and the rules take {listed.tokens:,} of "
                f"{listed.limit:,}",
                "Drop another rule, or raise compaction.rule_tokens (at most 5% of the window).",
            )
        await self._note(Note(f"{ADDED}\n{text}", about="rule"))
        return (await self.listed()).valid[-1]

    async def drop(self, number: int) -> RuleFact:
        """Withdraws a rule. `UsageError` if none of that number applies."""
        valid = {rule.number: rule for rule in (await self.listed()).valid}
        rule = valid.get(number)
        if rule is None:
            numbers = ", ".join(map(str, valid)) or "none"
            raise UsageError(
                f"there is no standing rule {number}; there are: {numbers}", "Choose one of these."
            )
        await self._note(Note(f"{WITHDRAWN}\n{rule.text}", about="rule_withdrawn"))
        return rule

    async def _note(self, note: Note) -> None:
        if not self._session.stored:
            raise UsageError("there is no conversation to set rules for yet", "Send a prompt first.")
        if self._is_busy():
            raise UsageError("Not while the agent is working.", "Interrupt it first.")
        await self._session.add_note(note)
