"""What can be done with an item of a transcript, in the chat and while reading."""

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
    """A screen with a transcript on it. `library` is its own; `act` is what only it can do."""

    _copied: tuple[int, int] = (-1, 0)
    """The reply and the code block of it that was copied last."""
    _find_entered = False
    """Enter was pressed behind the words that are looked for."""

    @property
    def library(self) -> "SessionBrowser | None":
        """What is stored, once it can be asked."""
        raise NotImplementedError

    def read_session(self, library: "SessionBrowser", session_id: str) -> None:
        """Opens a stored session to read."""
        raise NotImplementedError

    async def fork_at(self, key: int) -> None:
        """Goes on in a branch that ends at the message that this item shows."""
        raise NotImplementedError

    async def act(self, item: TranscriptItem, action: ItemAction) -> None:
        """Whatever else a key or a click on an item asks for."""

    @on(Transcript.LinkClicked)
    def _link(self, event: Transcript.LinkClicked) -> None:
        if event.href.startswith(("https://", "http://")):
            app_of(self).open_url(event.href)

    @on(Transcript.CodeClicked)
    async def _code_clicked(self, event: Transcript.CodeClicked) -> None:
        from crushpy.tui.transcript.code_blocks import code_blocks

        item = self.query_one(Transcript).item(event.key)
        block = event.block
        written = code_blocks(item.text) if isinstance(item, ReplyItem) and block.of else []
        # As it was written where that can be told; in a list or a quotation it is taken as it is shown.
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
            case BoundaryItem(parent_id=parent) if action == "open_parent" and self.library is not None:
                self.read_session(self.library, parent)
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
            self.query_one(Transcript).find(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input not in self.query("FindLine"):
            return
        event.stop()
        self._find_entered = True
        found = self.query_one(Transcript).find(event.value)
        if found is not None:
            self._end_of_find(found)

    @on(Transcript.FindEnded)
    def _found_later(self, event: Transcript.FindEnded) -> None:
        self._end_of_find(event.found)

    def _end_of_find(self, found: bool) -> None:
        """Whoever pressed Enter goes where the words stand, or is told that they do not."""
        if not self._find_entered:
            return
        self._find_entered = False
        for line in self.query("FindLine").results(Input):
            if found:
                self.query_one(Transcript).visit()
                line.remove()
            else:
                tell(self, f"{one_line(line.value)!r} does not stand in the transcript.", "warning")

    def on_find_line_ended(self) -> None:
        transcript = self.query_one(Transcript)
        transcript.end_find()
        transcript.visit()
        self.query("FindLine").remove()

    @on(events.DescendantFocus)
    def _focus_left(self) -> None:
        """Whoever goes on elsewhere has found it."""
        transcript = self.query_one(Transcript)
        lines = self.query("FindLine")
        if self.focused not in (transcript, *lines):
            transcript.end_find()
            lines.remove()

    async def _copy_block(self, key: int, text: str) -> None:
        """The first code block of a reply; asked again, the next one."""
        from crushpy.tui.transcript.code_blocks import code_blocks

        blocks = code_blocks(text)
        if not blocks:
            tell(self, "There is no code block in this reply.", "warning")
            return
        last_key, last = self._copied
        number = (last + 1) % len(blocks) if last_key == key else 0
        self._copied = (key, number)
        await self.copy(blocks[number])

    async def copy(self, text: str) -> None:
        """Puts text on the clipboard, and says how."""
        from crushpy.tui.terminal.clipboard import copy

        tell(self, await copy(app_of(self), text))  # in passing: no line in the flow for each
