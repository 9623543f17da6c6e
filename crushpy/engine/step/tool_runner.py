"""Runs the tool calls of one reply: check, decide, execute, record. Unless storage fails, every call gets
exactly one result."""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import groupby, islice

import msgspec

from crushpy.core.access import Access
from crushpy.core.events import Notice, ToolCalled, ToolFinished, ToolOutput, ToolStarted
from crushpy.core.messages import CallDecision, Json, Message, ToolCall, ToolResult
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.approvals import CallBatch, Ruling
from crushpy.engine.hooks import HookEvent, ObservedCall, ResultAddition, with_feedback
from crushpy.engine.nested_rules import NestedRules
from crushpy.engine.step.session_calls import ONLY_ONE, SessionCalls
from crushpy.engine.step.toolset import LLM_TOOLS
from crushpy.engine.turn.limits import LoopGuard
from crushpy.storage.records import CallStart, StorageError
from crushpy.tools.base import AnyTool, Args, CallContext, CallingAgent, Outcome
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.tools.registry import accesses_of, check_call, describe_unknown
from crushpy.tools.truncate import truncate
from crushpy.util.spawn import run_parallel
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

MAX_PARALLEL_TOOLS = 16
"""Calls of one reply that run at the same time. Their results are committed together; more of them would
delay key presses by more than they save."""
ANNOUNCE_BATCH = 50
"""Calls of a reply that are announced before key presses are handled."""
KEY_PAUSE_S = 0.001
"""A pause in which key presses are handled: one takes more than one round of the event loop."""

TRUNCATED = (
    "Not run: the reply was cut off at the output limit, so this call may be incomplete. "
    "Call again with less at once (smaller edits, a file in several parts)."
)
STOPPED = "Interrupted by the user while it ran. Its effects so far remain; check before repeating it."
NOT_STARTED = "Not run: interrupted by the user."


class RunningCall(msgspec.Struct):
    message: Message
    """The reply that asked for it."""
    call: ToolCall
    decision: CallDecision | None = None
    observed: ObservedCall | None = None
    """Set once it is decided about."""
    context: str = ""
    """What hooks tell the model about it."""
    changed: Json | None = None
    """The arguments, if a hook changed them."""
    start: CallStart | None = None
    """How a call that only reads began: stored with its result."""
    started: bool = False
    """It may have had an effect: a call that was still waiting for permission has not."""
    recorded: bool = False
    """Its result is stored or being stored: no other result may be."""


