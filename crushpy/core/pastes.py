"""Large pastes in a prompt: shown as a mark in their place."""

from collections.abc import Iterable

MAX_PASTE_LINES, MAX_PASTE_CHARS = 10, 1_000
"""A paste larger than either is folded to a mark."""


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def too_large(text: str) -> bool:
    return len(text) > MAX_PASTE_CHARS or line_count(text) > MAX_PASTE_LINES


def paste_label(text: str) -> str:
    size = line_count(text)
    return f"pasted {size:,} lines" if size > 1 else f"pasted {len(text):,} characters"


def find_pastes(text: str, pastes: Iterable[str]) -> list[tuple[int, int]]:
    """Start and end of each paste in `text`, which has them in this order; without the blanks around them."""
    spans: list[tuple[int, int]] = []
    for paste in map(str.strip, pastes):
        start = text.find(paste, spans[-1][1] if spans else 0)
        spans += [(start, start + len(paste))] if paste and start >= 0 else []
    return spans


def fold_pastes(text: str, pasted: Iterable[tuple[int, int]]) -> str:
    """The text with a mark for each large paste; unchanged if it consists of pastes only."""
    parts: list[str] = []
    typed, end = "", 0
    for start, stop in pasted:
        if too_large(text[start:stop]):
            parts += [text[end:start].strip(), f"[{paste_label(text[start:stop])}]"]
            typed, end = typed + parts[-2], stop
    rest = text[end:].strip()
    return " ".join(filter(None, (*parts, rest))) if parts and (typed or rest) else text
