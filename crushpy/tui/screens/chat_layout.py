"""The chat's layout: transcript, queue, prompt, status line; where the focus is, and the keys of all that."""

import time
from typing import TypeVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.tui.focus_controller import Home
from crushpy.tui.items import NoticeItem
from crushpy.tui.notify import dismiss_toasts
from crushpy.tui.screens.transcript_screen import TranscriptScreen
from crushpy.tui.status_presenter import StatusPresenter
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.transcript_presenter import TranscriptPresenter
from crushpy.tui.widgets.activity_line import ActivityLine
from crushpy.tui.widgets.attachment_list import AttachmentList
from crushpy.tui.widgets.prompt import CommandHint, PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView
from crushpy.tui.widgets.status_bar import StatusBar
from crushpy.tui.widgets.todo_line import TodoLine

T = TypeVar("T")

AIRY = 20
"""Rows from which there is always one above the prompt, for what runs."""
QUIT_AGAIN = 2.0
"""Seconds within which a second Ctrl-C leaves."""
ESCAPE_AGAIN = 0.6
"""Seconds within which a second Esc rewinds."""
AFTER_STOP = 1.0
"""Seconds after something was stopped in which Esc does not rewind."""


class ChatLayout(TranscriptScreen):
    """Knows no engine: `stop` and `leave` are what the chat does about it."""

    DEFAULT_CSS = """
    ChatLayout { layout: vertical; overflow: hidden; }
    ChatLayout Transcript { height: 1fr; }
    ChatLayout.-cramped PromptInput { max-height: 1; }
    ChatLayout.-cramped QueueView { max-height: 0; }
    ChatLayout.-cramped AttachmentList { max-height: 1; }
    ChatLayout.-cramped ActivityLine { max-height: 0; }
    ChatLayout.-cramped TodoLine { max-height: 0; }
    ChatLayout KeyBar { dock: none; display: none; max-height: 2; }
    ChatLayout.-reading KeyBar { display: block; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-close"), (AIRY, "-airy")]
    AUTO_FOCUS = "PromptInput"
    BINDINGS = [
        Binding("escape", "escape", "Back to the prompt"),
        Binding("ctrl+d", "leave_if_empty", "Leave", show=False),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("ctrl+end", "to_end", "To the end", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.folded = True
        self.transcript = Transcript()
        self.transcript.can_pin = True
        self.prompt = PromptInput(commands=_hints())
        self.queue = QueueView()
        self.todos = TodoLine()
        self.attachments = AttachmentList()
        self.home = self.transcript.home = self.queue.home = Home(self, self.prompt, self._question)
        self._bar = StatusBar()
        self.feed = TranscriptPresenter(self.transcript, reach="Tab first, or click")
        self.status = StatusPresenter(self._bar)
        self.activity = ActivityLine(self.transcript.current_palette, lambda: self.status.in_use)
        self._last_interrupt = 0.0
        self._last_escape = 0.0
        self._last_stop = 0.0

    def compose(self) -> ComposeResult:
        # As the first layout will find it: a class that comes later has all styles applied again.
        airy = app_of(self).size.height >= AIRY
        self.set_class(airy, "-airy", update=False)
        self.set_class(not airy, "-close", update=False)
        yield self.transcript
        yield self.todos
        yield self.activity
        yield self.queue
        yield self.attachments
        yield self.prompt
        yield self._bar

    # --- what the chat does ------------------------------------------------------------------------------

    def stop(self) -> bool:
        """Stops what runs; False where nothing does."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Ends what runs, stores what is left, and goes."""
        raise NotImplementedError

    async def perform(self, action: str, argument: str = "") -> None:
        """Carries out a command of the table."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Esc twice, with nothing written and nothing running."""

    def tidy(self) -> bool:
        """Esc with nothing to stop: takes away what can be taken away; False where there is nothing."""
        return dismiss_toasts(self)

    # --- what is shown -----------------------------------------------------------------------------------

    @property
    def running_app(self) -> App[object]:
        return app_of(self)

    def say(self, text: str, *, warning: bool = False) -> None:
        """A word to the user, in the flow."""
        self.feed.show(NoticeItem(text, "warning" if warning else "info"))

    async def show(self, screen: Screen[T]) -> T | None:
        """Opens a screen and waits for what it returns. Only from a worker."""
        return await app_of(self).push_screen_wait(screen)

    @on(Transcript.Scrolled)
    def _scrolled(self, event: Transcript.Scrolled) -> None:
        self.status.set_below(event.more_below)

    # --- focus -------------------------------------------------------------------------------------------

    def _question(self) -> Widget | None:
        return next(iter(self.query("ApprovalPanel")), None)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        """The transcript's keys are named while it has the focus."""
        reading = self.focused is self.transcript
        if reading and not self.query("KeyBar"):
            from crushpy.tui.widgets.key_bar import KeyBar

            self.mount(KeyBar(), after=self.transcript)
        self.set_class(reading, "-reading")

    def on_key(self, event: events.Key) -> None:
        """Keys that come while nothing has the focus belong to the prompt."""
        if self.focused is None and self.home.take(event):
            event.stop()

    def keep(self, typed: str) -> None:
        """Takes what was meant for the draft when something else came up; it is never sent by this."""
        if typed == "\x7f":
            self.prompt.action_delete_left()
        else:
            self.prompt.paste_text(typed)

    # --- keys --------------------------------------------------------------------------------------------

    def action_escape(self) -> None:
        """One meaning at a time: back to the prompt; there it stops what runs; where nothing does, it tidies
        up, and twice in an empty prompt it rewinds."""
        now, before = time.monotonic(), self._last_escape
        self._last_escape = 0.0
        if self.home.come_back():
            return
        if self.stop():
            self._last_stop = now
            dismiss_toasts(self)
            return
        if self.tidy() or self.prompt.draft or self.attachments.images:
            return
        if now - self._last_stop < AFTER_STOP:
            return  # the same key stopped something a moment ago: one press too many must not rewind
        if now - before < ESCAPE_AGAIN:
            self.rewind()
        else:
            self._last_escape = now

    def action_leave_if_empty(self) -> None:
        """Ctrl+D, which deletes a letter where there is one."""
        if not (self.prompt.draft or self.attachments.images):
            self.run_worker(self.perform("quit"))

    @on(PromptInput.KeysAsked)
    def _keys_asked(self) -> None:
        self.run_worker(self.perform("help"))

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()

    def action_to_end(self) -> None:
        self.transcript.following = True

    def interrupt_or_quit(self) -> None:
        """Ctrl-C: copies what is selected; stops what runs; empties the prompt; twice, it leaves."""
        now = time.monotonic()
        if self.prompt.selected_text:
            self.prompt.action_copy()
            return
        selected = self.get_selected_text()
        if selected:
            self.clear_selection()
            self.run_worker(self.copy(selected))
            return
        if self.stop():
            self._last_interrupt = self._last_stop = now
            return
        if self.prompt.draft or self.attachments.images:
            self.prompt.draft = ""
            self.attachments.take()
            self._last_interrupt = now
            return
        if now - self._last_interrupt < QUIT_AGAIN:
            self.run_worker(self.leave())
            return
        self._last_interrupt = now
        self.notify("Press Ctrl+C again to leave.", timeout=QUIT_AGAIN, markup=False)


def _hints() -> list[CommandHint]:
    return [CommandHint(one.slash, one.title, one.argument, one.aliases) for one in APP_COMMANDS if one.slash]
