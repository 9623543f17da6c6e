"""Sub-agents: each works on one prompt in its own session and returns a report to its caller."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from crushpy.context import facts
from crushpy.core import events
from crushpy.core.access import Privileges
from crushpy.core.boundary import TurnStatus
from crushpy.core.call_words import call_title
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Note, TaskReport, ToolCall
from crushpy.engine.agents.agent import Agent
from crushpy.engine.agents.scope import AgentScope, Services, new_gauge
from crushpy.engine.agents.task_spec import AgentDefinition
from crushpy.engine.session import session as sessions
from crushpy.engine.side_calls import ask_once
from crushpy.engine.step.toolset import LLM_TOOLS, Toolset
from crushpy.engine.turn.limits import Limits, LoopGuard, Spent
from crushpy.llm.errors import ModelError
from crushpy.storage.records import SessionBusy, SessionInfo, TaskResult
from crushpy.storage.store import Store
from crushpy.tools.base import Delegation, Outcome
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import Output
from crushpy.util.uncancellable import uncancellable

SHORT_REPORT_CHARS = 2_000
"""About 500 tokens: a report up to this length is never summarised."""
SUMMARY_TOKENS = 400
SUMMARY_TIMEOUT_S = 30.0
LEASE_POLL_S = 1.0
SETUP_TIMEOUT_S = 1_800.0
CONTINUED = (
    "The machine that worked on this was lost. You continue on another one, with the files as they were "
    "after the last result above. Calls marked as interrupted may have had effects elsewhere."
)
ANSWERED = "The user was asked about the last calls; their results are above."
AddPrompts = Callable[[], Awaitable[Sequence[str]]]
"""Returns prompts for the next step of a task."""
NOT_FOR_TASKS = ("task", *LLM_TOOLS)
"""A sub-agent has no sub-agents, and crushpy decides when its session is compacted."""
ENDS = {"error": "failed", "limit": "stopped at a limit of this run", "loop": "repeated the same call"}


class TaskWorkspace(Data, frozen=True):
    """Where a sub-agent works, with which services and system prompt. One of its own is prepared with `async
    with`, which also ends the jobs it has left."""

    services: Services
    system: str
    cwd: str
    setup: tuple[str, Privileges] = ("", Privileges())
    """A command that prepares it, and what it was granted."""

    async def __aenter__(self) -> None:
        """Runs that command. Raises ToolError if it fails."""
        command, needs = self.setup
        if not command:
            return
        output = Output(None)
        process = self.services.workspace.jobs.run(command, Path(self.cwd), output, needs)
        in_time, _ = await process.finish_or_kill(SETUP_TIMEOUT_S)
        if process.exit_code != 0:
            ended = f"exit code {process.exit_code}" if in_time else f"more than {SETUP_TIMEOUT_S:g} s"
            raise ToolError(f"worktree.setup failed ({ended}): {output.take().text.strip()[-500:]}")

    async def __aexit__(self, *_: object) -> None:
        await uncancellable(self.services.workspace.close())


class FleetAttempt(Data, frozen=True):
    """An attempt at a task by a worker of a fleet, which continues the session that an earlier one left."""

    checkpoint: sessions.Checkpoint
    steer: AddPrompts
    """Awaited between two steps."""
    parked: bool
    """The earlier one ended at a question."""


class ContinuedTask(Data, frozen=True):
    """The stored session of a task whose process has ended."""

    loaded: sessions.LoadedSession
    pending: Message | None = None
    """A reply whose calls were not started: they run first."""

    @property
    def finished(self) -> bool:
        """Whether its last reply asks for nothing more."""
        last = self.loaded.history[-1]
        return last.role == "assistant" and last.finish != "interrupted" and not last.calls


class FinishedTask(Data, frozen=True):
    status: TurnStatus
    report: TaskReport
    result: TaskResult
    failure: CrushpyError | None = None


class Subagents:
    """The sub-agents of one conversation. `spent` belongs to the current turn."""

    def __init__(
        self, parent: AgentScope, toolset: Toolset, find_agent: Callable[[str], AgentDefinition]
    ) -> None:
        """`find_agent` raises ToolError if there is none of that name."""
        self._find_agent = find_agent
        self._services = parent.services
        self._parent = parent
        self._toolset = toolset
        self._emit = parent.emit
        self.spent = Spent()
        self._summaries: dict[str, str] = {}
        """Of reports, by id: each is made once; empty if no model returned one."""

    async def run(self, order: Delegation, show: Callable[[str], None]) -> Outcome:
        """Implements the tool `task`. Shows a line for each call of the sub-agent."""
        strategy = order.context_strategy or self._definition(order).context_strategy
        task = await self.work(order, TaskOutputPrinter(order.call_id, show, self._emit))
        text = await self.format_report(task.result, strategy)
        if task.report.changed:
            text += "\n\nFiles changed: " + ", ".join(file.path for file in task.report.changed)
        if task.status in ENDS:
            reason = f": {task.failure.message}" if task.failure else ""
            text = f"The sub-agent {ENDS[task.status]}{reason}. Its last message: {text or '(none)'}"
        return Outcome(text, is_error=task.status != "done", display=task.report)

    async def work(
        self,
        order: Delegation,
        emit: events.Emit,
        *,
        title: str = "",
        limits: Limits | None = None,
        workspace: TaskWorkspace | None = None,
        session_id: str = "",
        attempt: FleetAttempt | None = None,
    ) -> FinishedTask:
        """Runs a sub-agent until it stops. Its events go to `emit`, its questions to the user.

        `limits` apply beside those of the run; without a `workspace` it works where the conversation does.
        `session_id`: of its session, if that is known.
        """
        store, info = self._services.store, self._parent.session.info
        continued = await take_over(store, session_id, parked=attempt.parked) if attempt else None
        here = workspace or TaskWorkspace(self._services, info.system, info.cwd)
        title = title or sessions.title_of(order.prompt)
        loaded = continued.loaded if continued else None
        checkpoint = attempt.checkpoint if attempt else None
        agent = await self._new_agent(order, emit, title, here, loaded, session_id, checkpoint)
        spent = Spent(limits, within=self.spent)
        turn = agent.turn(spent)
        session = agent.scope.session

        said = partial(sessions.user_message, origin="fleet" if attempt else "agent")

        async def add_prompts() -> None:
            for prompt in await attempt.steer() if attempt else ():
                await session.add_prompt(said(prompt), steers=True)

        status: TurnStatus = "done"
        if continued is None:
            status = await turn.run(said(order.prompt), add_prompts)
        elif not continued.finished:
            spent.steps = sum(message.role == "assistant" for message in session.history)
            spent.used = session.usage
            session.announce()
            if continued.pending is not None:
                await agent.tools.run(continued.pending, LoopGuard())
            note = Note(CONTINUED if continued.pending is None else ANSWERED)
            status = await turn.run(sessions.note_message(note), add_prompts)
        await agent.policy.preparations.close()
        self._parent.session.spend(agent.scope.session.usage)
        if turn.failure is not None and not session.stored:
            raise turn.failure
        session_id = session.info.id
        await store.sessions.update(session_id, end_reason=status)
        if status == "interrupted":
            raise asyncio.CancelledError
        return await self._finished(agent, status, turn.failure)

    def _definition(self, order: Delegation) -> AgentDefinition:
        """How the agent of an order narrows it; the order's own choices come first."""
        return self._find_agent(order.agent) if order.agent else AgentDefinition()

    async def _new_agent(
        self,
        order: Delegation,
        emit: events.Emit,
        title: str,
        workspace: TaskWorkspace,
        loaded: sessions.LoadedSession | None = None,
        session_id: str = "",
        checkpoint: sessions.Checkpoint | None = None,
    ) -> Agent:
        parent = self._parent.session.info
        kind = self._definition(order)
        model = order.model or kind.model or parent.model
        read_only = order.read_only or kind.read_only
        try:
            self._parent.models.require_known(model)
            await self._parent.models.prepare(model)
        except ModelError as error:
            raise ToolError(f"{error.message} {error.hint}") from error
        now = time.time()
        info = SessionInfo(
            id=session_id or new_id(),
            root_id=parent.root_id,
            parent_id=parent.id,
            kind="task",
            title=title,
            cwd=workspace.cwd,
            model=model,
            compaction="auto",
            system=f"{workspace.system}\n\n{self._services.templates.render('task')}\n\n{kind.prompt}".strip(),
            created_at=now,
            updated_at=now,
        )
        tools = self._toolset.only(
            lambda tool: (
                kind.allows(tool.name)
                and (tool.in_reading_tasks if read_only else tool.name not in NOT_FOR_TASKS)
            )
        )
        loaded = loaded or sessions.LoadedSession(info, stored=False)
        models = self._parent.models.for_tools(tools)
        gauge = new_gauge(models, loaded)
        store, ids = self._services.store, self._parent.session.call_ids
        session = sessions.LiveSession(store, loaded, emit, gauge.exact_size, ids, checkpoint=checkpoint)
        scope = AgentScope(workspace.services, session, models, gauge, emit, order.call_id)
        return Agent(scope, tools.tools)

    async def _finished(self, agent: Agent, status: TurnStatus, failure: CrushpyError | None) -> FinishedTask:
        session = agent.scope.session
        messages = await self._services.store.messages.load_lineage(session.info.id)
        replies = [message for message in session.history if message.role == "assistant" and message.text]
        last = replies[-1] if replies else None
        text = last.text.strip() if last else ""
        changed = {file.path: file for file in facts.touched(messages) if file.action != "read"}
        steps = sum(message.role == "assistant" for message in messages)
        report = TaskReport(session.info.id, text, tuple(changed.values()), steps, session.usage.cost)
        result = TaskResult(last.id if last else new_id(), session.info.id, text, time.time())
        await self._services.store.tasks.add_result(result)
        return FinishedTask(status, report, result, failure)

    async def format_report(self, result: TaskResult, strategy: str) -> str:
        """The result for its caller: in full, or summarised if that is wanted and shorter."""
        wanted = strategy or self._services.settings.tasks.context_strategy
        if wanted != "summarized" or len(result.raw) <= SHORT_REPORT_CHARS:
            return result.raw
        if result.id not in self._summaries:
            self._summaries[result.id] = result.context_summary or await self._summarised(result)
        summary = self._summaries[result.id]
        if not summary:
            return result.raw
        return f"{summary}\n\n[Summarised; recall(message_id={result.id!r}) reads the whole report.]"

    async def _summarised(self, result: TaskResult) -> str:
        """The summary, made once and stored; empty if no model returned one."""
        settings, models = self._services.settings, self._parent.models
        model = settings.small_model or self._parent.session.info.model
        try:
            async with asyncio.timeout(SUMMARY_TIMEOUT_S):
                system = self._services.templates.render("task_summary")
                summary, usage = await ask_once(models, model, system, "report", result.raw, SUMMARY_TOKENS)
        except (ModelError, TimeoutError) as error:
            reason = error.message if isinstance(error, ModelError) else f"{model} takes too long."
            self._emit(
                events.Notice(f"A report could not be summarised and is used in full: {reason}", "warning")
            )
            return ""
        await self._parent.session.count(usage)
        self.spent.use(usage)
        if not summary or len(summary) >= len(result.raw):
            return ""
        result = TaskResult(result.id, result.session_id, result.raw, result.created_at, summary, model)
        await self._services.store.tasks.save_summary(result)
        return summary


