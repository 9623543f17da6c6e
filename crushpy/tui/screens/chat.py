"""The chat: transcript, prompt, gauge. It shows what the engine says and passes on what the user wants."""

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen

from crushpy.errors import CrushpyError, mistake
from crushpy.events import (
    ApprovalDone,
    ApprovalNeeded,
    Event,
    PromptCommitted,
    PromptQueued,
    ReviewNeeded,
    TextDelta,
    TitleChanged,
    TurnEnded,
)
from crushpy.tui import Options
from crushpy.tui.attention import call, set_title
from crushpy.tui.commands import COMMANDS, by_slash
from crushpy.tui.feed import Feed
from crushpy.tui.items import Item, ItemAction, NoticeItem, SeamItem
from crushpy.tui.screens.showing import Showing
from crushpy.tui.status import Status
from crushpy.tui.transcript.view import Transcript
from crushpy.tui.typed import app_of
from crushpy.tui.visiting import Home
from crushpy.tui.welcome import Welcome
from crushpy.tui.widgets.approval import ApprovalPanel
from crushpy.tui.widgets.keybar import KeyBar
from crushpy.tui.widgets.prompt import CommandHint, PromptInput
from crushpy.tui.widgets.queue import QueueView
from crushpy.tui.widgets.statusbar import StatusBar

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.library import Library
    from crushpy.settings import Settings
    from crushpy.tui.shell import OwnCommands

log = logging.getLogger(__name__)

T = TypeVar("T")

WARM_UP = 0.7
"""Seconds until storage is loaded: it must not compete with a prompt that comes at once."""
QUIT_AGAIN = 2.0
"""Seconds within which a second Ctrl-C leaves."""
AT_ANY_TIME = ("quit", "help")
"""Commands that need not wait for the engine."""
NOT_OPEN = "No conversation is open: mend what is said above, then /new tries again."