class ToolRunner:
    """The tools of one agent."""

    def __init__(
        self, scope: AgentScope, tools: tuple[AnyTool, ...], caller: CallingAgent, session_calls: SessionCalls
    ) -> None:
        self._session, self._emit, self._task = scope.session, scope.emit, scope.task
        self._approvals, self._audit = scope.services.approvals, scope.services.audit
        self._recorder, self._verify_database = scope.services.recorder, scope.services.store.verify
        self._tools = {tool.name: tool for tool in tools}
        self._workspace, self._caller = scope.services.workspace, caller
        self._session_calls = session_calls
        self._rules = NestedRules(scope.services, scope.session.has_loaded)
        self._additions: tuple[ResultAddition, ...] = (self._rules.attach, *scope.services.additions)
        self._commands = {tool.name for tool in tools if tool.access.kind == "command"}
        self._editing = {tool.name for tool in tools if tool.access.kind == "path" and tool.access.writes}
        self._batch = CallBatch()
        self._stopped = ""
        """Why a hook wants the turn to end."""

    async def run(self, message: Message, guard: LoopGuard) -> bool:
        """Runs the calls of `message` in order; neighbours whose tools allow it run in parallel. Returns
        whether the turn goes on."""
        self._stopped, branches = "", self._session.branches
        calls = [RunningCall(message, call) for call in message.calls]
        others = [waiting for waiting in calls if waiting.call.name not in LLM_TOOLS]
        self._batch = CallBatch(
            [other.call for other in others],
            lambda call: accesses_of(self._tools, call, self._new_context(call)),
        )
        unannounced = iter(message.calls)
        try:
            while announced := list(islice(unannounced, ANNOUNCE_BATCH)):
                self._announce(announced)
                await asyncio.sleep(KEY_PAUSE_S if len(announced) == ANNOUNCE_BATCH else 0)
            if any(call.name in self._commands for call in message.calls):
                await self._workspace.jobs.start_supervisor()
            for parallel, group in groupby(others, self._is_parallel):
                if parallel:
                    run = partial(self._run_one, guard=guard)
                    await run_parallel(list(group), run, MAX_PARALLEL_TOOLS)
                else:
                    for entry in group:
                        await self._run_one(entry, guard)
            await self._change_session(
                [waiting for waiting in calls if waiting.call.name in LLM_TOOLS], guard
            )
        except asyncio.CancelledError:
            self._announce(unannounced)
            for waiting in calls:
                if not waiting.recorded:
                    with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                        await self._record(waiting, Outcome(NOT_STARTED, is_error=True, ended="not_run"))
            raise
        if self._stopped:
            self._emit(Notice(f"Stopped by a hook: {self._stopped}", "warning"))
        of_user = branches[-1:] if branches and not branches[-1].call_id else ()
        returned = any(branch not in self._session.branches for branch in of_user)
        return not self._stopped and not returned  # the user goes on after a branch of theirs

    def _announce(self, calls: Iterable[ToolCall]) -> None:
        for call in calls:
            target = tool.target(call.args, self._workspace) if (tool := self._tools.get(call.name)) else ""
            self._emit(ToolCalled(call.id, call.name, call.args, target))

    def _new_context(self, call: ToolCall) -> CallContext:
        """For one call, from its check to its end."""
        emit = self._emit
        return CallContext(
            self._workspace, self._caller, call.id, lambda text: emit(ToolOutput(call.id, text))
        )

    def _is_parallel(self, one: RunningCall) -> bool:
        tool = self._tools.get(one.call.name)
        return tool is not None and tool.runs_in_parallel(one.call.args)

    async def _run_one(self, one: RunningCall, guard: LoopGuard) -> None:
        try:
            outcome = await self._outcome(one)
        except asyncio.CancelledError:
            stopped = Outcome(NOT_STARTED, is_error=True, ended="not_run")
            if one.started:
                stopped = Outcome(STOPPED, is_error=True, ended="interrupted")
            await self._record(one, stopped)
            raise
        try:
            outcome = await self._with_additions(one, outcome)
        finally:  # an interrupt does not change what the call has done
            await self._record(one, outcome, guard)

    async def _with_additions(self, one: RunningCall, outcome: Outcome) -> Outcome:
        """The outcome with what the model should know beside it. What cannot be added is logged."""
        if one.observed is None:
            return outcome
        later = one.message.calls[[call.id for call in one.message.calls].index(one.call.id) + 1 :]
        more_edits = any(call.name in self._editing for call in later)
        try:
            for add_to in self._additions if self._caller.gets_extensions() else self._additions[:1]:
                outcome = await add_to(outcome, msgspec.structs.replace(one.observed, more_edits=more_edits))
        except Exception:
            log.exception("adding to the result of %s failed", one.call.name)
        return outcome

    async def _outcome(self, one: RunningCall) -> Outcome:
        """Checks, decides and executes. Only cancellation and StorageError are raised."""
        call = one.call
        if one.message.finish == "length":
            return Outcome(TRUNCATED, is_error=True)
        try:
            context = self._new_context(call)
            amended = ""
            while True:
                tool, args = check_call(self._tools, call)
                accesses = tool.accesses(args, context)
                event = HookEvent("PreToolUse", call=call, accesses=accesses, task=self._task)
                hooked = await self._approvals.hooks.fire(event)
                self._stopped, one.context = self._stopped or hooked.stop, hooked.context
                if hooked.args is not None:
                    one.changed = hooked.args if hooked.args != call.args else one.changed
                    call = one.call = msgspec.structs.replace(call, args=hooked.args)
                    tool, args = check_call(self._tools, call)
                    accesses = tool.accesses(args, context)
                needed = tool.consent(args, context)
                preview = needed.show if needed else partial(tool.preview, args, context)
                ruling = await self._approvals.rule(
                    call, accesses, preview, self._task, self._workspace.cwd, hooked, self._batch
                )
                if ruling.args is None:
                    break
                if ruling.answer is not None:
                    amended = f"The user changed the command before it ran: {ruling.args['command']}\n"
                one.changed = ruling.args if ruling.answer is None else None
                call = one.call = msgspec.structs.replace(call, args=ruling.args)
            observed = one.observed = await self._record_decision(one, accesses, ruling)
            if ruling.refusal:
                return Outcome(ruling.refusal, is_error=True)
            if needed is not None:
                needed.accept()
            if self._recorder is not None:
                await self._recorder.begins(observed)
            if not observed.only_reads:
                await self._session.begin_call(one.message, one.call)
            await self._verify_database()
            granted = msgspec.structs.replace(context, needs=ruling.needs)
            outcome = await self._execute(one, observed, tool, args, granted)
            note = describe_unknown(tool, call.args)
            return msgspec.structs.replace(outcome, text=f"{amended}{outcome.text}{note}")
        except (ToolError, OSError) as error:
            return _failure(one.call, error)
        except StorageError:
            raise
        except Exception as error:
            log.exception("%s failed", one.call.name)
            reason = f"{type(error).__name__}: {error}"
            text = f"{one.call.name} failed inside crushpy ({reason}). It may not have run."
            return Outcome(text, is_error=True)

    async def run_for_user(self, call: ToolCall, tool: AnyTool | None = None) -> str:
        """The result of a call that the user asks for, judged as one of the agent's. `tool`: if that need not
        have it. Raises ToolError if it may not run, or a hook or the user wants another."""
        tools = {call.name: tool} if tool is not None else self._tools
        tool, args = check_call(tools, call)
        context = CallContext(self._workspace, self._caller, call.id)
        accesses, preview = tool.accesses(args, context), partial(tool.preview, args, context)
        hooked = await self._approvals.hooks.fire(HookEvent("PreToolUse", call=call, accesses=accesses))
        if hooked.args is not None:
            raise ToolError("a hook wants to change it")
        ruling = await self._approvals.rule(call, accesses, preview, hooked=hooked)
        decided = self._approvals.decided(accesses, ruling)
        observed = ObservedCall(self._session.info.id, "", call, accesses, decided)
        if not observed.only_reads:
            await self._audit.record(observed, ruling)
        if ruling.ended:
            raise asyncio.CancelledError
        if ruling.refusal or ruling.args is not None:
            raise ToolError(ruling.refusal or "the call was changed")
        return (await tool.run(args, msgspec.structs.replace(context, needs=ruling.needs))).text

    async def _record_decision(
        self, one: RunningCall, accesses: tuple[Access, ...], ruling: Ruling
    ) -> ObservedCall:
        """Records the decision in the audit; for a call that only reads, together with its result.

        Raises CancelledError if the user ended the turn while the question was open.
        """
        one.decision = self._approvals.decided(accesses, ruling)
        observed = ObservedCall(
            self._session.info.id, one.message.id, one.call, accesses, one.decision, self._task
        )
        if observed.only_reads:
            root, decided = self._session.info.root_id, self._audit.entry(observed, ruling)
            one.start = CallStart(one.message.id, one.call, time.time(), root, decided)
        else:
            await self._audit.record(observed, ruling)
        if ruling.ended:
            raise asyncio.CancelledError
        return observed

    async def _execute(
        self, one: RunningCall, observed: ObservedCall, tool: AnyTool, args: Args, context: CallContext
    ) -> Outcome:
        try:
            one.started = True
            self._emit(ToolStarted(one.call.id))
            return await self._with_feedback(one, observed, await tool.run(args, context))
        except ConsentNeeded as needed:
            ruling = await self._approvals.rule(one.call, (needed.access,), needed.show, self._task)
            await self._record_decision(one, (needed.access,), ruling)
            if ruling.refusal:
                return Outcome(ruling.refusal, is_error=True)
            needed.accept()
            return await self._execute(one, observed, tool, args, context)
        except (ToolError, OSError) as error:
            return await self._with_feedback(one, observed, _failure(one.call, error))
        finally:
            if self._recorder is not None:
                ended = self._recorder.ended(observed)
                await (ended if observed.only_reads else uncancellable(ended))  # reading leaves nothing to do

    async def _with_feedback(self, one: RunningCall, observed: ObservedCall, outcome: Outcome) -> Outcome:
        event = HookEvent("PostToolUse", "", {}, one.call, observed.accesses, outcome, self._task)
        reply = await self._approvals.hooks.fire(event)
        self._stopped = self._stopped or reply.stop
        return with_feedback(outcome, reply, one.changed, one.context)

    async def _record(self, one: RunningCall, outcome: Outcome, guard: LoopGuard | None = None) -> None:
        text = truncate(outcome.text, self._caller.result_chars()).text
        if guard is not None:
            text += guard.record(one.call, text)
        text += outcome.attached
        result = ToolResult(
            one.call.id,
            one.call.name,
            text,
            outcome.is_error,
            outcome.images,
            outcome.display,
            one.decision,
            outcome.ended,
            outcome.loaded,
        )
        one.recorded = True
        await uncancellable(self._store(one, result, outcome))
        self._rules.stored(outcome)

    async def _store(self, one: RunningCall, result: ToolResult, outcome: Outcome) -> None:
        await self._session.add_result(result, one.start)
        self._emit(ToolFinished.from_result(result))
        if outcome.todos is not None:
            await self._session.set_todos(outcome.todos)

    async def _change_session(self, calls: list[RunningCall], guard: LoopGuard) -> None:
        """Carries out the first of these calls once all others are done and stored."""
        for later in calls[1:]:
            await self._record(later, Outcome(ONLY_ONE, is_error=True))
        for call in calls[:1]:
            cut = call.message.finish == "length"
            refused = TRUNCATED if cut else self._session_calls.problem_with(call.call)
            if not refused:

                def on_stored(result: ToolResult, asked: RunningCall = call) -> None:
                    asked.recorded = True  # stored with the boundary
                    guard.record(asked.call, result.text)
                    self._emit(ToolFinished.from_result(result))

                await self._session_calls.offer_pins(call.call)
                self._emit(ToolStarted(call.call.id))
                refused = await self._session_calls.carry_out(call.message, call.call, on_stored)
            if refused:
                await self._record(call, Outcome(refused, is_error=True), guard)


def _failure(call: ToolCall, error: ToolError | OSError) -> Outcome:
    text = str(error) if isinstance(error, ToolError) else f"{call.name} failed: {error}"
    return Outcome(text, is_error=True)
