"""Readers for the sessions of other coding agents, one module per format. They never write to what they read.

A new format is a module in this package and one entry in `importers.sources()`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crushpy.importers.foreign import Source


def sources() -> "tuple[Source, ...]":
    from crushpy.importers.claude import ClaudeCode
    from crushpy.importers.codex import Codex
    from crushpy.importers.crush import Crush
    from crushpy.importers.opencode import OpenCode
    from crushpy.importers.pi import Pi

    return ClaudeCode(), Codex(), OpenCode(), Pi(), Crush()
