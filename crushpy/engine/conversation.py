"""One live conversation: the API that every front end uses. Prompts go in, events come out."""

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from crushpy.core.errors import CrushpyError
from crushpy.core.events import JobEnded
from crushpy.core.messages import Message, Usage, headline
from crushpy.engine.approvals import BY_LEAVING
from crushpy.engine.compaction.context_service import ContextService
from crushpy.engine.compaction.pins_and_rules import RuleService
from crushpy.engine.hooks import HookEvent
from crushpy.engine.prompts import Prompts
from crushpy.engine.rewind.conversation_files import ConversationFiles
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.runtime import Runtime
from crushpy.engine.side_calls import TitleFinder
from crushpy.engine.user_choices import Choices
from crushpy.settings.schema import Settings
from crushpy.storage.records import SessionInfo, StorageError

if TYPE_CHECKING:
    from crushpy.engine.agents.task_list_service import TaskListService
    from crushpy.engine.session.browser import SessionBrowser


class Conversation:
    """Opened by `bootstrap.open_conversation`. All methods, also those of its parts, belong to one event
    loop."""

    def __init__(self, runtime: Runtime) -> None:
        scope, services = runtime.scope, runtime.scope.services
        self._runtime, self._models, self._store = runtime, scope.models, services.store
        self._run_slot = RunSlot(runtime.events)
        self._title = TitleFinder(scope)
        self.session, self.approvals, self.workspace = scope.session, services.approvals, services.workspace
        self.user_settings, self.templates = services.user_settings, services.templates
        self.commands, self.mcp, self.pins = runtime.commands, runtime.mcp, runtime.pins
        self.spending = runtime.spending
        self.choices = Choices(runtime.agent, self._run_slot)
        self.rules = RuleService(scope, lambda: self.busy)
        self.context = ContextService(runtime.agent, self._run_slot)
        self.prompts = Prompts(
            runtime,
            self._run_slot,
            self.choices,
            self._title,
            self.rules.end_withdrawn,
            self.context.override,
        )
        self.files = ConversationFiles(runtime, self._run_slot)
        self.submit, self.ask, self.answer = self.prompts.submit, self.prompts.ask, self.approvals.answer
        self.approvals.hooks.wake_with(self.prompts.wake)
        self.subscribe = runtime.events.subscribe
        self.interrupt = self._run_slot.interrupt
        """Stops the running work; stored data stays, and the queue waits. False if idle."""
        self._used_before = self.usage
        self.closed = False
        self.run_summary = ""
        """What this run did and what is left, in a line; set when the conversation is closed."""

    @property
    def busy(self) -> bool:
        return self._run_slot.busy

    @property
    def failure(self) -> CrushpyError | None:
        """Why the last turn or task list failed."""
        return self._run_slot.failure

    @property
    def info(self) -> SessionInfo:
        return self.session.info

    @property
    def history(self) -> tuple[Message, ...]:
        return tuple(self.session.history)

    @property
    def usage(self) -> Usage:
        """Of all sessions of the conversation."""
        return self.session.usage

    @property
    def settings(self) -> Settings:
        return self.user_settings.current

    @property
    def sessions(self) -> "SessionBrowser":
        """All stored conversations."""
        from crushpy.engine.session.browser import SessionBrowser

        return SessionBrowser(self._store, open_root=self.info.root_id, renamed=self.session.renamed)

    @cached_property
    def tasks(self) -> "TaskListService":
        from crushpy.engine.agents.task_list_service import TaskListService

        return TaskListService(self._runtime, self._run_slot)

    async def close(self) -> None:
        """Ends the running turn and all background jobs; closes connections and the database."""
        self.prompts.close()
        if (running := self._run_slot.running) is not None:
            self.approvals.ending = BY_LEAVING
            self.interrupt()
            await asyncio.wait([running])
        if self.closed:
            return
        self.closed = True
        hooks = self.approvals.hooks
        await self._title.close()
        await self._runtime.agent.policy.preparations.close()
        if self.prompts.hooks_started:
            reason = "prompt_input_exit" if self.approvals.interactive else "other"
            await hooks.fire(HookEvent("SessionEnd", reason, {"reason": reason}))
        await hooks.close()
        for job in self.workspace.jobs.running():
            what = headline("bash", {"command": job.command})
            text = f"{job.id} was ended when crushpy quit: {what}"
            self._runtime.events(JobEnded(job.id, job.command, text))
        await self.mcp.close()
        left = await self.workspace.close()
        await self._runtime.change_recorder.close()
        if self.session.stored:
            audit = self._runtime.scope.services.audit
            self.run_summary = await audit.summary(self._used_before, self.usage, left)
        await self._models.close()
        if self.session.stored:
            with suppress(StorageError):  # the lease of a dead process is taken over anyway
                await self._store.leases.release_all()
        await self._store.close()
