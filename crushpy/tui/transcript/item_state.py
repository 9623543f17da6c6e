"""One item in its place: whether it is open, and what was streamed to it."""

from collections.abc import Sequence

import msgspec

from crushpy.tui.items import ReplyItem, ThinkingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.markdown.sections import WHOLE, SectionCutter
from crushpy.tui.transcript.render.draw_item import is_open_at_first
from crushpy.tui.transcript.render.drawn import Drawn
from crushpy.tui.transcript.render.reply_part import ReplyPart, packed_part, unpacked
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.util.pieces import Pieces

MOST_OUTPUT = 200_000
"""Characters of a running tool's output that are kept for display."""


class ItemState:
    """One item in its place."""

    __slots__ = ("before", "complete", "cutter", "drawn", "hidden", "item", "key", "parts", "run", "unfolded")

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
        self.complete: list[ReplyPart] = []
        """Of a reply that grows: the parts that are cut off already, the first of which this entry is."""
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
            item = unpacked(self.item)
            self.parts.append(item.text)
            self.item = msgspec.structs.replace(item, text="")

    def cut(self) -> None:
        """Packs what is complete of what was streamed, where this is a reply. Nobody sees it yet."""
        if self.cutter is None or not self.parts or not isinstance(self.item, ReplyItem):
            return
        number = self.item.number if isinstance(self.item, ReplyPart) else 0
        streamed, self.parts = "".join(self.parts), Pieces()
        for section in self.cutter.feed(streamed):
            self.complete.append(packed_part(self.item, section, number + len(self.complete)))

    def end(self, item: TranscriptItem) -> None:
        """It shows `item` from now on, and no longer grows."""
        self.item, self.parts, self.cutter, self.drawn, self.complete = item, None, None, None, []

    def grown(self) -> TranscriptItem:
        """The item with all of its text, and what was streamed so far."""
        match self.item:
            case ReplyItem() if self.cutter is not None:
                before = [unpacked(part).text for part in self.complete]
                text = "".join([*before, self.cutter.text, *(self.parts or ())])
                return msgspec.structs.replace(self.item, text=text)
            case ReplyItem():
                return unpacked(self.item)
            case ThinkingItem() if self.parts:
                return msgspec.structs.replace(self.item, text=self.item.text + self._streamed())
            case ToolItem() if self.parts:
                output = (self.item.output + self._streamed())[-MOST_OUTPUT:]
                return msgspec.structs.replace(self.item, output=output)
            case _:
                return self.item

    def _streamed(self) -> str:
        assert self.parts is not None
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0]
