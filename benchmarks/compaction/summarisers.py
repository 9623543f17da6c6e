"""Stand-ins for the model that writes summaries: a perfect one, a lossy one, a useless one, a failing one."""

import hashlib
from collections.abc import Callable, Iterable

from scripted_llm.replies import Answer, Overflow, Reply

from benchmarks.compaction.scenario import Fact
from crushpy.core.messages import Usage

Summarizer = Callable[[str, Iterable[Fact]], Answer]
"""Given all that a summariser is sent, and the facts there are, what it answers."""
ROOM = 12_000
"""Characters of a summary: about what it may be at most."""
EVIDENCE = ("path", "command", "todo", "request")


def perfect(sent: str, facts: Iterable[Fact]) -> Answer:
    """Every fact it was sent, as far as there is room; first those that no evidence keeps."""
    return _notes(fact for fact in facts if fact.text in sent)


def lossy(sent: str, facts: Iterable[Fact]) -> Answer:
    """Forgets a third of what it was sent, each time another third."""
    return _notes(fact for fact in facts if fact.text in sent and _luck(fact.text, sent) > 1 / 3)


def useless(sent: str, facts: Iterable[Fact]) -> Answer:
    return Reply("The work went on as planned.", usage=Usage(len(sent) // 4, 7))


def failing(sent: str, facts: Iterable[Fact]) -> Answer:
    return Reply("", finish="content_filter")


def overflowing(sent: str, facts: Iterable[Fact]) -> Answer:
    return Overflow(limit=100_000, used=150_000)


ALL: dict[str, Summarizer] = {"perfect": perfect, "lossy": lossy, "useless": useless, "failing": failing}


def _notes(facts: Iterable[Fact]) -> Answer:
    found = sorted(facts, key=lambda fact: fact.kind in EVIDENCE)
    lines = ["## Notes"]
    room = ROOM
    for fact in found:
        room -= len(fact.text) + 3
        if room < 0:
            break
        lines.append(f"- {fact.text}")
    return Reply("\n".join(lines), usage=Usage(1_000, 500))


def _luck(text: str, sent: str) -> float:
    """A number between 0 and 1 that only depends on a fact and on how much was sent."""
    return int(hashlib.sha1(f"{text} {len(sent)}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
