"""One live conversation: the API that every front end uses. Prompts go in, events come out."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crushpy.context.overrides import SentState, sent_states
from crushpy.core.access import Mode
from crushpy.core.errors import CrushpyError
from crushpy.core.events import JobEnded, Notice
from crushpy.core.messages import Message, Usage, headline
from crushpy.core.timeline_notes import TimelineNote
from crushpy.engine.approvals import BY_LEAVING
from crushpy.engine.compaction.context_service import ContextService
from crushpy.engine.compaction.pins_and_rules import RuleService
from crushpy.engine.hooks import HookEvent
from crushpy.engine.prompts import Prompts
from crushpy.engine.rewind.conversation_files import ConversationFiles
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.runtime import Runtime
from crushpy.engine.session.session import OpenBranch
from crushpy.engine.side_calls import TitleFinder, answer_aside
from crushpy.engine.user_choices import Choices
from crushpy.permissions.decision import ExecutionContext
from crushpy.settings.schema import Settings
from crushpy.storage.records import ConversationEntry, SessionInfo, StorageError
from crushpy.tools.shell.jobs import RunningJob

if TYPE_CHECKING:
    from crushpy.engine.agents.task_list_service import TaskListService
    from crushpy.engine.session.browser import SessionBrowser

log = logging.getLogger(__name__)

MAX_EARLIER_PROMPTS = 200


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
        self._title = TitleFinder(scope)
        choices = Choices(runtime.agent, self._run_slot)
        self.select_model, self.select_effort = choices.select_model, choices.select_effort
        self.select_mode, self.select_compaction = choices.select_mode, choices.select_compaction
        self.toggle_yolo = choices.toggle_yolo
        prompts = self.prompts = Prompts(runtime, self._run_slot, choices, self._title)
        self.submit, self.ask, self.expand_command = prompts.submit, prompts.ask, prompts.expand_command
        self.is_next, self.send_next = prompts.is_next, prompts.send_next
        self.unqueue, self.send_queued = prompts.unqueue, prompts.send_queued
        self.accept_plan, self.attachments = prompts.accept_plan, prompts.attachments
        self.hooks = services.approvals.hooks
        """What the user runs at events."""
        self.templates, self.commands, self.mcp = services.templates, runtime.commands, runtime.mcp
        self.subscribe = runtime.events.subscribe
        self.answer, self.save_choice = services.approvals.answer, services.user_settings.save_choice
        self.interrupt = self._run_slot.interrupt
        """Stops the running work; stored data stays, and the queue waits. False if idle."""
        self._used_before = self._session.usage
        self._closed = False
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

    @property
    def queue(self) -> tuple[Message, ...]:
        """Prompts that wait for the end or the next step of the running turn."""
        return self.prompts.queue

    @property
    def plan(self) -> Message | None:
        """The plan that waits for approval: the agent's last message in plan mode."""
        return self.prompts.plan

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
            self.prompts.close()
            self._approvals.ending = BY_LEAVING
            self.interrupt()
            await asyncio.wait([running])
        if self._closed:
            return
        self._closed = True
        await self._title.close()
        await self._agent.policy.preparations.close()
        if self.prompts.hooks_started:
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
