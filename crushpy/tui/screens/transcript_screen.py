"""Actions on the items of a transcript, in the chat and in the session reader."""

from typing import TYPE_CHECKING

from textual import events, on
from textual.screen import Screen
from textual.widgets import Input

from crushpy.security.sanitize import one_line
from crushpy.tui.items import BoundaryItem, ItemAction, ReplyItem, ToolItem, TranscriptItem, source_text
from crushpy.tui.notify import tell
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript

if TYPE_CHECKING:
    from crushpy.engine.session.browser import SessionBrowser


class TranscriptScreen(Screen[str | None]):
    """Base class of the screens that show a transcript: links, copying, finding, opening sessions."""

    _copied: tuple[int, int] = (-1, 0)
    """The reply and the code block that was copied last."""
    _find_entered = False
    """Enter was pressed in the find line."""

    @property
    def library(self) -> "SessionBrowser | None":
        """The stored sessions, once they are available."""
        raise NotImplementedError

    def read_session(self, library: "SessionBrowser", session_id: str) -> None:
        raise NotImplementedError

    async def fork_at(self, key: int) -> None:
        """Continues in a branch that ends at the message of this item."""
        raise NotImplementedError

    async def act(self, item: TranscriptItem, action: ItemAction) -> None:
        """Any other action of a key or click on an item."""

    @on(Transcript.LinkClicked)
    def _link(self, event: Transcript.LinkClicked) -> None:
        if event.href.startswith(("https://", "http://")):
            app_of(self).open_url(event.href)

    @on(Transcript.CodeClicked)
    async def _code_clicked(self, event: Transcript.CodeClicked) -> None:
        from crushpy.tui.transcript.selection import code_blocks

        item = self.query_one(Transcript).item(event.key)
        block = event.block
        written = code_blocks(item.text) if isinstance(item, ReplyItem) and block.of else []
        # The original text if it can be identified; in a list or quotation the text as shown.
        await self.copy(written[block.number] if written and len(written) == block.of else block.text)

    @on(Transcript.ItemActivated)
    def _item(self, event: Transcript.ItemActivated) -> None:
        item = self.query_one(Transcript).item(event.key)
        if item is not None:
            self.run_worker(self._activate(event.key, item, event.action))

    async def _activate(self, key: int, item: TranscriptItem, action: ItemAction) -> None:
        match item:
            case _ if action == "copy":
                await self.copy(source_text(item))
            case _ if action == "fork":
                await self.fork_at(key)
            case BoundaryItem() if action == "open_parent" and self.library is not None:
                self.read_session(self.library, item.boundary.parent_id)
            case ReplyItem(text=text) if action == "copy_block":
                await self._copy_block(key, text)
            case ToolItem(session_id=worker) if action == "open_task" and self.library is not None:
                self.read_session(self.library, worker)
            case _:
                await self.act(item, action)

    # --- finding -----------------------------------------------------------------------------------------

    @on(Transcript.FindAsked)
    async def _ask_what_to_find(self) -> None:
        from crushpy.tui.widgets.fields import FindLine

        if not self.query("FindLine"):
            line = FindLine()
            await self.mount(line, after=self.query_one(Transcript))
            line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input in self.query("FindLine"):
            event.stop()
            self._find_entered = False
            self.query_one(Transcript).interaction.find(event.value, self._end_of_find)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input not in self.query("FindLine"):
            return
        event.stop()
        self._find_entered = True
        self.query_one(Transcript).interaction.find(event.value, self._end_of_find)

    def _end_of_find(self, found: bool) -> None:
        """After Enter: focuses the match, or reports that there is none."""
        if not self._find_entered:
            return
        self._find_entered = False
        for line in self.query("FindLine").results(Input):
            if found:
                self.query_one(Transcript).interaction.take_focus()
                line.remove()
            else:
                tell(self, f"{one_line(line.value)!r} is not in the transcript.", "warning")

    def on_find_line_ended(self) -> None:
        transcript = self.query_one(Transcript)
        transcript.interaction.end_find()
        transcript.interaction.take_focus()
        self.query("FindLine").remove()

    @on(events.DescendantFocus)
    def _focus_left(self) -> None:
        """Ends the search when the focus moves elsewhere."""
        transcript = self.query_one(Transcript)
        lines = self.query("FindLine")
        if self.focused not in (transcript, *lines):
            transcript.interaction.end_find()
            lines.remove()

    async def _copy_block(self, key: int, text: str) -> None:
        """Copies the first code block of a reply; if repeated, the next one."""
        from crushpy.tui.transcript.selection import code_blocks

        blocks = code_blocks(text)
        if not blocks:
            tell(self, "There is no code block in this reply.", "warning")
            return
        last_key, last = self._copied
        number = (last + 1) % len(blocks) if last_key == key else 0
        self._copied = (key, number)
        await self.copy(blocks[number])

    async def copy(self, text: str) -> None:
        from crushpy.tui.terminal.clipboard import copy

        tell(self, await copy(app_of(self), text))  # a toast, not a line in the transcript
