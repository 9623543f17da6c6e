"""The agents whose sessions can be imported. A new one is a file of this room and one row here."""

from crushpy.importers.claude import ClaudeCode
from crushpy.importers.foreign import Source

SOURCES: tuple[Source, ...] = (ClaudeCode(),)
