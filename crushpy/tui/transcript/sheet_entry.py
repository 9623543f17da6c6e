"""One item in its place: whether it is open, and what was streamed to it."""

from collections.abc import Sequence

import msgspec

from crushpy.pieces import Pieces
from crushpy.tui.items import ReplyItem, ThinkingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.markdown.sections import WHOLE, SectionCutter
from crushpy.tui.transcript.render.draw_item import is_open_at_first
from crushpy.tui.transcript.render.drawn import Drawn
from crushpy.tui.transcript.render.reply_part import ReplyPart
from crushpy.tui.transcript.render.text_row import TextRow

MOST_OUTPUT = 200_000
"""Characters of a running tool's output that are kept for display."""


class SheetEntry:
    """One item in its place."""

    __slots__ = ("before", "cutter", "drawn", "hidden", "item", "key", "parts", "run", "unfolded")

    def __init__(self, key: int, item: TranscriptItem) -> None:
        self.key = key
        self.item = item
        self.hidden = False
        """Not seen: told by the line of its run, or such a line that has nothing to tell."""
        self.run: int | None = None
        """Where the line of the run is that it belongs to; None where it is in none."""
        self.before: Sequence[TextRow] = ()
        """The rows of another item in its place: what looks the same need not be painted again."""
        self.unfolded: bool | None = None
        """What the user chose; None where nothing was chosen."""
        self.parts: Pieces | None = None
        """What was streamed and is not part of `item` yet; None where it does not grow."""
        self.cutter: SectionCutter | None = None
        """Of a reply that grows: what its last part holds, and where it ends."""
        self.drawn: Drawn | None = None
        """Only while it grows; else the sheet keeps it as long as there is room."""

    @property
    def opened(self) -> bool:
        return is_open_at_first(self.item) if self.unfolded is None else self.unfolded

    def begin_to_grow(self) -> None:
        """From now on something is streamed to it."""
        self.parts = Pieces()
        if isinstance(self.item, ReplyItem):
            self.cutter = SectionCutter(self.item.opening if isinstance(self.item, ReplyPart) else WHOLE)
            self.parts.append(self.item.text)
            self.item = msgspec.structs.replace(self.item, text="")

    def grown(self) -> TranscriptItem:
        """The item with what was streamed so far."""
        if not self.parts:
            return self.item
        text = "".join(self.parts)
        if len(self.parts) > 1:
            self.parts[:] = [text]
        match self.item:
            case ReplyItem() | ThinkingItem():
                return msgspec.structs.replace(self.item, text=self.item.text + text)
            case ToolItem():
                return msgspec.structs.replace(self.item, output=(self.item.output + text)[-MOST_OUTPUT:])
            case _:
                return self.item
