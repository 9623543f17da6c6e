"""Actions on the items of a transcript, in the chat and in the session reader."""

from functools import partial

from textual import events, on
from textual.widgets import Input

from crushpy.security.sanitize import one_line
from crushpy.tui.items import BoundaryItem, ItemAction, ToolItem, TranscriptItem, source_text
from crushpy.tui.notify import tell
from crushpy.tui.textual_adapter import AdaptedScreen, app_of
from crushpy.tui.transcript.widget import Transcript


class TranscriptScreen(AdaptedScreen[str | None]):
    """Base class of the screens that show a transcript: links, copying, finding, opening sessions."""

    def action_open_session(self, session_id: str) -> None:
        """Shows a stored session, to read."""
        raise NotImplementedError

    async def fork_at(self, key: int) -> None:
        """Continues in a fork that ends at the message of this item."""
        raise NotImplementedError

    async def act(self, key: int, item: TranscriptItem, action: ItemAction) -> None:
        """Any other action of a key or click on an item."""

    @on(Transcript.ItemActivated)
    def _item(self, event: Transcript.ItemActivated) -> None:
        item = self.query_one(Transcript).item(event.key)
        if item is not None:
            self.run_worker(self._activate(event.key, item, event.action, event.text))

    async def _activate(self, key: int, item: TranscriptItem, action: ItemAction, text: str) -> None:
        match item:
            case _ if action == "copy":
                await self.copy(text or source_text(item))
            case _ if action == "fork":
                await self.fork_at(key)
            case BoundaryItem() if action == "open_parent":
                self.action_open_session(item.boundary.parent_id)
            case ToolItem(session_id=worker) if action == "open_task":
                self.action_open_session(worker)
            case _:
                await self.act(key, item, action)

    # --- finding -----------------------------------------------------------------------------------------

    async def action_find(self) -> None:
        from crushpy.tui.widgets.fields import FindLine

        transcript = self.query_one(Transcript)
        transcript.interaction.end_find()
        if not self.query("FindLine"):
            line = FindLine()
            await self.mount(line, after=transcript)
            self.set_focus(line)  # at once: keys typed behind it are meant for it

    @on(Input.Changed, "FindLine")
    @on(Input.Submitted, "FindLine")
    def _find_words(self, event: Input.Changed | Input.Submitted) -> None:
        event.stop()
        then = partial(self._end_of_find, isinstance(event, Input.Submitted))
        self.query_one(Transcript).interaction.find(event.value, then)

    def _end_of_find(self, entered: bool, found: bool) -> None:
        """After Enter: focuses the match, or reports that there is none."""
        for line in self.query("FindLine").results(Input) if entered else ():
            if found:
                self.query_one(Transcript).interaction.take_focus()
                line.remove()
            else:
                tell(self, f"{one_line(line.value)!r} is not in the transcript.", "warning")

    def action_end_find(self) -> None:
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

    async def copy(self, text: str) -> None:
        from crushpy.tui.terminal.clipboard import copy

        tell(self, await copy(app_of(self), text))  # a toast, not a line in the transcript
