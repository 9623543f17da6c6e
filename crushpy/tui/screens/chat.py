"""The chat screen: shows the engine's events and passes the user's input to it."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message

from crushpy.core.app_commands import BY_ACTION, AppCommand, by_slash
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Json, ToolCall
from crushpy.core.paths import Paths
from crushpy.core.start_options import StartOptions
from crushpy.engine.event_bus import unexpected_error
from crushpy.security.private_files import read_stored, update_stored
from crushpy.tui.attaching import Attaching
from crushpy.tui.chat_events import ChatEvents
from crushpy.tui.first_frame import FirstFrame
from crushpy.tui.items import BoundaryItem, ItemAction, TranscriptItem
from crushpy.tui.notify import dismiss_toasts, tell
from crushpy.tui.screens.chat_host import ChatHost
from crushpy.tui.terminal.early_terminal import EarlyTerminal
from crushpy.tui.textual_adapter import BackgroundReported, app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView

if TYPE_CHECKING:
    from crushpy.core.messages import Image
    from crushpy.core.messages import Message as PromptMessage
    from crushpy.engine.conversation import Conversation
    from crushpy.settings.schema import Settings

log = logging.getLogger(__name__)

MIN_ROWS_FOR_ACTIVITY = 20
"""Terminal rows from which the activity line always has a row above the prompt."""
WARM_UP_DELAY_S = 0.7
"""Delay until storage is loaded: it must not compete with a prompt that is sent at once."""
ENGINE_FREE_ACTIONS = ("quit", "help", "redraw", "theme", "fold_all")
"""Commands that do not wait for the engine."""
NOT_OPEN = "No conversation is open. Fix the error above, then press Ctrl+N (/new)."


class ChatScreen(ChatHost):
    """`conversation` is None until the engine is loaded; prompts sent before that wait for it."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; overflow: hidden; }
    ChatScreen #prompt-box { height: auto; background: $surface; }
    ChatScreen.-cramped #prompt-box { max-height: 1; }
    ChatScreen.-cramped ContextStrip { display: none; }
    ChatScreen.-cramped QueueView { max-height: 0; }
    ChatScreen.-cramped AttachmentList { max-height: 1; }
    ChatScreen.-cramped ActivityLine { max-height: 0; }
    ChatScreen.-cramped TodoLine { max-height: 0; }
    ChatScreen KeyBar { dock: none; display: none; max-height: 2; }
    ChatScreen.-reading KeyBar { display: block; }
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

    @dataclass
    class Opened(Message):
        """A conversation is open, with these settings."""

        settings: "Settings"

    def __init__(
        self, options: StartOptions, terminal: EarlyTerminal, images: "tuple[Image, ...]" = ()
    ) -> None:
        """`terminal` has the first keys of the prompt; `images` go with it."""
        super().__init__(options)
        self._terminal = terminal
        self.first_frame = FirstFrame(self, terminal.frame)
        self._images = images
        self.events = ChatEvents(self)
        self.attaching = Attaching(self)
        self._early: list[tuple[str, tuple[Image, ...], tuple[str, ...]]] = []
        if options.prompt and not options.prompt.startswith("/"):
            self._early.append((options.prompt, images, ()))
            self._images = ()
        self.further_commands: Sequence[AppCommand] = ()
        """Those of files and of MCP servers."""
        self.recent_actions = read_stored(Paths().recent_commands, list[str]) or []
        """Commands by their action, the latest first, also of earlier starts."""
        self._undo_asked = ""
        """The compaction that the next `undo` on its card undoes."""

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
        yield self.strip
        with Horizontal(id="prompt-box"):
            yield self.chip
            yield self.prompt
        yield self.bar

    def on_mount(self) -> None:
        self.prompt.focus()
        self.prompt.completer.recent = self.recent_actions
        self.attaching.given(self._images)
        self.status.set(**self.first_frame.status)
        if self.options.prompt.startswith("/"):  # a command, or a path: sent once all commands are known
            self.prompt.draft = self.options.prompt
        typed, light = self._terminal.take_text()
        if light is not None:
            app_of(self).post_message(BackgroundReported(light))
        self.prompt.feed_keys(typed)
        app_of(self).call_later(self._terminal.wanted.set)  # after the focus request
        self.call_after_refresh(self.first_frame.draw)
        self.call_after_refresh(lambda: self.run_worker(self.open(self.options)))

    # --- the conversation --------------------------------------------------------------------------------

    async def open(self, options: StartOptions) -> None:
        """Loads the engine and opens a conversation; failures are shown, and the app stays up."""
        try:
            opened = await _open_conversation(options)
        except Exception as error:
            self.tried.set()
            self.run_worker(self._could_not_open(options, error))
            return
        await self._enter(*opened, options)

    async def _could_not_open(self, options: StartOptions, error: Exception) -> None:
        from crushpy.storage.records import SessionBusy
        from crushpy.tui.actions.sessions import SessionCommands

        self._give_back()
        if isinstance(error, SessionBusy):
            await self._attempt(SessionCommands(self).start_elsewhere(options, error))
        else:
            self.feed.fail(error)

    def _give_back(self) -> None:
        """Returns prompts that were sent before the engine was loaded to the prompt."""
        from crushpy.engine.session.session import user_message

        for prompt in reversed(self._early):
            self.take_back(user_message(*prompt))
        self._early.clear()

    async def _enter(
        self, conversation: "Conversation", notices: tuple[str, ...], options: StartOptions
    ) -> None:
        await self.show_history(conversation)
        if not self._early:
            self.greeter.show_card(conversation)
        self.warn(*notices)
        await self.greeter.show_notices(conversation)
        conversation.subscribe(self.events.hear, self.feed.show_note)
        self.conversation, self.library = conversation, conversation.sessions
        self.prompt.edit_like(conversation.settings.editing)
        attach = conversation.settings.attach
        self.prompt.completer.attach = attach.max_lines, attach.max_tokens
        self.further_commands = conversation.commands.listed()
        self.prompt.add_commands(self.further_commands, conversation.mcp.resources)
        conversation.mcp.answer_with(self._answer_server)
        self.post_message(self.Opened(conversation.settings))
        conversation.prompts.expect()
        self.set_timer(WARM_UP_DELAY_S, conversation.approvals.warm_up)
        if not self.prompt.prompts.loaded:
            recall = partial(self._recall, conversation)
            self.set_timer(WARM_UP_DELAY_S, lambda: self.run_worker(recall))
        self.todos.show(conversation.info.todos)
        self.status.follow(conversation, yolo=options.yolo)
        self.on_resize()
        for text, images, pasted in self._early:
            conversation.submit(text, images, pasted=pasted)
        self._early.clear()
        self.tried.set()
        if options.prompt.startswith("/"):
            self.prompt.action_submit()
        if options.pick:
            self.run_command("sessions")
        if conversation.prompts.plan is not None:
            self.events.offer_plan()

    def on_resize(self) -> None:
        self.greeter.fit_card()
        self.fit_side()

    async def _recall(self, conversation: "Conversation") -> None:
        for text, pasted in (earlier := await conversation.prompts.earlier()).items():
            self.prompt.pastes.note(text, pasted)
        self.prompt.prompts.load(earlier)

    # --- the prompt --------------------------------------------------------------------------------------

    @on(PromptInput.Submitted)
    def _submitted(self, event: PromptInput.Submitted) -> None:
        self.attaching.when_read(lambda: self._submit(event.text, event.pasted, event.after_turn))

    def _submit(self, text: str, pasted: tuple[str, ...] = (), after_turn: bool = False) -> None:
        dismiss_toasts(self)
        images = self.attachments.take()
        if self.conversation is None:
            self._early.append((text, images, pasted))
            if self.tried.is_set():
                self._give_back()
                self.say(NOT_OPEN, warning=True)
            return
        self.transcript.following = True
        self.conversation.submit(text, images, pasted=pasted, after_turn=after_turn)
        self.events.show_queue()

    @on(PromptInput.Changed)
    def _typing(self) -> None:
        if self.prompt.draft:  # an empty prompt that is loaded again is not typing
            self.close_sheet()
        if self.conversation is not None:
            self.conversation.prompts.expect()

    @on(PromptInput.Requested)
    def _requested(self, event: PromptInput.Requested) -> None:
        match event.what:
            case "keys":
                self._show_keys()
            case "send_queue":
                self.attaching.when_read(self._send_queue)
            case "remove_image":
                self.attachments.remove_last()
            case "paste":
                self.attaching.clipboard()
            case "drop":
                self.attaching.dropped(event.text)
            case "editing":
                self.status.set(editing=event.text)

    def _send_queue(self) -> None:
        """Sends an image without text; without an image, the queued prompts, which ends a talking reply."""
        if self.attachments.images:
            self._submit("")
        elif self.conversation is not None:
            prompts = self.conversation.prompts
            if prompts.send_queued() or (self.feed.talking and prompts.send_now()):
                self.events.show_queue()

    async def _answer_server(self, server: str, question: Json) -> Json:
        """Asks before a page that a server names is opened, or before its form is shown."""
        from crushpy.tui.screens.server_form import ServerForm

        conversation, url = self.conversation, str(question.get("url") or "")
        if conversation is None:
            return {"action": "cancel"}
        asked = {"message": str(question.get("message", ""))[:2_000]} | ({"page": url} if url else {})
        title, yes = f"Answer {server}?", "Fill in its form"
        if url:
            title, yes = f"Open a page for {server}?", "Open it"
        call, reason = ToolCall(new_id(), "form", asked), f"The MCP server {server} asks"
        confirm = conversation.approvals.confirm(call, title, reason, yes, "Decline", escape="declines")
        if not await confirm:
            return {"action": "decline"}
        if url:
            app_of(self).open_url(url)
            return {"action": "accept"}
        return await self.run_worker(self.show(ServerForm(server, question))).wait() or {"action": "cancel"}

    @on(PromptInput.Command)
    def _command(self, event: PromptInput.Command) -> None:
        command = by_slash(event.name)
        typed = f"/{event.name} {event.args}"
        action, argument = (command.action, event.args) if command else ("slash", typed)

        async def run() -> None:
            if not await self.perform(action, argument) and event.args and not self.prompt.draft:
                self.prompt.take_back(typed)

        self.run_worker(run())

    @on(PromptInput.Shell)
    def _shell(self, event: PromptInput.Shell) -> None:
        from crushpy.tui.user_command_blocks import CommandBlock

        dismiss_toasts(self)
        self.greeter.end_card()
        shared = event.command.startswith("!")
        give = self.prompt.paste_text if shared else None
        command = event.command.removeprefix("!").strip() if shared else event.command
        CommandBlock(self.transcript, command, self.activity.own_command, give).run(self.own_commands())

    @on(QueueView.Asked)
    def _change_queue(self, event: QueueView.Asked) -> None:
        conversation = self.conversation
        if conversation is None:
            return
        if event.action == "send_next":
            conversation.prompts.send_next(event.prompt_id)
        elif (prompt := conversation.prompts.unqueue(event.prompt_id)) and event.action == "edit":
            self.take_back(prompt)
            self.prompt.focus()
        self.events.show_queue()

    def take_back(self, prompt: "PromptMessage") -> None:
        if prompt.text:
            self.prompt.take_back(prompt.text, prompt.pasted)
        self.attaching.given(prompt.images)

    # --- the transcript ----------------------------------------------------------------------------------

    def action_open_session(self, session_id: str) -> None:
        from crushpy.tui.actions.sessions import SessionCommands
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        def left(chosen: str | None) -> None:
            self.run_worker(self._attempt(SessionCommands(self).resume(chosen)))

        if self.library is not None:
            app_of(self).push_screen(SessionReaderScreen(self.library, session_id), left)

    async def fork_at(self, key: int) -> None:
        from crushpy.tui.actions.sessions import SessionCommands

        await self._attempt(SessionCommands(self).fork_here(self.feed.message_id(key)))

    async def act(self, key: int, item: TranscriptItem, action: ItemAction) -> None:
        """The actions of a boundary's card, and pinning."""
        if action == "pin":
            from crushpy.tui.actions.context import ContextCommands

            await self._attempt(ContextCommands(self).pin_item(item, self.feed.message_id(key)))
        elif action == "undo" and isinstance(item, BoundaryItem):
            await self._attempt(self._undo(item))
        else:
            await self.perform(action if action in ("edit_template", "glossary") else "tree")

    async def _undo(self, card: BoundaryItem) -> None:
        """Undoes exactly the compaction of a card, if it is the last one; the second press does it."""
        from crushpy.tui.actions.context import ContextCommands

        if self.conversation is None:
            return
        last, shown = await self.conversation.context.find_undoable(), card.boundary
        if shown.id != last.id:
            later = "After it a branch has returned. " if last.child_id == shown.child_id else ""
            words = f"This is not the last compaction. {later}The session tree (l) can undo any of them."
            self.say(words, warning=True)
        elif not (dismiss_toasts(self) and self._undo_asked == last.id):
            self._undo_asked = last.id
            tell(
                self,
                "Press u or click again to undo this compaction: the session before it continues where "
                "it ended, this one stays in the session tree, files are not touched.",
            )
        else:
            await ContextCommands(self).undo_compaction_of(last.id)

    @on(Transcript.Scrolled)
    def _scrolled(self, event: Transcript.Scrolled) -> None:
        self.status.set(below=event.more_below)

    # --- focus -------------------------------------------------------------------------------------------

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        reading = self.focused is self.transcript
        if reading and not self.query("KeyBar"):
            from crushpy.tui.widgets.key_bar import KeyBar

            self.mount(KeyBar(), after=self.transcript)
        self.set_class(reading, "-reading")

    def on_key(self, event: events.Key) -> None:
        """Keys pressed while nothing has the focus go to the prompt."""
        if self.focused is None and self.focus_controller.type_in_prompt(event):
            event.stop()

    # --- stopping and leaving ----------------------------------------------------------------------------

    def action_leave_if_empty(self) -> None:
        """Ctrl+D in an empty prompt."""
        if not (self.prompt.draft or self.attachments.images):
            self.run_command("quit")

    def _show_keys(self) -> None:
        """Shows the sheet of keys; if it is shown already, the page of all keys."""
        if self.close_sheet():
            self.run_command("help")
            return
        from crushpy.tui.widgets.key_sheet import KeySheet

        self.key_sheet = KeySheet(self.command_keys)
        self.mount(self.key_sheet, before=self.bar)

    def action_page(self, direction: int) -> None:
        self.transcript.interaction.page(direction)

    def action_to_end(self) -> None:
        self.transcript.following = True

    async def replace_conversation(self, options: StartOptions) -> None:
        """Opens another conversation, then closes this one; raises if it cannot be opened."""
        before, self.conversation = self.conversation, None
        self.tried.clear()
        try:
            conversation, notices = await _open_conversation(options)
        except BaseException:
            self.conversation = before
            self._give_back()
            self.tried.set()
            raise
        if before is not None:
            await before.close()
            await conversation.session.reacquire_lease()
        self.events.drop_plan()
        self.queue.show([])
        self.activity.clear()
        self.todos.show(())
        self.feed.load(())
        await self._enter(conversation, notices, options)

    # --- commands ----------------------------------------------------------------------------------------

    def _rank_first(self, action: str) -> None:
        def rank(actions: list[str]) -> list[str]:
            return [action, *(earlier for earlier in actions if earlier != action)]

        async def store() -> None:
            with suppress(OSError):
                await asyncio.to_thread(update_stored, Paths().recent_commands, list[str], rank)

        self.recent_actions = rank(self.recent_actions)
        self.prompt.completer.recent = self.recent_actions
        self.run_worker(store())

    async def perform(self, action: str, argument: str = "") -> bool:
        """Runs a command of the table; False if it was refused or failed. The functions are in `actions/`,
        loaded on first use."""
        from crushpy.tui.actions import ACTIONS

        dismiss_toasts(self)
        self._undo_asked = ""
        self._rank_first(action)
        greeted, shown = self.greeter.card_key, self.transcript.keys()
        command = BY_ACTION.get(action)
        if command is not None and command.needs_argument and not argument.strip():
            self.say(f"Run /{command.slash} {command.argument}. {command.help}", warning=True)
            return False
        if action not in ENGINE_FREE_ACTIONS:
            await self.tried.wait()
            if self.conversation is None and action != "new_conversation":
                self.say(NOT_OPEN, warning=True)
                return False
        done = await self._attempt(getattr(ACTIONS[action](self), action)(argument))
        changed = self.transcript.keys() != shown  # unless a dialog was cancelled
        if changed and self.greeter.card_key == greeted:
            self.greeter.end_card()
        return done

    async def _attempt(self, command: Awaitable[bool | None]) -> bool:
        """Awaits a command, and shows what it refused or failed at; False if it did."""
        from crushpy.tui.actions.command_group import RefusedCommand

        done: bool | None = False
        try:
            done = await command
        except (RefusedCommand, UsageError) as error:
            self.say(str(error), warning=True)
        except Exception as error:  # a bug in one command must not end the whole app
            log.exception("a command failed")
            self.feed.fail(error if isinstance(error, CrushpyError) else unexpected_error(error))
        if self.conversation is not None:
            self.status.refresh()
        return done is not False


async def _open_conversation(options: StartOptions) -> "tuple[Conversation, tuple[str, ...]]":
    """The conversation that was asked for, and warnings for the user.

    Importing the engine takes a tenth of a second, so that is done in a thread.
    """
    await asyncio.to_thread(import_module, "crushpy.bootstrap.opening")
    from crushpy.bootstrap.opening import open_conversation
    from crushpy.bootstrap.project_environment import ProjectEnvironment

    around = ProjectEnvironment(Path(options.cwd), options.setting_flags())
    conversation = await open_conversation(around, msgspec.structs.replace(options, interactive=True))
    hooks = (f"Hooks: {problem}" for problem in conversation.approvals.hooks.problems)
    return conversation, (*around.loaded.warnings, *hooks, *conversation.files.recovered)
