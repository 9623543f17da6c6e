"""The chat screen: shows the engine's events and passes the user's input to it."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.message import Message

from crushpy.core.app_commands import by_slash
from crushpy.core.errors import CrushpyError
from crushpy.core.events import (
    ApprovalDone,
    ApprovalNeeded,
    Event,
    ModeChanged,
    PlanReady,
    PromptCommitted,
    PromptQueued,
    ReviewNeeded,
    TaskProgress,
    TextDelta,
    TitleChanged,
    TodosChanged,
    TurnEnded,
)
from crushpy.core.start_options import StartOptions
from crushpy.engine.event_bus import unexpected_error
from crushpy.security.sanitize import one_line
from crushpy.tui.attaching import Attaching
from crushpy.tui.greeting import LEAST_ROWS, GreetingCard, Welcome
from crushpy.tui.items import BoundaryItem, ItemAction, NoticeItem, TranscriptItem
from crushpy.tui.notify import call_attention, dismiss_toasts, set_title
from crushpy.tui.screens.chat_layout import ChatLayout
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.activity_line import ActivityLine
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueuedPrompt, QueueView

if TYPE_CHECKING:
    from crushpy.core.messages import Image
    from crushpy.core.messages import Message as PromptMessage
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.settings import Settings
    from crushpy.tui.transcript_presenter import FoundPlace
    from crushpy.tui.widgets.approval import ApprovalPanel
    from crushpy.tui.widgets.plan_card import PlanCard

log = logging.getLogger(__name__)

WARM_UP_DELAY_S = 0.7
"""Delay until storage is loaded: it must not compete with a prompt that is sent at once."""
LAST_CONVERSATION_DELAY_S = 0.3
"""Delay before the hint about the previous conversation."""
CLOSE_TIMEOUT_S = 10
ENGINE_FREE_ACTIONS = ("quit", "help", "redraw", "theme", "fold_all")
"""Commands that do not wait for the engine."""
NOT_OPEN = "No conversation is open. Fix the error above, then run /new."


class ChatScreen(ChatLayout):
    """`conversation` is None until the engine is loaded; prompts sent before that wait for it."""

    class Ready(Message):
        """The prompt has the keys typed before it was shown, and accepts keys."""

    class Opened(Message):
        """A conversation is open, with these settings."""

        def __init__(self, settings: "Settings") -> None:
            super().__init__()
            self.settings = settings

    def __init__(self, options: StartOptions, typed: str = "", images: "tuple[Image, ...]" = ()) -> None:
        """`images` go with the first prompt."""
        super().__init__()
        self.options = options
        self._typed = typed
        self._images = images
        self.conversation: Conversation | None = None
        self.attaching = Attaching(self, options.cwd)
        self._early: list[tuple[str, tuple[Image, ...]]] = []
        if options.prompt:
            self._early.append((options.prompt, images))
            self._images = ()
        self._tried = asyncio.Event()
        """Set once the engine is loaded or has failed to load."""
        self.own: OwnCommands | None = None
        """The user's shell commands, after the first one."""
        self.recent_actions: list[str] = []
        """Commands by their action, the latest first."""
        self.farewell = ""
        """Printed after exit: how to resume."""
        self._welcome = Welcome(self.transcript)
        self._greeting = GreetingCard(self.transcript)

    def on_mount(self) -> None:
        self.prompt.focus()
        self.attaching.given(self._images)
        self.prompt.feed_keys(self._typed)
        self.post_message(self.Ready())  # arrives after the focus request
        self.call_after_refresh(lambda: self.run_worker(self.open(self.options)))

    # --- the conversation --------------------------------------------------------------------------------

    async def open(self, options: StartOptions) -> None:
        """Loads the engine and opens a conversation; failures are shown, and the app stays up."""
        from crushpy.tui.engine_access import open_for_app

        try:
            opened = await open_for_app(options)
        except Exception as error:
            self._tried.set()
            self.run_worker(self._could_not_open(options, error))
            return
        await self._enter(*opened, options)

    async def _could_not_open(self, options: StartOptions, error: Exception) -> None:
        from crushpy.tui.actions.sessions import is_open_elsewhere, start_elsewhere

        if is_open_elsewhere(error):
            self._give_back()
            await start_elsewhere(self, options, error)
        else:
            self.feed.fail(error)

    def _give_back(self) -> None:
        """Returns prompts that were sent before the engine was loaded to the prompt."""
        for text, images in reversed(self._early):
            self.prompt.take_back(text)
            self.attaching.given(images)
        self._early.clear()

    async def _enter(
        self, conversation: "Conversation", notices: tuple[str, ...], options: StartOptions
    ) -> None:
        """Shows a conversation that was opened."""
        await self.show_history(conversation)
        self._greet(conversation)
        for notice in notices:
            self.feed.show(NoticeItem(notice, "warning"))
        await self._tell_of_tasks(conversation)
        self._welcome.greet(conversation)
        conversation.subscribe(self._hear)
        self.conversation = conversation
        self.prompt.edit_like(conversation.settings.editing)
        self.post_message(self.Opened(conversation.settings))
        conversation.expect_prompt()
        self.set_timer(WARM_UP_DELAY_S, conversation.warm_up)
        if not self.prompt.prompts.loaded:
            self.set_timer(WARM_UP_DELAY_S, lambda: self.run_worker(self._recall(conversation)))
        self.todos.show(conversation.info.todos)
        self.status.follow(conversation, yolo=options.yolo)
        for text, images in self._early:
            conversation.submit(text, images)
        self._early.clear()
        self._tried.set()
        if options.pick:
            self.run_worker(self.perform("sessions"))
        if conversation.plan is not None:
            self._offer_plan()

    async def _tell_of_tasks(self, conversation: "Conversation") -> None:
        if not conversation.history:
            return
        from crushpy.tui.greeting import unfinished_list

        with suppress(CrushpyError):
            if told := await unfinished_list(conversation, self.transcript.size.width):
                self.feed.show(told)

    def _greet(self, conversation: "Conversation") -> None:
        """The card of a new conversation, if there is room for it."""
        rows = app_of(self).size.height
        if conversation.history or self._early or rows < LEAST_ROWS:
            return
        from crushpy.tui.engine_access import greeting_for, last_here

        async def add_last() -> None:
            """Opens storage, so it runs in the background: a prompt sent at once goes first."""
            await asyncio.sleep(LAST_CONVERSATION_DELAY_S)
            self._greeting.add_last(await last_here(conversation), app_of(self).size.height)

        self._greeting.show(greeting_for(conversation), rows)
        self.run_worker(add_last(), group="greeting", exclusive=True)

    def say(self, text: str, *, warning: bool = False) -> None:
        self._greeting.end()
        super().say(text, warning=warning)

    def on_resize(self) -> None:
        self._greeting.fit(app_of(self).size.height)

    async def _recall(self, conversation: "Conversation") -> None:
        """Loads the earlier prompts of this folder, for Up and Down."""
        self.prompt.prompts.load(await conversation.earlier_prompts())

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the latest session, with the boundary that opened it."""
        opening = None
        if conversation.info.parent_id:
            with suppress(CrushpyError):
                opening = await conversation.sessions.opening_boundary(conversation.info.id)
        notes = conversation.timeline_notes
        self.feed.load(conversation.history, opening, conversation.sent_states, notes)

    def _hear(self, event: Event) -> None:
        """Every event of the engine, in order."""
        self.feed.hear(event)
        self.status.hear(event)
        self.activity.hear(event)
        if type(event) is TextDelta:
            return
        match event:
            case ApprovalNeeded():
                from crushpy.tui.widgets.approval import ApprovalPanel

                self.add_class("-asking")
                self.mount(ApprovalPanel(event, self.transcript.current_palette), before=self.prompt)
                call_attention(app_of(self), f"crushpy asks: {event.name}")
            case ApprovalDone():
                self.remove_class("-asking")
                for panel in self.query("ApprovalPanel"):
                    panel.remove()
                self.prompt.focus()
            case ReviewNeeded():
                self.run_worker(self._review(event))
            case PlanReady():
                self._offer_plan()
                call_attention(app_of(self), "crushpy has a plan")
            case ModeChanged() if event.mode != "plan":
                self._drop_plan()
            case PromptQueued() | PromptCommitted():
                self._greeting.end()
                self._drop_plan()
                self._show_queue()
                self._name_window()
            case TurnEnded():
                self._show_queue(waiting=event.status != "done")
                self._name_window(busy=False)
                if event.status != "interrupted":
                    call_attention(app_of(self), "crushpy is done")
            case TitleChanged():
                self._name_window()
            case TaskProgress():
                self._task_went_on(event)
            case TodosChanged():
                self.todos.show(event.todos)
            case _:
                pass

    def _show_queue(self, *, waiting: bool | None = None) -> None:
        """`waiting`: queued prompts are sent with the next Enter, as always while no turn runs."""
        conversation = self.conversation
        if conversation is not None:
            queued = [
                QueuedPrompt(one.id, one.text + _pictures(one), conversation.is_next(one.id))
                for one in conversation.queue
            ]
            waiting = not conversation.busy if waiting is None else waiting
            if not queued and self.queue.has_focus:
                self.focus_controller.return_focus()
            self.queue.show(queued, waiting=waiting)

    def _name_window(self, *, busy: bool | None = None) -> None:
        conversation = self.conversation
        if conversation is not None:
            mark = "● " if (conversation.busy if busy is None else busy) else ""
            set_title(app_of(self), f"{mark}{conversation.info.title or 'crushpy'}")

    # --- the prompt --------------------------------------------------------------------------------------

    @on(PromptInput.Submitted)
    def _submitted(self, event: PromptInput.Submitted) -> None:
        self.attaching.when_read(lambda: self._submit(event.text))

    def _submit(self, text: str) -> None:
        dismiss_toasts(self)
        images = self.attachments.take()
        if self.conversation is None:
            self._early.append((text, images))
            if self._tried.is_set():
                self.say(f"{NOT_OPEN} Your prompt is kept.", warning=True)
            return
        self.transcript.following = True
        self.conversation.submit(text, images)
        self._show_queue()

    @on(PromptInput.Changed)
    def _typing(self) -> None:
        self.attaching.mentioned(self.prompt.draft)
        if self.conversation is not None:
            self.conversation.expect_prompt()

    @on(PromptInput.EmptySubmitted)
    def _submitted_nothing(self) -> None:
        """Sends an image without text; without an image, the queued prompts."""
        self.attaching.when_read(lambda: self._submit("") if self.attachments.images else self._send_queue())

    def _send_queue(self) -> None:
        if self.conversation is not None and self.conversation.send_queued():
            self._show_queue()

    @on(PromptInput.EditingChanged)
    def _editing_changed(self, event: PromptInput.EditingChanged) -> None:
        self.status.set_editing(event.word)

    @on(PromptInput.Dropped)
    def _dropped(self, event: PromptInput.Dropped) -> None:
        self.attaching.dropped(event.text)

    @on(PromptInput.ClipboardAsked)
    def _clipboard_asked(self) -> None:
        self.attaching.clipboard()

    @on(PromptInput.BackedOut)
    def _backed_out(self) -> None:
        self.attachments.remove_last()

    @property
    def open_conversation(self) -> "Conversation":
        assert self.conversation is not None
        return self.conversation

    async def opened_conversation(self) -> "Conversation | None":
        """Waits until the engine is loaded or has failed to load."""
        await self._tried.wait()
        return self.conversation

    @on(PromptInput.Command)
    def _command(self, event: PromptInput.Command) -> None:
        command = by_slash(event.name)
        if command is None:
            self.notify(
                f"There is no command /{event.name}. /help lists all commands.",
                severity="warning",
                markup=False,
            )
            return
        self.run_worker(self.perform(command.action, event.args))

    @on(PromptInput.Shell)
    def _shell(self, event: PromptInput.Shell) -> None:
        from crushpy.engine.user_commands import OwnCommands
        from crushpy.tui.user_command_blocks import run_shown

        dismiss_toasts(self)
        self._greeting.end()
        self.own = self.own or OwnCommands(Path(self.options.cwd))
        shared = event.command.startswith("!")
        give = self._give_to_agent if shared else None
        command = event.command.removeprefix("!").strip() if shared else event.command
        run_shown(self.own, command, self.transcript, self.activity.own_command, give)

    def _give_to_agent(self, text: str) -> None:
        """Puts the output of a user's command into the prompt, to be sent to the agent."""
        self.prompt.paste_text(text)

    @on(QueueView.Edit)
    def _edit_queued(self, event: QueueView.Edit) -> None:
        conversation = self.conversation
        waiting = [one for one in conversation.queue if one.id == event.prompt_id] if conversation else []
        if conversation is not None and conversation.unqueue(event.prompt_id) is not None:
            self.take_back(waiting[0])
            self.prompt.focus()
        self._show_queue()

    def take_back(self, prompt: "PromptMessage") -> None:
        """Puts a prompt that was not sent, and its images, in front of the draft."""
        if prompt.text:
            self.prompt.take_back(prompt.text)
        self.attaching.restore(prompt)

    @on(QueueView.SendNext)
    def _send_queued_next(self, event: QueueView.SendNext) -> None:
        if self.conversation is not None:
            self.conversation.send_next(event.prompt_id)
        self._show_queue()

    @on(QueueView.Remove)
    def _remove_queued(self, event: QueueView.Remove) -> None:
        if self.conversation is not None:
            self.conversation.unqueue(event.prompt_id)
        self._show_queue()

    # Handlers by name: the panel's module is loaded with the first question.

    def on_approval_panel_typed_early(self, event: "ApprovalPanel.TypedEarly") -> None:
        self.keep(event.letter)

    def on_approval_panel_answered(self, event: "ApprovalPanel.Answered") -> None:
        from crushpy.tui.engine_access import answer

        if self.conversation is not None:
            answer(self.conversation, event.call_id, event.choice.kind, event.words, event.choice.key)

    # --- the plan ----------------------------------------------------------------------------------------

    def _offer_plan(self) -> None:
        from crushpy.tui.widgets.plan_card import PlanCard

        if not self.query("PlanCard"):
            self.mount(PlanCard(), before=self.queue)

    def _drop_plan(self) -> None:
        for card in self.query("PlanCard"):
            if card.has_focus:
                self.prompt.focus()
            card.remove()

    def on_plan_card_typed(self, event: "PlanCard.Typed") -> None:
        self.prompt.focus()
        self.keep(event.letter)

    async def on_plan_card_decided(self, event: "PlanCard.Decided") -> None:
        if event.choice == "back":
            self.prompt.focus()
            return
        self._drop_plan()
        if self.conversation is not None and event.choice in ("ask", "edits"):
            await self.conversation.accept_plan("ask" if event.choice == "ask" else "edits")

    # --- the transcript ----------------------------------------------------------------------------------

    @property
    def library(self) -> "SessionBrowser | None":
        return self.conversation.sessions if self.conversation is not None else None

    def read_session(self, library: "SessionBrowser", session_id: str) -> None:
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        def left(branch: str | None) -> None:
            if branch:
                from crushpy.tui.actions.sessions import resume

                self.run_worker(resume(self, branch))

        app_of(self).push_screen(SessionReaderScreen(library, session_id), left)

    def reveal(self, place: "FoundPlace") -> bool:
        """Scrolls to a message in the transcript; False if it is not there."""
        history = self.conversation.history if self.conversation is not None else ()
        message = next((one for one in history if one.id == place.message_id), None)
        key = self.feed.find(message, place.words) if message is not None else -1
        if key < 0:
            return False
        self.transcript.interaction.reveal(key, place.words)
        return True

    async def fork_at(self, key: int) -> None:
        from crushpy.tui.actions.sessions import fork_here

        await fork_here(self, self.feed.message_id(key))

    async def act(self, item: TranscriptItem, action: ItemAction) -> None:
        """The actions of a boundary's card, and pinning."""
        if action == "pin":
            from crushpy.tui.actions.context import pin_item

            await pin_item(self, item)
        elif action == "undo" and isinstance(item, BoundaryItem) and self.conversation is not None:
            if item.child_id != self.conversation.info.id:
                self.say(
                    "This is not the last compaction. The session tree (l) can undo any of them.",
                    warning=True,
                )
                return
            await self.perform("undo_boundary")
        else:
            await self.perform(action if action in ("edit_template", "glossary") else "lineage")

    def _task_went_on(self, event: TaskProgress) -> None:
        """Refreshes the screen that shows the task's session."""
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        for screen in app_of(self).screen_stack:
            if isinstance(screen, SessionReaderScreen):
                screen.refresh_session(event.session_id)

    @on(ActivityLine.Opened)
    def _open_task(self, event: ActivityLine.Opened) -> None:
        if self.library is not None:
            self.read_session(self.library, event.session_id)

    def rewind(self) -> None:
        self.run_worker(self.perform("rewind"))

    # --- stopping and leaving ----------------------------------------------------------------------------

    def tidy(self) -> bool:
        """Removes the welcome and all toasts."""
        told = super().tidy()
        return (self.conversation is not None and self._welcome.dismiss(self.conversation)) or told

    def stop(self) -> bool:
        """Stops the agent and the user's own commands; False if nothing runs."""
        own = self.own is not None and self.own.stop()
        return (self.conversation is not None and self.conversation.interrupt()) or own

    def show_way_back(self, conversation: "Conversation | None") -> None:
        """Sets what is printed after exit."""
        if conversation is not None and conversation.history:
            self.farewell = f"To resume: crushpy --session {conversation.info.id}"
        for job in conversation.running_jobs if conversation is not None else ():
            self.farewell = f"{self.farewell}\nStopped: {job.id}, {one_line(job.command)}".lstrip()

    async def leave(self) -> None:
        """Stops everything, stores the rest, and exits."""
        conversation, self.conversation = self.conversation, None
        self.show_way_back(conversation)
        closing = [one.close() for one in (conversation, self.own) if one is not None]
        try:
            await asyncio.wait_for(asyncio.gather(*closing), CLOSE_TIMEOUT_S)
        except TimeoutError:
            pass
        if conversation is not None and self.farewell and conversation.run_summary:
            self.farewell += f"\n{conversation.run_summary}"
        app_of(self).exit()

    async def replace_conversation(self, options: StartOptions) -> None:
        """Opens another conversation, then closes this one; raises if it cannot be opened."""
        from crushpy.tui.engine_access import open_for_app

        before, self.conversation = self.conversation, None
        self._tried.clear()
        try:
            conversation, notices = await open_for_app(options)
        except BaseException:
            self.conversation = before
            self._give_back()
            self._tried.set()
            raise
        if before is not None:
            await before.close()
            await conversation.reacquire_lease()
        self._drop_plan()
        self.queue.show([])
        self.activity.clear()
        self.todos.show(())
        self.feed.clear()
        await self._enter(conversation, notices, options)

    # --- commands ----------------------------------------------------------------------------------------

    async def perform(self, action: str, argument: str = "") -> None:
        """Runs a command of the table. The functions are in `actions/`, loaded on first use."""
        from crushpy.tui.actions import ACTIONS

        dismiss_toasts(self)
        self.recent_actions = [action, *(one for one in self.recent_actions if one != action)]
        greeted, shown = self._greeting.key, self.transcript.keys()
        if action not in ENGINE_FREE_ACTIONS:
            await self._tried.wait()
            if self.conversation is None and action != "new_conversation":
                self.say(NOT_OPEN, warning=True)
                return
        try:
            await ACTIONS[action](self, argument)
        except Exception as error:  # a bug in one command must not end the whole app
            log.exception("%s failed", action)
            self.feed.fail(error if isinstance(error, CrushpyError) else unexpected_error(error))
        if self._greeting.key == greeted and self.transcript.keys() != shown:  # unless a dialog was cancelled
            self._greeting.end()

    async def _review(self, event: ReviewNeeded) -> None:
        from crushpy.tui.screens.summary_review import ReviewScreen

        verdict = await self.show(ReviewScreen(event, self.keep))
        if self.conversation is not None and verdict is not None:
            self.conversation.context.review(event.id, verdict)


def _pictures(prompt: "PromptMessage") -> str:
    return "".join(f" [{image.name}]" for image in prompt.images)