async def take_over(store: Store, session_id: str, *, parked: bool) -> ContinuedTask | None:
    """The session that another process left, once its lease has expired; None if it left none.

    A call whose intent is stored gets an error result and never runs again; after a question the calls that
    were not started are still to run.
    """
    try:
        info = await store.sessions.find_tip(session_id)
    except UsageError:
        return None
    while True:
        try:
            await store.leases.acquire(info.id)
            break
        except SessionBusy:
            await asyncio.sleep(LEASE_POLL_S)
    loaded = await sessions.load_session(store, info, read_only=parked)
    if not parked:
        return ContinuedTask(loaded)
    answered = {
        message.result.call_id for message in await store.messages.load(info.id) if message.result is not None
    }
    asked = next(message for message in reversed(loaded.history) if message.role == "assistant")
    waiting = {call.id for call in asked.calls} - answered
    history = tuple(
        message
        for message in loaded.history
        if message.result is None or message.result.call_id not in waiting
    )
    parts = tuple(part for part in asked.parts if not isinstance(part, ToolCall) or part.id in waiting)
    return ContinuedTask(
        msgspec.structs.replace(loaded, history=history), msgspec.structs.replace(asked, parts=parts)
    )


class TaskOutputPrinter:
    """Shows what a sub-agent does in the live output of its `task` call, and emits its progress."""

    def __init__(self, call_id: str, show: Callable[[str], None], emit: events.Emit) -> None:
        self._show = show
        self._emit = emit
        self._progress = events.TaskProgress(call_id, "", 0, "", 0)

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened():
                self._report(session_id=event.id)
            case events.ToolCalled():
                doing = call_title(event.name, event.args, more=" …")
                self._show(f"{doing}\n")
                self._report(doing=doing)
            case events.ToolFinished():
                if event.is_error:
                    lines = event.text.strip().splitlines()
                    self._show(f"  failed: {lines[0] if lines else ''}\n")
                self._report(doing="")
            case events.MessageCommitted():
                self._report(steps=self._progress.steps + 1)
            case events.UsageReported():
                self._report(tokens=event.total.total)
            case events.Retry():
                self._show(f"{event.reason} Trying again in {event.seconds:g} s.\n")
            case events.BoundaryCommitted():
                self._show(
                    f"context compacted ({event.trigger}): {event.tokens_before:,} tokens were in use\n"
                )
            case events.Notice() if event.level == "warning":
                self._emit(events.Notice(f"Task: {event.text}", event.level))
            case _:
                pass

    def _report(self, **changes: str | int) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        self._emit(self._progress)
