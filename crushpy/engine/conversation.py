"""One live conversation: the API that every front end uses. Prompts go in, events come out."""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.context.overrides import SentState, sent_states
from crushpy.core.access import Mode
from crushpy.core.app_commands import FORMER_NAMES, by_slash
from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import Error, JobEnded, ModeChanged, Notice, PlanReady, PromptQueued, TurnEnded
from crushpy.core.messages import Image, Message, Note, Usage, headline
from crushpy.core.timeline_notes import TimelineNote
from crushpy.engine.approvals import BY_LEAVING
from crushpy.engine.attachments import Attachments
from crushpy.engine.compaction.context_service import ContextService
from crushpy.engine.compaction.pins_and_rules import RuleService
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.hooks import HookEvent, HookReply
from crushpy.engine.rewind.conversation_files import ConversationFiles
from crushpy.engine.run_slot import QueuedPrompts, RunSlot
from crushpy.engine.runtime import CommandPrompt, Runtime
from crushpy.engine.session.session import OpenBranch, user_message
from crushpy.engine.side_calls import answer_aside, suggest_title
from crushpy.engine.turn.limits import Spent
from crushpy.permissions.decision import ExecutionContext
from crushpy.settings.schema import Settings
from crushpy.storage.records import ConversationEntry, SessionInfo, StorageError
from crushpy.tools.shell.jobs import RunningJob
from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    from crushpy.engine.agents.task_list_service import TaskListService
    from crushpy.engine.session.browser import SessionBrowser

log = logging.getLogger(__name__)

MAX_EARLIER_PROMPTS = 200
PLAN_ACCEPTED = "The plan is accepted. Carry it out."
_COMMAND = re.compile(r"/(\w[\w:-]*)(?!\S)")

TOOLS_CHANGE = "The tools change too: the next request is sent uncached, and earlier thoughts may be lost."


