"""What fills the window, part by part: the data behind the inspector."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from crushpy.context.budget import Budget
from crushpy.context.edits import OUTDATED, OldViews, old_views
from crushpy.context.facts import Quote
from crushpy.context.forecast import Forecast
from crushpy.context.overrides import SentState, apply_overrides, has_outdated_summary, sent_states
from crushpy.context.partition import Size
from crushpy.context.tags import safe
from crushpy.core.messages import ATTACHED, Data, Message, Note, Overrides, Usage, shortened
from crushpy.core.own_tags import DIAGNOSTICS
from crushpy.core.pastes import fold_pastes
from crushpy.util.lazy_pattern import lazy_pattern

_INSTRUCTIONS = lazy_pattern(
    r'(?<!\n)\n*<instructions path="(?P<path>[^"]*)">\n.*?\n</instructions>', re.DOTALL
)
_REQUEST = lazy_pattern(r"<request>\n(.*?)\n</request>\n?", re.DOTALL)
NAME_LENGTH = 80
QUOTED_CHARS = 24
"""Of a prompt: a quote has at least its first words."""
WINDOW_PARTS: dict[str, tuple[str, ...]] = {
    "system": ("system",),
    "tools": ("tool", "skill"),
    "rules": ("context file", "rules", "pins"),
    "summary": ("summary", "earlier", "evidence", "hook"),
    "conversation": ("user", "assistant", "file", "note"),
    "tool output": ("tool output",),
}
"""The parts of the window in the order in which they are drawn, each with the kinds of rows in it."""
FREE = "free"


class Row(Data, frozen=True, omit_defaults=False):
    """One part of the next request."""

    kind: str
    """system, context file, tool, summary, rules, pins, earlier (a message of an earlier session), evidence,
    user, assistant, tool output, diagnostics, file, note."""
    name: str
    tokens: int
    cached: bool
    """Probably read from the provider's cache: it lies within what the last report called cached."""
    message_id: str = ""
    state: SentState = ""
    """How the user or an overflow changed it: sent shortened, or not at all."""
    whole_tokens: int = 0
    """Its size without the override."""
    cache_lost: int = 0
    """Tokens behind it: they are sent again once it is edited, because a provider's cache ends there."""
    thoughts_lost: int = 0
    """Replies from it on whose thinking is lost once it is edited, if their model binds its thinking."""


class Inspection(Data, frozen=True, omit_defaults=False):
    budget: Budget
    rows: tuple[Row, ...]
    """In the order in which they are sent. Dropped messages keep their place, with 0 tokens."""
    forecast: Forecast | None = None
    old_views: OldViews = OldViews()
    """What to shorten first."""
    dropped_thoughts: int = 0
    """Replies whose thinking was left out of the last request, because what precedes it has changed."""

    def by_kind(self) -> dict[str, int]:
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
    overrides: Overrides | None = None,
    cwd: str = "",
    cached: int = 0,
    requests: Sequence[Quote] = (),
) -> Inspection:
    """`tools` are names and schemas as sent; `history` is as stored, and `overrides` say how it is sent;
    `cached` is what the provider last read from its cache. `requests`: the prompts that the evidence may
    quote."""
    overrides = overrides or {}
    states = sent_states(overrides.values())
    rows: list[Row] = []
    outdated = has_outdated_summary(history, overrides)
    sent = 0

    def add(
        kind: str, name: str, tokens: int, message_id: str = "", state: SentState = "", whole: int = 0
    ) -> None:
        nonlocal sent
        sent += tokens
        seen = sent <= cached and state != "dropped"
        rows.append(Row(kind, name, tokens, seen, message_id, state, whole or tokens))

    for kind, name, text in fixed_texts(system, tools):
        add(kind, name, count(text))
    here = {message.id for message in history}
    for name in (name for name, state in states.items() if state == "dropped" and name not in here):
        if overrides[name].kind != "withdraw":
            add("earlier", "a message of an earlier session", 0, name, "dropped")
    quotes = [request for request in requests if states.get(request.id) != "dropped"]  # those have a row
    for message in history:
        texts = [text for shown in apply_overrides((message,), overrides) for text in seed_texts(shown)]
        for kind, name, text in texts:
            told = f"{name}  ({OUTDATED.lower()})" if kind == "summary" and outdated else name
            left = count(text)
            for request, block in _quoted_in(text, quotes) if kind == "evidence" else ():
                add("earlier", _short_line(request.text), count(block), request.id)
                left -= count(block)
            add(kind, told, left, message.id)
        if not texts:
            state = states.get(message.id, "")
            shown = sum(size(override) for override in apply_overrides((message,), overrides))
            said = message.result.text.rpartition(DIAGNOSTICS)[1:] if message.result and not state else ()
            diagnosed = min(count("".join(said)), shown) if any(said[:1]) else 0
            add(kind_of(message), _name(message), shown - diagnosed, message.id, state, size(message))
            if diagnosed:
                add("diagnostics", "after edits", diagnosed)
    offered = old_views(history, overrides, cwd=cwd, size=size)
    thoughtful = {message.id for message in history if message.has_bound_thinking}
    return Inspection(budget, tuple(_with_costs(rows, thoughtful)), old_views=offered)


