"""Readers for the sessions of other coding agents, one module per format. They never write to what they read.

A new format is a module in this package and one entry in `importers.sources()`.
"""

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from crushpy.importers.foreign import Source


_LOOKED_AT_SESSIONS = 5
_LOOKED_AT_ITEMS = 100


def sources() -> "tuple[Source, ...]":
    from crushpy.importers.claude import CLAUDE_CODE
    from crushpy.importers.codex import CODEX
    from crushpy.importers.crush import CRUSH
    from crushpy.importers.opencode import OPENCODE
    from crushpy.importers.pi import PI

    return CLAUDE_CODE, CODEX, OPENCODE, PI, CRUSH


def find_source(path: "Path") -> "Source | None":
    """The agent that wrote a file or the first files of a folder: whose reader finds the most in them."""
    from crushpy.importers import foreign

    def count_found(source: "Source") -> int:
        found = 0
        for session in islice(source.sessions(path), _LOOKED_AT_SESSIONS):
            if isinstance(session, foreign.SkippedSession):
                found += session.reason == foreign.SUB_AGENT
                continue
            with suppress(foreign.UnreadableSource):
                items = islice(session.read(foreign.Unmapped()), _LOOKED_AT_ITEMS)
                found += sum(isinstance(item, foreign.Piece) and bool(item.parts) for item in items)
        return found

    counts = [(count_found(source), source) for source in sources()]
    most, source = max(counts, key=lambda count: count[0])
    return source if most else None