class Conversation:
    """Opened by `bootstrap.open_conversation`. All methods belong to one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        scope, services = runtime.scope, runtime.scope.services
        self._runtime = runtime
        self._emit = runtime.events
        self._session, self._models, self._agent = scope.session, scope.models, runtime.agent
        self._store, self._approvals, self._workspace = services.store, services.approvals, services.workspace
        self._user_settings = services.user_settings
        self._run_slot = RunSlot(runtime.events)
        self.pins = runtime.pins
        self.rules = RuleService(scope, lambda: self.busy)
        self.context = ContextService(runtime.agent, self._run_slot)
        self.files = ConversationFiles(runtime, self._run_slot)
        self.attachments = Attachments(scope)
        self._queue = QueuedPrompts(self.attachments)
        self.hooks = services.approvals.hooks
        """What the user runs at events."""
        self.templates, self.commands, self.mcp = services.templates, runtime.commands, runtime.mcp
        self.subscribe = runtime.events.subscribe
        self.answer, self.save_choice = services.approvals.answer, services.user_settings.save_choice
        self.interrupt = self._run_slot.interrupt
        """Stops the running work; stored data stays, and the queue waits. False if idle."""
        self.is_next, self.send_next = self._queue.is_next, self._queue.send_next
        self._hooks_started = False
        self._used_before = self._session.usage
        self._mode_is_temporary = False
        """The current mode is that of one turn, not the conversation's."""
        self._closed = False
        self._untitled = services.interactive and not self._session.stored
        self._titling: asyncio.Task[None] | None = None
        self.run_summary = ""
        """What this run did and what is left, in a line; set when the conversation is closed."""

    # --- prompts ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._run_slot.busy

    @property
    def failure(self) -> CrushpyError | None:
        """Why the last turn or task list failed."""
        return self._run_slot.failure

    @property
    def queue(self) -> tuple[Message, ...]:
        """Prompts that wait for the end or the next step of the running turn."""
        return self._queue.prompts

    def submit(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        mode: Mode | None = None,
        pasted: Sequence[str] = (),
        model: str = "",
        after_turn: bool = False,
    ) -> None:
        """Starts a turn with `text`, or sends it with the next step of the one that runs, or `after_turn` (or
        as the settings say). `mode` applies to that turn only, unless
        the prompt is queued or the user chooses another mode meanwhile. `pasted` are parts of `text` that are
        not the user's own words. `model` is that of this turn, unless it is queued."""
        prompt = user_message(text, images, pasted)
        self.attachments.begin(prompt)
        if self.busy:
            next_step = self.settings.queue == "step" and not after_turn
            self._queue.add(prompt, next_step=next_step)
            self._emit(PromptQueued(prompt.id, text, tuple(image.info for image in images), next_step))
            return
        self._run_slot.start(self._turn_in(mode, prompt) if mode else self._turn(prompt, model))

    def unqueue(self, prompt_id: str) -> str | None:
        """Removes a queued prompt; its text, or None if it is no longer queued."""
        prompt = self._queue.remove(prompt_id)
        return None if prompt is None else prompt.text

    def send_queued(self) -> bool:
        """Starts the next queued prompt: after an interrupt the queue waits for the user."""
        prompt = None if self.busy else self._queue.pop()
        if prompt is None:
            return False
        self._run_slot.start(self._turn(prompt))
        return True

    async def _steer(self) -> None:
        """Sends queued prompts between two steps of a turn."""

        async def add(prompt: Message) -> None:
            try:
                prompt = await self._with_hooks(prompt)
            except CrushpyError as error:
                self._emit(Notice(error.message, "warning"))
                self._requeue(prompt)  # tried again after the turn; if still blocked, it is returned
                return
            await self._session.add_prompt(prompt, steers=True)

        await self._queue.deliver(add)

    async def _with_hooks(self, prompt: Message) -> Message:
        """The prompt with what hooks add to it. Raises CrushpyError if one blocks it."""
        replies: list[HookReply] = []
        if not self._hooks_started:
            self._hooks_started = True
            source = "resume" if self._session.stored else "startup"
            replies.append(await self.hooks.fire(HookEvent("SessionStart", source, {"source": source})))
        replies.append(await self.hooks.fire(HookEvent("UserPromptSubmit", "", {"prompt": prompt.text})))
        if replies[-1].decision == "deny" or replies[-1].stop:
            raise CrushpyError(f"A hook blocked the prompt: {replies[-1].reason}")
        notes = [Note(reply.context) for reply in replies if reply.context]
        return msgspec.structs.replace(prompt, parts=(*prompt.parts, *notes)) if notes else prompt

    async def ask(self, text: str, images: Sequence[Image] = (), *, pasted: Sequence[str] = ()) -> TurnStatus:
        """Submits `text`, or the prompt that a `/command` stands for, to an idle conversation, and waits
        until that turn has ended. Raises UsageError for an unknown command."""
        command = await self.expand_command(text) if text.startswith("/") else None
        if command is None and (typed := _COMMAND.match(text)) and not Path(typed[0]).exists():
            known = FORMER_NAMES.get(typed[1], typed[1])
            problem = "is a command of the app" if by_slash(known) else "is not a command"
            problem += f", now called /{known}" if known != typed[1] else ""
            raise UsageError(f"{typed[0]} {problem}.", "To send it as a prompt, put a space before it.")
        text, pasted = (command.text, (command.text,)) if command else (text, pasted)
        prompt = user_message(text, images, pasted)
        self.attachments.begin(prompt)
        model = command.model if command else ""
        return await asyncio.shield(self._run_slot.start(self._turn(prompt, model)))

    async def expand_command(self, text: str) -> CommandPrompt | None:
        """The prompt that `/name arguments` stands for; None if there is no such command. Raises UsageError,
        also if it is interrupted."""
        if self.busy:
            return await self.commands.expand(text)
        try:
            return await self._run_slot.start(self.commands.expand(text))
        except asyncio.CancelledError:
            raise UsageError("The command was interrupted and not sent.") from None
        finally:
            self._run_slot.finish()

    async def _turn(self, prompt: Message, model: str = "") -> TurnStatus:
        status: TurnStatus = "error"
        slot = self._run_slot
        slot.failure = None
        session, usual_model = self.info.id, self.info.model
        try:
            if model:
                await self.select_model(model)
            prompt = await self._with_hooks(await self.attachments.complete(prompt))
            spent = self._runtime.subagents.spent = Spent(self._runtime.limits)
            recorder = self._runtime.change_recorder
            turn = self._agent.turn(spent)
            recorder.turn_begins()
            status = await turn.run(prompt, self._steer)
            recorder.turn_ended(self._session.history[-1].id if self._session.history else "")
            slot.failure = turn.failure
        except asyncio.CancelledError:  # while hooks ran
            status = "interrupted"
            self._emit(TurnEnded(status))
        except Exception as error:  # a bug before the turn could begin must be shown
            log.exception("the turn could not begin")
            slot.failure = error if isinstance(error, CrushpyError) else unexpected_error(error)
            self._emit(Error("failed", slot.failure.message, slot.failure.hint))
            self._emit(TurnEnded("error"))
        finally:
            if model:
                await self._session.update(model=usual_model)
                await self._agent.policy.model_replaced()
            slot.finish()
            if status != "done" and session == self.info.id:
                self._requeue(prompt)
            if status == "done":
                if self._untitled:
                    self._untitled = False
                    self._titling = spawn(self._find_title(prompt.text))
                if not self.send_queued() and (plan := self.plan):
                    self._emit(PlanReady(plan.id, plan.text))
        return status

    def _requeue(self, prompt: Message) -> None:
        """Queues a prompt that was not stored, so that the user can send it again or remove it."""
        if self._approvals.interactive and all(message.id != prompt.id for message in self._session.history):
            self._queue.add(prompt, first=True)
            self._emit(PromptQueued(prompt.id, prompt.text, tuple(image.info for image in prompt.images)))

    async def _turn_in(self, mode: Mode, prompt: Message) -> TurnStatus:
        before, self._approvals.mode, self._mode_is_temporary = self._approvals.mode, mode, True
        self._emit(ModeChanged(mode))
        try:
            return await self._turn(prompt)
        finally:
            if self._mode_is_temporary:
                self._approvals.mode, self._mode_is_temporary = before, False
                self._emit(ModeChanged(before))

    async def _find_title(self, prompt: str) -> None:
        """Asks the small model for a title. A failure is only logged."""
        replies = (one for one in reversed(self._session.history) if one.role == "assistant")
        reply = next((one.text for one in replies if one.says_something), "")
        model = self.settings.small_model or self._session.info.model
        try:
            title = await suggest_title(self._models, self.templates, model, prompt, reply)
            if title:
                await self._session.set_title(title)
        except CrushpyError as error:
            log.info("no title: %s", error.message)

    # --- branches and side questions --------------------------------------------------------------------

    async def open_branch(self, goal: str, *, begin: bool = True) -> bool:
        """Opens a branch, until `return_to_parent`, and begins to work on `goal` there."""
        opened = await self._run_slot.run_exclusively(self._agent.policy.branches.open(goal)) or False
        if opened and begin:
            self.submit(goal)
        return opened

    async def return_to_parent(self, text: str = "") -> bool:
        """Ends the innermost branch with `text`, or with what the agent said last."""
        return await self._run_slot.run_exclusively(self._agent.policy.branches.close(text)) or False

    async def ask_aside(self, question: str) -> str:
        """Answers a side question from the context, also during a turn. It does not enter the context. Empty
        if it failed, which is reported."""
        history, model = self._agent.view.shown(), self._session.info.model
        try:
            answer = await answer_aside(self._models, self.templates, model, history, question)
            if self._session.stored:
                await self._session.count(answer.usage)
            self._emit(answer)
            return answer.text
        except CrushpyError as error:
            self._emit.emit_now(Notice(f"The side question was not answered: {error}", "warning"))
            return ""

    # --- permissions ------------------------------------------------------------------------------------

    @property
    def denied_noninteractive(self) -> bool:
        """Whether a permission was needed and no user could be asked."""
        return self._agent.tools.denied_noninteractive or self._runtime.subagents.denied_noninteractive

    @property
    def mode(self) -> Mode:
        return self._approvals.mode

    async def select_mode(self, mode: Mode) -> None:
        """Switches the mode at once, also for the running turn, and stores it with the conversation."""
        self._approvals.mode, self._mode_is_temporary = mode, False
        await self._session.update(mode=mode)
        self._emit(ModeChanged(mode))

    @property
    def plan(self) -> Message | None:
        """The plan that waits for approval: the agent's last message in plan mode."""
        if self.mode != "plan" or self.busy or not self._session.history:
            return None
        last = self._session.history[-1]
        done = last.role == "assistant" and last.finish != "interrupted" and not last.calls
        return last if done and last.says_something else None

    async def accept_plan(self, mode: Mode) -> None:
        """Leaves plan mode and carries the plan out."""
        if self.plan is not None and mode != "plan":
            await self.select_mode(mode)
            self.submit(PLAN_ACCEPTED, pasted=(PLAN_ACCEPTED,))

    # --- choices ----------------------------------------------------------------------------------------

    async def select_compaction(self, method: str) -> str:
        """Switches the compaction method: saved, and applied to the next request. Returns what it costs."""
        info = self._session.info
        changed = method != info.compaction and any(one.role == "assistant" for one in self._session.history)
        edits_tools = changed and self._models.placement(info.model) != "keep"
        self._user_settings.save_choice("compaction.method", method)
        self._user_settings.replace(
            compaction=msgspec.structs.replace(self.settings.compaction, method=method)
        )
        await self._session.update(compaction=method)
        if method == "llm":  # which prepares nothing
            self._agent.policy.preparations.discard()
        return TOOLS_CHANGE if edits_tools else ""

    async def select_model(self, model: str, *, for_all: bool = False) -> None:
        """Switches this conversation's model from the next request on; `for_all`: also that of new ones.
        Raises if no provider serves it."""
        self._models.require_known(model)
        if not self.busy:
            await self._models.forget(model)  # its key may have just been stored
        await self._models.prepare(model, tools=True)
        if for_all:
            self._user_settings.save_choice("model", model)
            self._user_settings.replace(model=model)
        await self._session.update(model=model)
        await self._agent.policy.model_replaced()

    def select_effort(self, effort: str) -> None:
        """Sets the thinking effort from the next request on."""
        self._user_settings.save_choice("effort", effort)
        self._user_settings.replace(effort=effort)
        self._models.settings = self.settings

    def toggle_yolo(self) -> bool:
        """Allows everything that is not denied, or asks again. For this conversation in this process only."""
        self._approvals.yolo = not self._approvals.yolo
        return self._approvals.yolo

    # --- state ------------------------------------------------------------------------------------------

    @property
    def info(self) -> SessionInfo:
        return self._session.info

    @property
    def settings(self) -> Settings:
        return self._user_settings.current

    @property
    def sessions(self) -> "SessionBrowser":
        """All stored conversations."""
        from crushpy.engine.session.browser import SessionBrowser

        return SessionBrowser(
            self._store,
            open_root=self._session.info.root_id,
            renamed=self._session.renamed,
            outputs=self._workspace.output_dir.parent,
            undo=self._runtime.undo_files.folder,
        )

    @cached_property
    def tasks(self) -> "TaskListService":
        from crushpy.engine.agents.task_list_service import TaskListService

        return TaskListService(self._runtime, self._run_slot)

    @property
    def history(self) -> tuple[Message, ...]:
        return tuple(self._session.history)

    @property
    def branches(self) -> tuple[OpenBranch, ...]:
        """The open branches that lead to the current session, the outermost first."""
        return self._session.branches

    @property
    def timeline_notes(self) -> tuple[TimelineNote, ...]:
        """What happened between messages, for the user."""
        return tuple(self._session.notes)

    @property
    def sent_states(self) -> dict[str, SentState]:
        return sent_states(self._session.overrides.values())

    @property
    def usage(self) -> Usage:
        """Of all sessions of the conversation."""
        return self._session.usage

    def warm_up(self) -> None:
        """Loads in the background what the first turn needs, while the front end waits for its user."""
        if not self._closed:
            self._approvals.warm_up()

    def expect_prompt(self) -> None:
        """The user is typing: prepares the model connection."""
        if not self._closed:
            self._models.warm_up(self._session.info.model)

    async def latest_here(self) -> list[ConversationEntry]:
        """The latest conversation of this folder; empty if there is none or this one is closed."""
        return [] if self._closed else await self._store.sessions.list_conversations(self.info.cwd, 1)

    async def earlier_prompts(self) -> list[str]:
        """Earlier prompts in this folder, the latest last. Empty if storage cannot be read."""
        if self._closed:
            return []
        try:
            return await self._store.messages.list_prompts(self.info.cwd, MAX_EARLIER_PROMPTS)
        except StorageError as error:  # the next write reports it
            log.info("no earlier prompts: %s", error.message)
            return []

    @property
    def running_jobs(self) -> tuple[RunningJob, ...]:
        """Background commands that have not ended."""
        return self._workspace.jobs.running()

    @property
    def allow_rules(self) -> tuple[str, ...]:
        """Those of the settings, and those that answers have stored since."""
        return (*self.settings.permissions.allow, *self._approvals.always)

    @property
    def folders(self) -> tuple[Path, ...]:
        return self._approvals.folders

    async def add_folder(self, name: str) -> Path:
        """Makes a second folder part of the workspace: the same rules, sandbox and undo. Stored with the
        conversation. Raises UsageError."""
        folder = await self._approvals.add_folder(name)
        self._runtime.undo_files.add(folder)
        return folder

    async def stop_job(self, job_id: str) -> None:
        """Ends a background command and everything it started."""
        await self._workspace.jobs.get(job_id).kill()

    @property
    def guard(self) -> ExecutionContext:
        """The sandbox that every command runs in, or why there is none. The first access takes time."""
        return self._approvals.guard

    async def reacquire_lease(self) -> None:
        """Takes the lease again, after another conversation of this process released it."""
        if self._session.stored:
            await self._store.leases.acquire(self._session.info.id)

    @property
    def language_servers(self) -> Sequence[Any]:
        """Each `LanguageServer` of the workspace; nothing is started by looking."""
        return self._workspace.lsp.servers if self._workspace.lsp else ()

    async def close(self) -> None:
        """Ends the running turn and all background jobs; closes connections and the database."""
        if (running := self._run_slot.running) is not None:
            self._queue.clear()
            self._approvals.ending = BY_LEAVING
            self.interrupt()
            await asyncio.wait([running])
        if self._closed:
            return
        self._closed = True
        if self._titling is not None:
            self._titling.cancel()
            await asyncio.wait([self._titling])
        await self._agent.policy.preparations.close()
        if self._hooks_started:
            reason = "prompt_input_exit" if self._approvals.interactive else "other"
            await self.hooks.fire(HookEvent("SessionEnd", reason, {"reason": reason}))
        await self.hooks.close()
        for job in self._workspace.jobs.running():
            what = headline("bash", {"command": job.command})
            self._emit(JobEnded(job.id, job.command, f"{job.id} was ended when crushpy quit: {what}"))
        await self._runtime.mcp.close()
        left = await self._workspace.close()
        await self._runtime.change_recorder.close()
        if self._session.stored:
            root = self._session.info.root_id
            self.run_summary = await self._runtime.run_summary.line(root, self._used_before, self.usage, left)
        await self._models.close()
        if self._session.stored:
            with suppress(StorageError):  # the lease of a dead process is taken over anyway
                await self._store.leases.release_all()
        await self._store.close()