def fixed_texts(system: str, tools: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """What precedes the messages: kind, name and text of each row."""
    for name, schema in tools:
        yield "tool", name, schema
    yield "system", "system prompt", _INSTRUCTIONS.sub("", system)
    for block in _INSTRUCTIONS.finditer(system):
        yield "context file", block["path"], block[0]


def seed_texts(message: Message) -> list[tuple[str, str, str]]:
    """Kind, name and text of each row of a seed; none for other messages."""
    seed = message.seed
    if seed is None:
        return []
    return [
        ("summary", "summary", seed.notes + seed.quotes),
        *((kind, kind, text) for kind, text in (("rules", seed.rules), ("pins", seed.pins)) if text),
        *((item.kind, item.name, item.text) for item in seed.loaded),
        ("evidence", "evidence", seed.evidence),
    ]


def window_parts(by_kind: Mapping[str, int], budget: Budget) -> dict[str, int]:
    """Tokens of each part of the window, and what is free: together the window. Counts are scaled to what is
    used, which the provider may have reported."""
    counts = dict.fromkeys(WINDOW_PARTS, 0)
    for kind, tokens in by_kind.items():
        counts[part_of(kind)] += tokens
    counted, so_far, placed = sum(counts.values()) or 1, 0, 0
    found: dict[str, int] = {}
    for part, tokens in counts.items():
        so_far += tokens
        found[part] = budget.used * so_far // counted - placed
        placed += found[part]
    return found | {FREE: budget.window - placed}


def part_of(kind: str) -> str:
    return next((part for part, kinds in WINDOW_PARTS.items() if kind in kinds), "conversation")


def _with_costs(rows: Sequence[Row], thoughtful: set[str]) -> list[Row]:
    """Adds the tokens that follow each message, and the thoughts that depend on it."""
    found: list[Row] = []
    behind = thoughts = 0
    for row in reversed(rows):
        thoughts += row.message_id in thoughtful
        costs = {"cache_lost": behind, "thoughts_lost": thoughts}
        found.append(msgspec.structs.replace(row, **costs) if row.message_id else row)
        behind += row.tokens
    return found[::-1]


def kind_of(message: Message) -> str:
    if message.role == "tool":
        return "tool output"
    notes = [part for part in message.parts if isinstance(part, Note)]
    if len(notes) < len(message.parts) or not notes:
        return message.role
    return "file" if notes[0].origin == "file" else "note"


def _name(message: Message) -> str:
    if message.result is not None:
        text = f"{message.result.name}: {message.result.text}"
    else:
        notes = [part.text.removeprefix(ATTACHED) for part in message.parts if isinstance(part, Note)]
        text = (
            fold_pastes(message.text, message.pasted)
            or ", ".join(call.name for call in message.calls)
            or " ".join(notes)
        )
    return _short_line(text)


def _short_line(text: str) -> str:
    return shortened(" ".join(text[: NAME_LENGTH * 4].split()), NAME_LENGTH)


def _quoted_in(evidence: str, requests: Sequence[Quote]) -> Iterator[tuple[Quote, str]]:
    """The prompts that the evidence quotes, each with its block; recognised by their first words."""
    waiting = list(requests)
    for block in _REQUEST.finditer(evidence):
        first = block[1][:QUOTED_CHARS]
        found = next((request for request in waiting if safe(request.text)[:QUOTED_CHARS] == first), None)
        if found is not None:
            waiting.remove(found)
            yield found, block[0]


def dropped_words(inspection: Inspection) -> list[str]:
    """A line about thinking that no longer reaches the model; none if all of it does."""
    count = inspection.dropped_thoughts
    what = "One earlier thought was" if count == 1 else f"{count} earlier thoughts were"
    return [f"{what} left out of the last request: what precedes them has changed"] if count else []


class RequestMade(Data, frozen=True):
    tokens: int
    cached: int = 0
    opens: bool = False
    """It is the first one after a compaction."""


def requests_made(reported: Sequence[tuple[str, Usage]]) -> list[RequestMade]:
    """The requests in order. `reported` has the session and the usage of each."""
    before = ["", *(session for session, _ in reported)]
    return [
        RequestMade(usage.total - usage.output_tokens, usage.cache_read_tokens, last not in ("", session))
        for (last, session), (_, usage) in zip(pairwise(before), reported, strict=True)
        if usage.total
    ]
