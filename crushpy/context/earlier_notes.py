"""Notes of earlier summaries that a new summary leaves out: found by code, carried beside it for a while."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from crushpy.core.messages import EarlierNote
from crushpy.util.lazy_pattern import lazy_pattern

MAX_AGE = 3
"""Generations after which a note that no summary repeats is dropped."""
_BULLET = lazy_pattern(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?=\S)")
_HEADING = lazy_pattern(r"^\s*#{1,6}\s")
_MARK = lazy_pattern(r"(?<![\w./:@~-])[\w./:@~-]*[\w/]")
_WORD = lazy_pattern(r"\w{4,}")
MIN_SHARED_WORDS = 0.6
"""Share of a note's words that must occur for the text to repeat it."""


def bullets(notes: str) -> list[str]:
    """The points of a summary: its bullets with their continuation lines, otherwise its lines."""
    found: list[list[str]] = []
    for line in notes.splitlines():
        if not line.strip() or _HEADING.match(line):
            found.append([])
        elif _BULLET.match(line):
            found.append([_BULLET.sub("", line).strip()])
        elif found and found[-1]:
            found[-1].append(line.strip())
        else:
            found.append([line.strip()])
    return [" ".join(lines) for lines in found if lines]


@lru_cache(maxsize=4)  # many notes are searched for in the same long text
def marks(text: str) -> set[str]:
    """The paths, numbers and identifiers of a text: what has to be exact."""
    return {word.strip(".:-").casefold() for word in _MARK.findall(text) if _is_mark(word.strip(".:-"))}


def _is_mark(word: str) -> bool:
    if any(char.isdigit() for char in word) or "_" in word or "/" in word.lstrip("/"):
        return True
    inner = word[1:]
    return (
        "." in inner or (inner != inner.lower() and not word.isupper()) or (word.isupper() and len(word) > 3)
    )


def contains_note(note: str, text: str) -> bool:
    """Whether `text` contains the note: all of its marks, or most of its words if it has no marks."""
    own = marks(note)
    return own <= marks(text) if own else _repeats(note, text)


@lru_cache(maxsize=4)
def _words(text: str) -> set[str]:
    return {word.casefold() for word in set(_WORD.findall(text))}


def _repeats(note: str, text: str) -> bool:
    words = _words(note)
    if not words:
        return note.casefold() in text.casefold()
    return len(words & _words(text)) >= MIN_SHARED_WORDS * len(words)


def unmentioned_notes(
    previous: str, earlier: Sequence[EarlierNote], summary: str, *, limit: int, count: Callable[[str], int]
) -> tuple[EarlierNote, ...]:
    """The notes that `summary` does not take up, the newest first, as many as `limit` tokens hold."""
    notes = [EarlierNote(text, 1) for text in bullets(previous)]
    notes += [EarlierNote(note.text, note.age + 1) for note in earlier]
    found: list[EarlierNote] = []
    said: set[str] = set()
    room = limit
    for note in notes:
        cost, own = count(note.text) + 2, marks(note.text)
        # The summary mentions it if one of its marks occurs, or most of its words do.
        mentioned = bool(own & marks(summary)) if own else _repeats(note.text, summary)
        if note.age > MAX_AGE or note.text in said or cost > room or mentioned:
            continue
        said.add(note.text)
        room -= cost
        found.append(note)
    return tuple(found)
