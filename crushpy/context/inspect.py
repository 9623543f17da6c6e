"""What fills the window, part by part: the data behind the inspector."""

import re
from collections.abc import Callable, Sequence

from crushpy.context.budget import Budget
from crushpy.context.forecast import Forecast
from crushpy.context.partition import Size
from crushpy.messages import Data, Message, Note, Seed

_INSTRUCTIONS = re.compile(
    r'(?<!\n)\n*<instructions path="(?P<path>[^"]*)">\n.*?\n</instructions>', re.DOTALL
)
NAME_LENGTH = 80


class Row(Data, frozen=True, omit_defaults=False):
    """One part of the next request."""

    kind: str
    """system, context file, tool, summary, pins, evidence, user, assistant, tool output or note."""
    name: str
    tokens: int
    cached: bool
    """Most likely read from the provider's cache: it lies within what the last report called cached."""
    message_id: str = ""


class Inspection(Data, frozen=True, omit_defaults=False):
    budget: Budget
    rows: tuple[Row, ...]
    """In the order in which they are sent."""
    forecast: Forecast | None = None

    def by_kind(self) -> dict[str, int]:
        """Tokens of each kind of part."""
        totals: dict[str, int] = {}
        for row in self.rows:
            totals[row.kind] = totals.get(row.kind, 0) + row.tokens
        return totals


def inspect(
    system: str,
    tools: Sequence[tuple[str, str]],
    history: Sequence[Message],
    budget: Budget,
    *,
    count: Callable[[str], int],
    size: Size,
    cached: int = 0,
) -> Inspection:
    """`tools` are names and schemas as sent; `cached` is what the provider last read from its cache."""
    rows: list[Row] = []
    sent = 0

    def add(kind: str, name: str, tokens: int, message_id: str = "") -> None:
        nonlocal sent
        sent += tokens
        rows.append(Row(kind, name, tokens, sent <= cached, message_id))

    for name, schema in tools:
        add("tool", name, count(schema))
    add("system", "system prompt", count(_INSTRUCTIONS.sub("", system)))
    for block in _INSTRUCTIONS.finditer(system):
        add("context file", block["path"], count(block[0]))
    for message in history:
        seed = next((part for part in message.parts if isinstance(part, Seed)), None)
        if seed is not None:
            add("summary", "summary", count(seed.notes + seed.quotes), message.id)
            if seed.pins:
                add("pins", "pins", count(seed.pins), message.id)
            add("evidence", "evidence", count(seed.evidence), message.id)
        else:
            add(_kind(message), _name(message), size(message), message.id)
    return Inspection(budget, tuple(rows))


def _kind(message: Message) -> str:
    if message.role == "tool":
        return "tool output"
    return "note" if any(isinstance(part, Note) for part in message.parts) else message.role


def _name(message: Message) -> str:
    if message.result is not None:
        text = f"{message.result.name}: {message.result.text}"
    else:
        text = message.text or ", ".join(call.name for call in message.calls)
    line = " ".join(text[: NAME_LENGTH * 4].split())
    return line if len(line) <= NAME_LENGTH else line[: NAME_LENGTH - 1] + "…"
