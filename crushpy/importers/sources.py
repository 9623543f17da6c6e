"""The agents whose sessions can be imported. A new one is a file of this room and one row here."""

from crushpy.importers.claude import ClaudeCode
from crushpy.importers.codex import Codex
from crushpy.importers.crush import Crush
from crushpy.importers.foreign import Source
from crushpy.importers.opencode import OpenCode
from crushpy.importers.pi import Pi

SOURCES: tuple[Source, ...] = (ClaudeCode(), Codex(), OpenCode(), Pi(), Crush())
