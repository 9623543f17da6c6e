"""The chat as its parts and the commands know it: the widgets and the conversation they act on.

`ChatScreen` derives from it and connects the parts; none of them imports that screen.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from textual.screen import Screen

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.core.errors import CrushpyError
from crushpy.core.start_options import StartOptions
from crushpy.security.sanitize import one_line
from crushpy.tui.focus_controller import FocusController
from crushpy.tui.greeting import Greeter
from crushpy.tui.items import NoticeItem
from crushpy.tui.notify import dismiss_toasts
from crushpy.tui.screens.transcript_screen import TranscriptScreen
from crushpy.tui.status_presenter import StatusPresenter
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.transcript_presenter import TranscriptPresenter
from crushpy.tui.widgets.activity_line import ActivityLine
from crushpy.tui.widgets.attachment_list import AttachmentList
from crushpy.tui.widgets.context_strip import ContextStrip
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView
from crushpy.tui.widgets.status_bar import ModeChip, StatusBar
from crushpy.tui.widgets.todo_line import TodoLine

if TYPE_CHECKING:
    from crushpy.core.messages import Message
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.tui.transcript_presenter import FoundPlace
    from crushpy.tui.widgets.key_sheet import KeySheet

CLOSE_TIMEOUT_S = 10
MIN_COLUMNS_FOR_SIDE = 140
"""Columns of the terminal from which on there is a panel beside the transcript."""
QUIT_WINDOW_S = 2.0
"""Time within which a second Ctrl+C quits."""
REWIND_WINDOW_S = 0.6
"""Time within which a second Esc rewinds."""
NO_REWIND_AFTER_STOP_S = 1.0
"""Time after an interrupt in which Esc does not rewind."""

T = TypeVar("T")


class ChatHost(TranscriptScreen):
    """`conversation` is None until the engine is loaded, or if that failed."""

    def __init__(self, options: StartOptions) -> None:
        super().__init__()
        self.options = options
        self.conversation: Conversation | None = None
        self.library: SessionBrowser | None = None
        """The stored sessions, once they are available."""
        self.folded = True
        self.transcript = Transcript()
        self.transcript.can_pin = True
        self.prompt = PromptInput(commands=[command for command in APP_COMMANDS if command.slash])
        self.queue = QueueView()
        self.todos = TodoLine()
        self.attachments = AttachmentList()
        self.bar, self.strip, self.chip = StatusBar(), ContextStrip(), ModeChip()
        self.focus_controller = FocusController(self, self.prompt)
        self.transcript.focus_controller = self.queue.focus_controller = self.focus_controller
        self.feed = TranscriptPresenter(self.transcript, reach="Tab and ↑ to this card, or click")
        self.status = StatusPresenter(self.bar, self.strip, self.chip, self.own_commands)
        self.activity = ActivityLine(self.transcript.current_palette, lambda: self.bar.state.reading.used)
        self.greeter = Greeter(self.transcript)
        self.shows_side = True
        """Beside the transcript, if the terminal is wide enough."""
        self.tried = asyncio.Event()
        """Set once the engine is loaded or has failed to load."""
        self.own: OwnCommands | None = None
        """The user's shell commands, after the first one."""
        self.warnings: list[str] = []
        self.offered_ends: list[str] = []
        """Texts of the rules that notices offer to end, the last one last."""
        self.key_sheet: KeySheet | None = None
        self.asks_to_quit = False
        """A dialog asks whether to quit."""
        self.farewell = ""
        """Printed after exit: how to resume."""
        self._last_interrupt = self._last_escape = 0.0
        self.last_stop = 0.0
        """When Esc or Ctrl+C stopped something."""

    async def opened_conversation(self) -> "Conversation | None":
        """Waits until the engine is loaded or has failed to load."""
        await self.tried.wait()
        return self.conversation

    async def show(self, screen: Screen[T]) -> T | None:
        """Opens a screen and waits for its result. Only from a worker."""
        return await app_of(self).push_screen_wait(screen)

    def say(self, text: str, *, warning: bool = False) -> None:
        self.greeter.end_card()
        self.feed.show(NoticeItem(text, "warning" if warning else "info"))

    def warn(self, *warnings: str) -> None:
        """Collects warnings about the start behind a key, which the status bar names."""
        self.warnings += [warning for warning in warnings if warning not in self.warnings]
        self.status.set(warnings=len(self.warnings))

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the latest session, with the boundary that opened it."""
        opening = None
        if conversation.info.parent_id:
            with suppress(CrushpyError):
                opening = await conversation.sessions.opening_boundary(conversation.info.id)
        notes = conversation.session.notes
        states = conversation.session.sent_states
        self.feed.show_paths_from(conversation.info.cwd)
        self.feed.load(conversation.history, opening, states, notes, conversation.session.branches)
        if opening is not None and opening.boundary.reported_after is None:
            await conversation.context.count_exactly()  # the gauge shows the figure of the card

    def reveal(self, place: "FoundPlace") -> bool:
        """Scrolls to a message in the transcript; False if it is not there."""
        return self.conversation is not None and self.feed.reveal(place, self.conversation.history)

    def keep(self, typed: str) -> None:
        """Adds input that was typed into a question to the draft, or sends the draft (CR)."""
        if typed != "\r":
            self.prompt.feed_keys(typed)
        elif self.prompt.draft.strip():
            self.prompt.action_submit()

    @property
    def command_keys(self) -> dict[str, str]:
        """Keys of commands that the user changed, by action."""
        keys = msgspec.structs.asdict(self.conversation.settings.keys) if self.conversation else {}
        return {action: key for action, key in keys.items() if key}

    def close_sheet(self) -> bool:
        """Removes the sheet of keys; False if there is none."""
        sheet, self.key_sheet = self.key_sheet, None
        if sheet is not None:
            sheet.remove()
        return sheet is not None

    def fit_side(self) -> bool:
        """Shows or hides what is beside the transcript; whether it is shown."""
        is_wide = app_of(self).size.width >= MIN_COLUMNS_FOR_SIDE
        shown = self.shows_side and is_wide and self.conversation is not None
        if shown and self.status.side is None:
            from crushpy.tui.widgets.side_panel import SidePanel

            self.status.side = SidePanel()
            self.mount(self.status.side)
            self.status.refresh()
            self.status.count_changes()
        elif not shown and self.status.side is not None:
            self.status.side.remove()
            self.status.side = None
        return shown

    def own_commands(self) -> "OwnCommands":
        if self.own is None:
            from crushpy.engine.user_commands import OwnCommands

            self.own = OwnCommands(self.options.cwd)
        return self.own

    def stop(self) -> bool:
        """Stops the agent and the user's own commands; False if nothing runs."""
        own = self.own is not None and self.own.stop()
        return (self.conversation is not None and self.conversation.interrupt()) or own

    def running_work(self) -> list[str]:
        """What would end with the app, in words."""
        found = ["The agent is working."] if self.conversation and self.conversation.busy else []
        found += ["A command of yours is running."] if self.own is not None and self.own.running else []
        jobs = self.conversation.workspace.jobs.running() if self.conversation is not None else ()
        return found + [f"{job.id} is running: {one_line(job.command)}" for job in jobs]

    def show_way_back(self, conversation: "Conversation | None") -> None:
        """Sets what is printed after exit."""
        if conversation is not None and conversation.history:
            self.farewell = f"To resume: crushpy --session {conversation.info.id}"
        for job in conversation.workspace.jobs.running() if conversation is not None else ():
            self.farewell = f"{self.farewell}\nStopped: {job.id}, {one_line(job.command)}".lstrip()

    async def leave(self) -> None:
        """Stops everything, stores the rest, and exits."""
        conversation, self.conversation = self.conversation, None
        self.show_way_back(conversation)
        closing = [opened.close() for opened in (conversation, self.own) if opened is not None]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closing), CLOSE_TIMEOUT_S)
        if conversation is not None and self.farewell and conversation.run_summary:
            self.farewell += f"\n{conversation.run_summary}"
        app_of(self).exit()

    # --- Esc and Ctrl+C: their effect depends on what runs and on what was pressed just before -----------

    def action_escape(self) -> None:
        """Closes the sheet of keys; folds the answer to a side question; returns to the prompt; there, stops
        what runs; if nothing runs, removes toasts; twice in an empty prompt, rewinds."""
        now, before = time.monotonic(), self._last_escape
        self._last_escape = 0.0
        if self.close_sheet() or self.feed.fold_aside() | self.focus_controller.return_focus():
            return
        if self.stop():
            self.last_stop = now
            dismiss_toasts(self)
            self.return_queue()
            return
        told = dismiss_toasts(self)
        if self.conversation is not None:
            told |= self.greeter.dismiss_welcome(self.conversation)
        if told or self.prompt.draft or self.attachments.images:
            return
        if now - self.last_stop < NO_REWIND_AFTER_STOP_S:
            return  # the same key has just stopped something: one press too many must not rewind
        if now - before < REWIND_WINDOW_S:
            self.run_command("rewind")
        else:
            self._last_escape = now

    def return_queue(self) -> None:
        """Returns prompts that were not sent to the input."""
        queued = self.conversation.prompts.queue if self.conversation is not None else ()
        for prompt in reversed(queued):
            if self.conversation is not None and self.conversation.prompts.unqueue(prompt.id) is not None:
                self.take_back(prompt)

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
            self._last_interrupt = self.last_stop = now
            self.return_queue()
            return
        if self.prompt.draft or self.attachments.images:
            self.prompt.draft = ""
            self.attachments.take()
            self._last_interrupt = now
            return
        if now - self._last_interrupt < QUIT_WINDOW_S:
            self.run_worker(self.leave)
            return
        self._last_interrupt = now
        self.notify("Press Ctrl+C again to quit", timeout=QUIT_WINDOW_S, markup=False)

    # --- what the chat screen adds -----------------------------------------------------------------------

    async def replace_conversation(self, options: StartOptions) -> None:
        """Opens another conversation, then closes this one; raises if it cannot be opened."""
        raise NotImplementedError

    def run_command(self, action: str, argument: str = "") -> None:
        """Runs a command of the table in a worker."""
        self.run_worker(partial(self.perform, action, argument))

    async def perform(self, action: str, argument: str = "") -> bool:
        """Runs a command of the table; False if it was refused or failed."""
        raise NotImplementedError

    def take_back(self, prompt: "Message") -> None:
        """Puts a prompt that was not sent, and its images, in front of the draft."""
        raise NotImplementedError
