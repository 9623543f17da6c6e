"""Plans what a boundary carries, before anything is summarised or stored. Pure."""

from collections.abc import Callable, Sequence

import msgspec

from crushpy.context.overrides import apply_overrides, by_message, shorten_largest
from crushpy.context.partition import Parts, Size, partition, tail_budget
from crushpy.context.tags import element, quoted
from crushpy.core.messages import Data, Message, MessageOverride

FIRST_REQUEST_SHARE = 0.5
"""The child's first request may be this share of the threshold, beside the fixed part."""
MAX_QUOTED_PROMPT_TOKENS = 2_000
FRAME_TOKENS = 120
"""Tokens around summary, evidence and quotes: the opening, tags and truncation marks."""


class TokenBudget(Data, frozen=True):
    """How much of each kind a child may start with, according to the settings and its window.

    `keep_recent_tokens`, `summary_tokens` and `evidence_tokens` are the settings of these names.
    """

    window: int
    threshold: float
    keep_recent_tokens: int
    summary_tokens: int
    evidence_tokens: int
    fixed_tokens: int = 0
    """The fixed part: system prompt and tools, which every request contains."""
    pinned: int = 0
    """Tokens of the user's pins and standing rules, which every child starts with."""

    @property
    def summary_target(self) -> int:
        """The size that the summariser is asked for; the summary is truncated at twice that."""
        return max(1, min(self.summary_tokens, self.window // 20))

    @property
    def evidence(self) -> int:
        return min(self.evidence_tokens, self.window // 10)

    @property
    def longest_quote(self) -> int:
        """A longer prompt of the user is quoted by its beginning and end."""
        return max(20, min(MAX_QUOTED_PROMPT_TOKENS, self.window // 20))

    @property
    def longest_summary(self) -> int:
        """A longer summary is truncated, or refused if the agent wrote it."""
        return 2 * self.summary_target

    @property
    def carried(self) -> int:
        """Everything a child may start with beside the fixed part, so that it starts below its threshold."""
        threshold = int(self.threshold * self.window)
        room_to_work = self.window // 50
        half = int(threshold * FIRST_REQUEST_SHARE)
        return max(0, min(half, threshold - self.fixed_tokens - room_to_work))


class Plan(Data, frozen=True):
    """The parts of the history, and how large each carried text may be. The tail is shortened last, by
    `overrides_to_fit`, once the real sizes of the texts are known."""

    parts: Parts
    keep: int
    """The tail's budget."""
    minimal_tail: bool
    summary_tokens: int
    evidence_tokens: int
    quotes: str


def make_plan(
    history: Sequence[Message],
    limits: TokenBudget,
    *,
    has_seed: bool,
    size: Size,
    count: Callable[[str], int],
    minimal_tail: bool = False,
) -> Plan:
    """Fits the child's first request under its limit: shrinks the tail, the evidence, then the quotes."""
    own = sum(size(message) for message in history[1 if has_seed else 0 :])
    texts = FRAME_TOKENS + limits.pinned + limits.longest_summary + limits.evidence + 2 * limits.longest_quote
    keep = tail_budget(limits.keep_recent_tokens, limits.window, own)
    keep = 0 if minimal_tail else max(0, min(keep, limits.carried - texts))
    parts = partition(history, has_seed=has_seed, keep=keep, size=size)
    least = apply_overrides(parts.tail, by_message(shorten_largest(parts.tail, goal=0, size=size)))
    room = limits.carried - sum(map(size, least)) - FRAME_TOKENS - limits.pinned - limits.longest_summary
    quote_room = max(0, min(limits.longest_quote, room // 4))
    evidence = max(0, min(limits.evidence, room - 2 * quote_room))
    quotes = last_words(parts, limit=quote_room, count=count)
    return Plan(parts, keep, minimal_tail, limits.summary_target, evidence, quotes)


def without_tail(plan: Plan, limits: TokenBudget, *, summary_size: int) -> Plan:
    """The plan if the agent or the user wrote what to carry: no tail beside it."""
    room = limits.carried - FRAME_TOKENS - limits.pinned - summary_size
    parts = Parts(plan.parts.head, (*plan.parts.middle, *plan.parts.tail), ())
    evidence = max(0, min(limits.evidence, room))
    return msgspec.structs.replace(plan, parts=parts, quotes="", evidence_tokens=evidence)


def plan_after(
    history: Sequence[Message],
    limits: TokenBudget,
    *,
    summarised_until: int,
    has_seed: bool,
    summary_size: int,
    size: Size,
    count: Callable[[str], int],
) -> Plan | None:
    """The plan of a boundary whose messages up to `summarised_until` are summarised already: the others are
    its tail.

    None if that leaves no space for the evidence in the child's first request.
    """
    head = tuple(history[:1]) if has_seed else ()
    parts = Parts(head, tuple(history[len(head) : summarised_until]), tuple(history[summarised_until:]))
    tail = sum(map(size, parts.tail))
    room = limits.carried - FRAME_TOKENS - limits.pinned - summary_size - tail
    quotes = last_words(parts, limit=max(0, min(limits.longest_quote, room // 4)), count=count)
    evidence = min(limits.evidence, room - count(quotes))
    if not parts.middle or not parts.tail or evidence < limits.evidence // 2:
        return None
    return Plan(parts, tail, False, limits.summary_target, max(0, evidence), quotes)


def overrides_to_fit(
    plan: Plan, limits: TokenBudget, *, text_tokens: int, size: Size
) -> tuple[MessageOverride, ...]:
    """Which results of the tail are shortened, beside carried texts of `text_tokens`.

    The tail gets the space that the texts do not need. Results that the model has not seen yet are shortened
    last, and only if they do not fit.
    """
    tail = plan.parts.tail
    if plan.minimal_tail:
        return tuple(shorten_largest(tail, goal=0, size=size))
    room = max(0, limits.carried - text_tokens)
    seen = len(tail)
    while seen and tail[seen - 1].role == "tool":
        seen -= 1
    unseen = tail[seen:]
    goal = min(room, plan.keep) if plan.parts.tail_too_large else room
    overrides = shorten_largest(tail[:seen], goal=max(0, goal - sum(map(size, unseen))), size=size)
    shown = apply_overrides(tail[:seen], by_message(overrides))
    return (*overrides, *shorten_largest(unseen, goal=max(0, room - sum(map(size, shown))), size=size))


def least_tail(plan: Plan, limits: TokenBudget, *, size: Size, count: Callable[[str], int]) -> list[Message]:
    """What the child shows of the tail in any case: beside texts as large as they may be."""
    texts = FRAME_TOKENS + limits.pinned + limits.longest_summary + plan.evidence_tokens + count(plan.quotes)
    overrides = overrides_to_fit(plan, limits, text_tokens=texts, size=size)
    return apply_overrides(plan.parts.tail, by_message(overrides))


def last_words(parts: Parts, *, limit: int, count: Callable[[str], int]) -> str:
    """The last request and the last answer, quoted if the tail does not contain them."""
    blocks: list[str] = []
    for role, title in (("user", "last request"), ("assistant", "last answer")):
        in_tail = any(message.role == role and message.says_something for message in parts.tail)
        last = next((m for m in reversed(parts.middle) if m.role == role and m.says_something), None)
        if in_tail or last is None or limit <= 0:
            continue
        text = quoted(last.text.strip(), limit, count, f"recall {last.id}")
        blocks.append(element("request" if role == "user" else "note", text, id=last.id, what=title))
    return "\n".join(blocks)
