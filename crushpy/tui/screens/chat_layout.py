"""The chat's layout: transcript, queue, prompt and status bar, with focus and keys."""

import time
from typing import TypeVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.tui.focus_controller import FocusController
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

MIN_ROWS_FOR_ACTIVITY = 20
"""Terminal rows from which the activity line always has a row above the prompt."""
QUIT_WINDOW_S = 2.0
"""Time within which a second Ctrl+C quits."""
REWIND_WINDOW_S = 0.6
"""Time within which a second Esc rewinds."""
NO_REWIND_AFTER_STOP_S = 1.0
"""Time after an interrupt in which Esc does not rewind."""


class ChatLayout(TranscriptScreen):
    """Widgets, focus and keys; `stop`, `leave` and `perform` are implemented by the chat."""

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
    VERTICAL_BREAKPOINTS = [(0, "-close"), (MIN_ROWS_FOR_ACTIVITY, "-airy")]
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
        self.focus_controller = FocusController(self, self.prompt, self._question)
        self.transcript.focus_controller = self.queue.focus_controller = self.focus_controller
        self._bar = StatusBar()
        self.feed = TranscriptPresenter(self.transcript, reach="Tab first, or click")
        self.status = StatusPresenter(self._bar)
        self.activity = ActivityLine(self.transcript.current_palette, lambda: self.status.in_use)
        self._last_interrupt = 0.0
        self._last_escape = 0.0
        self._last_stop = 0.0

    def compose(self) -> ComposeResult:
        # Set before the first layout: changing a class later would apply all styles again.
        airy = app_of(self).size.height >= MIN_ROWS_FOR_ACTIVITY
        self.set_class(airy, "-airy", update=False)
        self.set_class(not airy, "-close", update=False)
        yield self.transcript
        yield self.todos
        yield self.activity
        yield self.queue
        yield self.attachments
        yield self.prompt
        yield self._bar

    # --- implemented by the chat -------------------------------------------------------------------------

    def stop(self) -> bool:
        """Stops everything that runs; False if nothing does."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Stops everything, stores the rest, and exits."""
        raise NotImplementedError

    async def perform(self, action: str, argument: str = "") -> None:
        """Runs a command of the table."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Esc twice, with an empty prompt and nothing running."""

    def tidy(self) -> bool:
        """Esc with nothing to stop: removes toasts; False if there are none."""
        return dismiss_toasts(self)

    # --- notices and screens -----------------------------------------------------------------------------

    @property
    def running_app(self) -> App[object]:
        return app_of(self)

    def say(self, text: str, *, warning: bool = False) -> None:
        """Shows a notice in the transcript."""
        self.feed.show(NoticeItem(text, "warning" if warning else "info"))

    async def show(self, screen: Screen[T]) -> T | None:
        """Opens a screen and waits for its result. Only from a worker."""
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
        """Shows the transcript's keys while it has the focus."""
        reading = self.focused is self.transcript
        if reading and not self.query("KeyBar"):
            from crushpy.tui.widgets.key_bar import KeyBar

            self.mount(KeyBar(), after=self.transcript)
        self.set_class(reading, "-reading")

    def on_key(self, event: events.Key) -> None:
        """Keys pressed while nothing has the focus go to the prompt."""
        if self.focused is None and self.focus_controller.type_in_prompt(event):
            event.stop()

    def keep(self, typed: str) -> None:
        """Adds input that was typed into a question by accident to the draft; never sends it."""
        if typed == "\x7f":
            self.prompt.action_delete_left()
        else:
            self.prompt.paste_text(typed)

    # --- keys --------------------------------------------------------------------------------------------

    def action_escape(self) -> None:
        """Returns to the prompt; there, stops what runs; if nothing runs, removes toasts; twice in an empty
        prompt, rewinds."""
        now, before = time.monotonic(), self._last_escape
        self._last_escape = 0.0
        if self.focus_controller.return_focus():
            return
        if self.stop():
            self._last_stop = now
            dismiss_toasts(self)
            return
        if self.tidy() or self.prompt.draft or self.attachments.images:
            return
        if now - self._last_stop < NO_REWIND_AFTER_STOP_S:
            return  # the same key has just stopped something: one press too many must not rewind
        if now - before < REWIND_WINDOW_S:
            self.rewind()
        else:
            self._last_escape = now

    def action_leave_if_empty(self) -> None:
        """Ctrl+D in an empty prompt."""
        if not (self.prompt.draft or self.attachments.images):
            self.run_worker(self.perform("quit"))

    @on(PromptInput.KeysAsked)
    def _keys_asked(self) -> None:
        self.run_worker(self.perform("help"))

    def action_page(self, direction: int) -> None:
        self.transcript.interaction.page(direction)

    def action_to_end(self) -> None:
        self.transcript.following = True

    def interrupt_or_quit(self) -> None:
        """Ctrl+C: copies the selection; stops what runs; clears the prompt; twice, quits."""
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
        if now - self._last_interrupt < QUIT_WINDOW_S:
            self.run_worker(self.leave())
            return
        self._last_interrupt = now
        self.notify("Press Ctrl+C again to quit", timeout=QUIT_WINDOW_S, markup=False)


def _hints() -> list[CommandHint]:
    return [CommandHint(one.slash, one.title, one.argument, one.aliases) for one in APP_COMMANDS if one.slash]
