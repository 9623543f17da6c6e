"""Sub-agents: each works on one prompt in a session of its own, and its report goes back to who asked."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from crushpy.context import facts
from crushpy.core.errors import CrushpyError
from crushpy.core.events import (
    Boundary,
    Event,
    MessageCommitted,
    Notice,
    Retry,
    SessionOpened,
    TaskProgress,
    ToolCalled,
    ToolFinished,
    UsageReported,
)
from crushpy.core.ids import new_id
from crushpy.core.messages import ChangedFile, Data, TaskReport, headline
from crushpy.engine.agents.agent import Agent, AgentServices, AgentSession
from crushpy.engine.one_shot import ask_once
from crushpy.engine.session.session import LoadedSession, title_of, user_message
from crushpy.engine.turn.limits import Limits, Spent
from crushpy.engine.turn.toolset import Toolset
from crushpy.engine.turn.turn import Status
from crushpy.llm.errors import ModelError
from crushpy.storage.records import SessionInfo, TaskResult
from crushpy.tools.base import Delegation, Outcome
from crushpy.tools.errors import ToolError

SHORT = 2_000
"""Characters, about 500 tokens: a report that is no longer is never summarised."""
SUMMARY_TOKENS = 400
PATIENCE = 30.0
"""Seconds that a summary of a report may take."""
NOT_FOR_TASKS = ("task", "new_session")
"""A sub-agent has no sub-agents, and crushpy itself decides when its session ends."""
ENDS = {"error": "failed", "limit": "stopped at a limit of this run", "loop": "went round in circles"}


class Workplace(Data, frozen=True):
    """Where a sub-agent works: with what, and what it is told of its surroundings."""

    services: AgentServices
    system: str
    cwd: str


class Finished(Data, frozen=True):
    """A task that has come to its end."""

    status: Status
    report: TaskReport
    result: TaskResult
    failure: CrushpyError | None = None


class Subagents:
    """The sub-agents of one conversation. `spent` is that of the turn that runs now."""

    def __init__(
        self,
        services: AgentServices,
        parent: AgentSession,
        toolset: Toolset,
        emit: Callable[[Event], None],
    ) -> None:
        self._services = services
        self._parent = parent
        self._toolset = toolset
        self._emit = emit
        self.spent = Spent()
        self._summaries: dict[str, str] = {}
        """Of reports, by id: each is made once, whoever is told; empty where no model gave one."""
        self.unasked = False
        """A permission was needed for a task, and nobody could be asked."""

    async def run(self, order: Delegation, show: Callable[[str], None]) -> Outcome:
        """What the tool `task` does. Shows meanwhile what the sub-agent does, a line for each call."""
        task = await self.work(order, Shown(order.call_id, show, self._emit))
        text = await self.told(task.result, order.context_strategy)
        if task.report.changed:
            text += "\n\nFiles changed: " + ", ".join(file.path for file in task.report.changed)
        if task.status in ENDS:
            reason = f": {task.failure.message}" if task.failure else ""
            text = f"The sub-agent {ENDS[task.status]}{reason}. Its last words: {text or '(none)'}"
        return Outcome(text, is_error=task.status != "done", display=task.report)

    async def work(
        self,
        order: Delegation,
        emit: Callable[[Event], None],
        *,
        title: str = "",
        limits: Limits | None = None,
        place: Workplace | None = None,
    ) -> Finished:
        """Has a sub-agent work until it stops. Its events go to `emit`, its questions to the user.

        `limits` are its own, beside those of the run; without a `place` it works where the conversation does.
        """
        info = self._parent.live.info
        here = place or Workplace(self._services, info.system, info.cwd)
        agent = await self._agent(order, emit, title or title_of(order.prompt), here)
        turn = agent.turn(Spent(limits, within=self.spent))
        status = await turn.run(user_message(order.prompt))
        await agent.policy.close()
        self.unasked = self.unasked or agent.tools.unasked
        self._parent.live.spend(agent.session.usage)
        session_id = agent.session.info.id
        if not agent.session.stored:  # it ended before it began: at a limit, say
            return Finished(
                status, TaskReport("", ""), TaskResult(new_id(), session_id, "", time.time()), turn.failure
            )
        await self._services.store.sessions.update(session_id, end_reason=status)
        if status == "interrupted":
            raise asyncio.CancelledError
        return await self._finished(agent, status, turn.failure)

    async def _agent(
        self, order: Delegation, emit: Callable[[Event], None], title: str, place: Workplace
    ) -> Agent:
        parent = self._parent.live.info
        model = order.model or parent.model
        try:
            self._parent.models.require_known(model)
            await self._parent.models.prepare(model)
            self._parent.models.provider(model)
        except ModelError as error:
            raise ToolError(f"{error.message} {error.hint}") from error
        now = time.time()
        info = SessionInfo(
            id=new_id(),
            root_id=parent.root_id,
            parent_id=parent.id,
            kind="task",
            generation=0,
            title=title,
            cwd=place.cwd,
            model=model,
            compaction="auto",
            system=f"{place.system}\n\n{self._services.templates.render('task')}",
            created_at=now,
            updated_at=now,
        )
        tools = self._toolset.only(
            lambda tool: tool.in_reading_tasks if order.read_only else tool.name not in NOT_FOR_TASKS
        )
        session = AgentSession(
            self._services.store,
            LoadedSession(info),
            self._parent.models.for_tools(tools.specs),
            emit,
            stored=False,
            call_ids=self._parent.live.call_ids,
        )
        return Agent(place.services, session, tools=tools.tools, emit=emit, task=order.call_id)

    async def _finished(self, agent: Agent, status: Status, failure: CrushpyError | None) -> Finished:
        session = agent.session
        messages = await self._services.store.messages.load_lineage(session.info.id)
        last = next((one for one in reversed(session.history) if one.role == "assistant" and one.text), None)
        text = last.text.strip() if last else ""
        changed = {
            file.path: ChangedFile(file.path, file.action)
            for file in facts.touched(messages)
            if file.action != "read"
        }
        steps = sum(message.role == "assistant" for message in messages)
        report = TaskReport(session.info.id, text, tuple(changed.values()), steps, session.usage.cost)
        result = TaskResult(last.id if last else new_id(), session.info.id, text, time.time())
        await self._services.store.tasks.add_result(result)
        return Finished(status, report, result, failure)

    async def told(self, result: TaskResult, strategy: str) -> str:
        """The result as its caller gets it: whole, or in a few sentences where that is wanted and shorter."""
        wanted = strategy or self._services.settings().tasks.context_strategy
        if wanted != "summarized" or len(result.raw) <= SHORT:
            return result.raw
        if result.id not in self._summaries:
            self._summaries[result.id] = result.context_summary or await self._summarised(result)
        summary = self._summaries[result.id]
        if not summary:
            return result.raw
        return f"{summary}\n\n[Summarised; recall(message_id={result.id!r}) reads the whole report.]"

    async def _summarised(self, result: TaskResult) -> str:
        """The short form, made once and stored; nothing where no model gave one."""
        settings, models = self._services.settings(), self._parent.models
        model = settings.small_model or self._parent.live.info.model
        try:
            async with asyncio.timeout(PATIENCE):
                system = self._services.templates.render("task_summary")
                summary, usage = await ask_once(models, model, system, "report", result.raw, SUMMARY_TOKENS)
        except (ModelError, TimeoutError) as error:
            reason = error.message if isinstance(error, ModelError) else f"{model} takes too long."
            self._emit(Notice(f"A report was not summarised, it is used whole: {reason}", "warning"))
            return ""
        self._parent.live.spend(usage)
        self.spent.use(usage)
        if not summary or len(summary) >= len(result.raw):
            return ""
        result = TaskResult(
            result.id, result.session_id, result.raw, result.created_at, summary, model, usage.cost
        )
        await self._services.store.tasks.save_summary(result)
        return summary


class Shown:
    """Tells what a sub-agent does: in the live output of the call it works for, and how far it is."""

    def __init__(self, call_id: str, show: Callable[[str], None], emit: Callable[[Event], None]) -> None:
        self._show = show
        self._emit = emit
        self._so_far = TaskProgress(call_id, "", 0, "", 0)

    def __call__(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self._tell(session_id=event.id)
            case ToolCalled():
                doing = f"{event.name} {headline(event.name, event.args, more=' …')}".rstrip()
                self._show(f"{doing}\n")
                self._tell(doing=doing)
            case ToolFinished():
                if event.is_error:
                    lines = event.text.strip().splitlines()
                    self._show(f"  failed: {lines[0] if lines else ''}\n")
                self._tell(doing="")
            case MessageCommitted():
                self._tell(steps=self._so_far.steps + 1)
            case UsageReported():
                self._tell(tokens=event.total.total)
            case Retry():
                self._show(f"{event.reason} Trying again in {event.seconds:g} s.\n")
            case Boundary():
                self._show(f"fresh start ({event.trigger}): {event.tokens_before:,} tokens were in use\n")
            case Notice() if event.level == "warning":
                self._emit(Notice(f"Task: {event.text}", event.level))
            case _:
                pass

    def _tell(self, **changes: str | int) -> None:
        self._so_far = msgspec.structs.replace(self._so_far, **changes)
        self._emit(self._so_far)