class ChatScreen(Showing):
    """`conversation` is None until the engine is loaded; prompts sent before that wait for it."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; }
    ChatScreen Transcript { height: 1fr; }
    ChatScreen.-cramped PromptInput { max-height: 1; }
    ChatScreen.-cramped QueueView { max-height: 0; }
    ChatScreen KeyBar { dock: none; display: none; max-height: 2; }
    ChatScreen.-reading KeyBar { display: block; }
    """
    BINDINGS = [
        Binding("escape", "interrupt", "Back, interrupt"),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("ctrl+end", "to_end", "To the end", show=False),
    ]

    class Opened(Message):
        """A conversation is open, with these settings."""

        def __init__(self, settings: "Settings") -> None:
            super().__init__()
            self.settings = settings

    def __init__(self, options: Options, typed: str = "") -> None:
        super().__init__()
        self.options = options
        self._typed = typed
        self.conversation: Conversation | None = None
        self._early: list[str] = []
        self._tried = asyncio.Event()
        """Set once the engine is there, or is known not to come."""
        self.own: OwnCommands | None = None
        """The user's own commands, once there was one."""
        self._last_interrupt = 0.0
        self.folded = True
        self.farewell = ""
        """Printed when the app has gone: how to resume."""
        self.transcript = Transcript()
        self._welcome = Welcome(self.transcript)
        self.prompt = PromptInput(commands=_hints())
        self.queue = QueueView()
        self._home = self.transcript.home = self.queue.home = Home(self, self.prompt, self._question)

    def say(self, text: str, *, warning: bool = False) -> None:
        """A word to the user, in the flow."""
        self.feed.show(NoticeItem(text, "warning" if warning else "info"))

    async def show(self, screen: Screen[T]) -> T | None:
        """Opens a screen and waits for what it returns. Only from a worker."""
        return await app_of(self).push_screen_wait(screen)

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield KeyBar()
        yield self.queue
        yield self.prompt
        yield StatusBar()

    def on_mount(self) -> None:
        self.feed = Feed(self.transcript, reach="Tab first, or click")
        self.status = Status(self.query_one(StatusBar))
        self.prompt.focus()
        self.prompt.feed_keys(self._typed)
        self.call_after_refresh(lambda: self.run_worker(self.open(self.options)))

    # --- the conversation --------------------------------------------------------------------------------

    async def open(self, options: Options) -> None:
        """Loads the engine and opens a conversation; failures are shown, and the app stays up."""
        from crushpy.tui.opening import open_conversation

        try:
            conversation, notices = await open_conversation(options)
        except Exception as error:
            self.feed.fail(error)
            self._tried.set()
            return
        await self.show_history(conversation)
        for notice in notices:
            self.feed.show(NoticeItem(notice, "warning"))
        self._welcome.greet(conversation)
        conversation.subscribe(self._hear)
        self.conversation = conversation
        self.post_message(self.Opened(conversation.settings))
        self.set_timer(WARM_UP, conversation.warm_up)
        if not self.prompt.prompts.loaded:
            self.set_timer(WARM_UP, lambda: self.run_worker(self._recall(conversation)))
        self.status.follow(conversation, yolo=options.yolo)
        for text in self._early:
            conversation.submit(text)
        self._early.clear()
        self._tried.set()

    async def _recall(self, conversation: "Conversation") -> None:
        """Brings the earlier prompts of this folder, for Up and Down."""
        self.prompt.prompts.load(await conversation.earlier_prompts())

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the session at the tip anew, with what is stored of the fresh start it begins with."""
        seam = None
        if conversation.info.parent_id:
            with suppress(CrushpyError):
                seam = await conversation.library.seam(conversation.info.id)
        self.feed.load(conversation.history, seam)

    def _hear(self, event: Event) -> None:
        """Every event of the engine, in order."""
        self.feed.hear(event)
        self.status.hear(event)
        if type(event) is TextDelta:
            return
        match event:
            case ApprovalNeeded():
                self.mount(ApprovalPanel(event), before=self.prompt)
                call(app_of(self), f"crushpy asks: {event.name}")
            case ApprovalDone():
                for panel in self.query(ApprovalPanel):
                    panel.remove()
                self.prompt.focus()
            case ReviewNeeded():
                self.run_worker(self._review(event))
            case PromptQueued() | PromptCommitted():
                self._show_queue()
                self._name_window()
            case TurnEnded():
                self._show_queue(waiting=event.status != "done")
                self._name_window(busy=False)
                if event.status != "interrupted":
                    call(app_of(self), "crushpy is done")
            case TitleChanged():
                self._name_window()
            case _:
                pass

    def _show_queue(self, *, waiting: bool | None = None) -> None:
        """`waiting`: what is queued goes out with the next Enter, as it does while no turn runs."""
        conversation = self.conversation
        if conversation is not None:
            queued = [(one.id, one.text) for one in conversation.queue]
            waiting = not conversation.busy if waiting is None else waiting
            if not queued and self.queue.has_focus:
                self._home.come_back()
            self.queue.show(queued, waiting=waiting)

    def _name_window(self, *, busy: bool | None = None) -> None:
        conversation = self.conversation
        if conversation is not None:
            mark = "● " if (conversation.busy if busy is None else busy) else ""
            set_title(app_of(self), f"{mark}{conversation.info.title or 'crushpy'}")

    # --- what the user types -----------------------------------------------------------------------------

    @on(PromptInput.Submitted)
    def _submitted(self, event: PromptInput.Submitted) -> None:
        if self.conversation is None:
            self._early.append(event.text)
            if self._tried.is_set():
                self.say(f"{NOT_OPEN} Your prompt is kept until then.", warning=True)
            return
        self.transcript.following = True
        self.conversation.submit(event.text)
        self._show_queue()

    @on(PromptInput.EmptySubmitted)
    def _send_queue(self) -> None:
        if self.conversation is not None and self.conversation.send_queued():
            self._show_queue()

    @on(PromptInput.Command)
    def _command(self, event: PromptInput.Command) -> None:
        command = by_slash(event.name)
        if command is None:
            self.notify(
                f"There is no command /{event.name}. /help lists them.", severity="warning", markup=False
            )
            return
        self.run_worker(self.perform(command.action, event.args))

    @on(PromptInput.Shell)
    def _shell(self, event: PromptInput.Shell) -> None:
        from crushpy.tui.shell import OwnCommands

        self.own = self.own or OwnCommands(self.transcript, Path(self.options.cwd))
        self.own.run(event.command)

    @on(QueueView.Edit)
    def _edit_queued(self, event: QueueView.Edit) -> None:
        text = self.conversation.unqueue(event.prompt_id) if self.conversation else None
        if text is not None:
            self.prompt.take_back(text)
            self.prompt.focus()
        self._show_queue()

    @on(QueueView.Remove)
    def _remove_queued(self, event: QueueView.Remove) -> None:
        if self.conversation is not None:
            self.conversation.unqueue(event.prompt_id)
        self._show_queue()

    @on(ApprovalPanel.TypedEarly)
    def _typed_early(self, event: ApprovalPanel.TypedEarly) -> None:
        self.keep(event.letter)

    def keep(self, typed: str) -> None:
        """Takes what was meant for the draft when something else came up; it is never sent by this."""
        if typed == "\x7f":
            self.prompt.action_delete_left()
        else:
            self.prompt.paste_text(typed)

    @on(ApprovalPanel.Answered)
    def _answered(self, event: ApprovalPanel.Answered) -> None:
        from crushpy.tui.opening import answer

        if self.conversation is not None:
            answer(self.conversation, event.call_id, event.kind, event.words)

    def _question(self) -> ApprovalPanel | None:
        return next(iter(self.query(ApprovalPanel)), None)

    def on_key(self, event: events.Key) -> None:
        """Keys that come while nothing has the focus belong to the prompt."""
        if self.focused is None and self._home.take(event):
            event.stop()

    # --- what the user does in the transcript ------------------------------------------------------------

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        """Its keys are named while it has the focus."""
        self.set_class(self.focused is self.transcript, "-reading")

    @on(Transcript.Scrolled)
    def _scrolled(self, event: Transcript.Scrolled) -> None:
        self.status.set_below(event.more_below)

    @property
    def library(self) -> "Library | None":
        return self.conversation.library if self.conversation is not None else None

    async def act(self, item: Item, action: ItemAction) -> None:
        """What a seam card offers."""
        if action == "undo" and isinstance(item, SeamItem) and self.conversation is not None:
            if item.child_id != self.conversation.info.id:
                self.say(
                    "This is not the last fresh start. The lineage (l) can undo any of them.", warning=True
                )
                return
            await self.perform("undo_boundary")
        else:
            await self.perform("edit_template" if action == "edit_template" else "lineage")

    # --- keys --------------------------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Wherever the focus is, Esc stops what runs and brings the focus home."""
        if not self._stop() and self.prompt.has_focus and self.conversation is not None:
            self._welcome.dismiss(self.conversation)
        self._home.come_back()

    def _stop(self) -> bool:
        """Stops the agent and the user's own commands; False where nothing runs."""
        own = self.own is not None and self.own.stop()
        return (self.conversation is not None and self.conversation.interrupt()) or own

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
        if self._stop():
            self._last_interrupt = now
            return
        if self.prompt.draft:
            self.prompt.draft = ""
            self._last_interrupt = now
            return
        if now - self._last_interrupt < QUIT_AGAIN:
            self.run_worker(self.leave())
            return
        self._last_interrupt = now
        self.notify("Press Ctrl+C again to leave.", timeout=QUIT_AGAIN, markup=False)

    def show_way_back(self, conversation: "Conversation | None") -> None:
        """What to print once the app is gone."""
        if conversation is not None and conversation.history:
            self.farewell = f"To resume: crushpy --session {conversation.info.id}"

    async def leave(self) -> None:
        """Ends what runs, stores what is left, and goes."""
        conversation, self.conversation = self.conversation, None
        self.show_way_back(conversation)
        closing = [one.close() for one in (conversation, self.own) if one is not None]
        try:
            await asyncio.wait_for(asyncio.gather(*closing), 10)
        except TimeoutError:
            pass
        app_of(self).exit()

    async def replace_conversation(self, options: Options) -> None:
        """Closes this conversation and opens another one in its place."""
        conversation, self.conversation = self.conversation, None
        if conversation is not None:
            await conversation.close()
        self._tried.clear()
        self.queue.show([])
        self.feed.clear()
        await self.open(options)

    # --- commands ----------------------------------------------------------------------------------------

    async def perform(self, action: str, argument: str = "") -> None:
        """Carries out a command of the table; its code is in `actions/`, loaded when first used."""
        from crushpy.tui.actions import ACTIONS

        if action not in AT_ANY_TIME:
            await self._tried.wait()
        try:
            await ACTIONS[action](self, argument)
        except Exception as error:  # a bug in one command must not end the whole app
            log.exception("%s failed", action)
            self.feed.fail(error if isinstance(error, CrushpyError) else mistake(error))

    async def _review(self, event: ReviewNeeded) -> None:
        from crushpy.tui.screens.review import ReviewScreen

        verdict = await self.show(ReviewScreen(event, self.keep))
        if self.conversation is not None and verdict is not None:
            self.conversation.review(event.id, verdict)


def _hints() -> list[CommandHint]:
    return [CommandHint(one.slash, one.title, one.argument) for one in COMMANDS if one.slash]
