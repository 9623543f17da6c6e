"""Tells a model what stands in a file nearest to lines it looked for and did not find. Pure."""

import re
from collections.abc import Sequence

from crushpy.security.sanitize import encodable
from crushpy.tools.truncate import cut_line

_SHOWN_LINES = 8
_LINE_CHARS = 200
_COMPARED_LINES = 20_000
_CLOSE = 0.6
_NUMBERED = re.compile(r"\s*\d+\t")


def nearest_passage(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """A hint for `wanted`, which is not in `lines`."""
    written = [line for line in wanted if line.strip()]
    if written and all(_NUMBERED.match(line) for line in written):
        return "It holds the line numbers that view puts before each line: leave them out."
    at = _best_start(lines, wanted)
    if at is None:
        return "No line of the file is near it: view the file again and copy the passage exactly."
    end = min(at + max(len(wanted), 1), at + _SHOWN_LINES, len(lines))
    shown = "\n".join(f"{n + 1}\t{cut_line(encodable(lines[n]), _LINE_CHARS)}" for n in range(at, end))
    return f"Nearest in the file:\n{shown}\nCopy the passage exactly as it is there."


def _best_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where the run begins that has the most lines in common with `wanted`."""
    stripped = [line.strip() for line in wanted]
    places: dict[str, list[int]] = {text: [] for text in stripped if text}
    for number, line in enumerate(lines):
        if (known := places.get(line.strip())) is not None:
            known.append(number)
    votes: dict[int, int] = {}
    for index, text in enumerate(stripped):
        for number in places.get(text, ()):
            at = max(number - index, 0)
            # A long line says more about where we are than a lone bracket.
            votes[at] = votes.get(at, 0) + len(text)
    if votes:
        return max(votes, key=lambda at: (votes[at], -at))
    return _fuzzy_start(lines, stripped)


def _fuzzy_start(lines: Sequence[str], stripped: Sequence[str]) -> int | None:
    """The same by the line that looks most like the longest of `wanted`."""
    from difflib import SequenceMatcher

    index = max(range(len(stripped)), key=lambda index: len(stripped[index]))
    target = stripped[index][:_LINE_CHARS]
    if not target:
        return None
    matcher = SequenceMatcher(None, "", target, autojunk=False)
    best, best_ratio = None, _CLOSE
    for number, line in enumerate(lines[:_COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:_LINE_CHARS])
        if matcher.real_quick_ratio() <= best_ratio or matcher.quick_ratio() <= best_ratio:
            continue
        if (ratio := matcher.ratio()) > best_ratio:
            best, best_ratio = number, ratio
    return None if best is None else max(best - index, 0)
