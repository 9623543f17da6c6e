"""Runs the tool calls of one reply: check, permission, intent, run, result. Every call gets one result."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby, islice

from crushpy.core.events import Event, ToolCalled, ToolFinished, ToolOutput, ToolStarted
from crushpy.core.messages import CallDecision, Display, Message, ToolCall, ToolResult
from crushpy.engine.approvals import Approvals
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.engine.session.session import LiveSession
from crushpy.engine.turn.call_observer import CallObserver, CallObservers, ObservedCall
from crushpy.engine.turn.loop_guard import LoopGuard
from crushpy.engine.turn.parallel import HEARING, TOLD_AT_A_TIME, CallBatch, answer_in_parallel
from crushpy.engine.turn.toolset import NEW_SESSION
from crushpy.storage.call_records import CallStart
from crushpy.storage.records import StorageError
from crushpy.tools.base import AnyTool, Args, Outcome, ToolContext
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import check_args
from crushpy.tools.truncate import truncate
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

Emit = Callable[[Event], None]
NewSession = Callable[[ToolResult, str, Callable[[ToolResult], None]], Awaitable[str]]
"""Ends the session with the agent's own summary; says why not, where it does not."""
OfferPins = Callable[[ToolCall, Sequence[str]], Awaitable[None]]
"""Asks the user about the pins that a `new_session` proposes."""

ONLY_ONE = "Only one new_session in a reply counts; this one was not carried out."
CUT_SHORT = (
    "Not run: the reply was cut off at the output limit, so this call may be incomplete. "
    "Call again with less at once (smaller edits, a file in several parts)."
)
STOPPED = (
    "Interrupted by the user while it ran. What it had done by then stays done; check before repeating it."
)
NOT_STARTED = "Not run: interrupted by the user."


class ToolRunner:
    """The tools of one conversation. `unasked` tells whether a permission was needed and nobody was there."""

    def __init__(
        self,
        tools: tuple[AnyTool, ...],
        context: ToolContext,
        session: LiveSession,
        approvals: Approvals,
        audit: AuditTrail,
        new_session: NewSession,
        emit: Emit,
        task: str = "",
        offer_pins: OfferPins | None = None,
        watches: Sequence[CallObserver] = (),
    ) -> None:
        """`task` is the call for which a sub-agent works; empty for the main agent."""
        self._task = task
        self._tools = {tool.name: tool for tool in tools}
        self._new_session = new_session
        self._offer_pins = offer_pins
        self._watches = CallObservers(watches)
        self._context = context
        self._session = session
        self._approvals = approvals
        self._audit = audit
        self._emit = emit
        self._begun: set[str] = set()
        """Calls that may have had an effect: a call that was still waiting for permission has not."""
        self._decided: dict[str, CallDecision] = {}
        """What was decided about calls that have no result yet."""
        self._starts: dict[str, CallStart] = {}
        """How calls began that change nothing: stored with their results."""
        self.unasked = False

    async def run(self, message: Message, guard: LoopGuard) -> None:
        """Runs the calls of `message` in order; neighbours that change nothing run side by side."""
        answered: set[str] = set()
        fresh_starts = [call for call in message.calls if call.name == NEW_SESSION]
        others = [call for call in message.calls if call.name != NEW_SESSION]
        unannounced = iter(message.calls)
        try:
            while announced := list(islice(unannounced, TOLD_AT_A_TIME)):
                self._announce(announced)
                await asyncio.sleep(HEARING)  # keys are heard in between
            for side_by_side, group in groupby(others, self._is_parallel):
                calls = list(group)
                if side_by_side:
                    at = CallBatch(self._context)
                    await answer_in_parallel(
                        calls,
                        lambda call, at=at: self._answer(message, call, guard, answered, at),
                    )
                else:
                    for call in calls:
                        await self._answer(message, call, guard, answered, CallBatch(self._context))
            await self._start_afresh(message, fresh_starts, guard, answered)
        except asyncio.CancelledError:
            self._announce(unannounced)
            for call in message.calls:
                if call.id not in answered:
                    with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                        await self._finish(
                            call, Outcome(NOT_STARTED, is_error=True, ended="not_run"), answered
                        )
            raise

    def _announce(self, calls: Iterable[ToolCall]) -> None:
        for call in calls:
            self._emit(ToolCalled(call.id, call.name, call.args))

    async def _start_afresh(
        self, message: Message, calls: list[ToolCall], guard: LoopGuard, answered: set[str]
    ) -> None:
        """Carries out `new_session` once all other calls are done and stored. One of a batch counts."""
        for later in calls[1:]:
            await self._finish(later, Outcome(ONLY_ONE, is_error=True), answered)
        for call in calls[:1]:
            problem = "" if message.finish == "length" else self._problem_with(call)
            if message.finish == "length" or problem:
                await self._finish(call, Outcome(problem or CUT_SHORT, is_error=True), answered, guard)
                continue
            if self._offer_pins is not None:
                await self._offer_pins(call, tuple(call.args.get("pin") or ()))
            await self._session.begin_call(message, call)
            self._emit(ToolStarted(call.id))

            def tell(result: ToolResult) -> None:
                answered.add(result.call_id)  # the boundary has stored it
                self._emit(ToolFinished(result.call_id, result.name, result.is_error, result.text))

            answers = ToolResult(call.id, call.name, "")
            refused = await self._new_session(answers, str(call.args["summary"]), tell)
            if refused:
                await self._finish(call, Outcome(refused, is_error=True), answered, guard)

    def _problem_with(self, call: ToolCall) -> str:
        """Why this `new_session` cannot be; empty where it can."""
        if self._session.info.compaction != "llm":
            return "new_session is not available: crushpy itself decides when to start afresh (method auto)."
        try:
            self._checked(call)
        except ToolError as error:
            return str(error)
        if not str(call.args["summary"]).strip():
            return "The summary is empty. Write down what the next session needs, in the shape described."
        if self._session.seed is not None and not self._has_worked():
            return "This session was just opened. Do some work in it before you start another."
        return ""

    def _has_worked(self) -> bool:
        """True once another tool call has ended or a prompt has come since this session was opened."""
        return any(
            (message.result is not None and message.result.name != NEW_SESSION)
            or (message.role == "user" and (message.says_something or message.images))
            for message in self._session.own_messages
        )

    def _is_parallel(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.side_by_side(call.args)

    async def _answer(
        self, message: Message, call: ToolCall, guard: LoopGuard, answered: set[str], at: CallBatch
    ) -> None:
        try:
            outcome = await self._outcome(message, call, at)
        except asyncio.CancelledError:
            stopped = Outcome(NOT_STARTED, is_error=True, ended="not_run")
            if call.id in self._begun:
                stopped = Outcome(STOPPED, is_error=True, ended="interrupted")
            await self._finish(call, stopped, answered)
            raise
        await self._finish(call, outcome, answered, guard)

    async def _finish(
        self, call: ToolCall, outcome: Outcome, answered: set[str], guard: LoopGuard | None = None
    ) -> None:
        text = truncate(outcome.text).text
        if guard is not None:
            text += guard.seen(call, text)
        result = ToolResult(
            call.id,
            call.name,
            text,
            outcome.is_error,
            outcome.images,
            outcome.display,
            self._decided.pop(call.id, None),
            outcome.ended,
        )
        answered.add(call.id)
        await uncancellable(self._keep(result, outcome))

    async def _keep(self, result: ToolResult, outcome: Outcome) -> None:
        await self._session.add_result(result, self._starts.pop(result.call_id, None))
        images = tuple(image.info for image in result.images)
        self._emit(
            ToolFinished(
                result.call_id,
                result.name,
                result.is_error,
                result.text,
                result.display,
                images,
                result.decision,
                result.ended,
            )
        )
        if outcome.todos is not None:
            await self._session.set_todos(outcome.todos)

    async def _outcome(self, message: Message, call: ToolCall, at: CallBatch) -> Outcome:
        if message.finish == "length":
            return Outcome(CUT_SHORT, is_error=True)
        try:
            tool, args = self._checked(call)
            context, known = at.now()
            accesses = tool.accesses(args, context)

            async def preview() -> Display | None:
                return await tool.preview(args, context)

            ruling = await self._approvals.rule(call, accesses, preview, self._task, context.cwd, known)
            decision = self._decided[call.id] = self._approvals.decided(accesses, ruling)
            watched = ObservedCall(self._session.info.id, message.id, call, accesses, decision, self._task)
            if watched.only_reads:
                decided = self._audit.entry(watched, ruling)
                self._starts[call.id] = CallStart(message.id, call, time.time(), decided)
            else:
                await self._audit.record(watched, ruling)
            if ruling.ended:
                raise asyncio.CancelledError
            if ruling.refusal:
                self.unasked = self.unasked or ruling.unasked
                return Outcome(ruling.refusal, is_error=True)
            await self._watches.begins(watched, ruling)
            if not watched.only_reads:
                await self._session.begin_call(message, call)
            lent = context.for_call(call.id, lambda text: self._emit(ToolOutput(call.id, text)), ruling.needs)
            outcome: Outcome | None = None
            try:
                self._begun.add(call.id)
                self._emit(ToolStarted(call.id))
                running: Awaitable[Outcome] = tool.run(args, lent)
                outcome = await running
                return outcome
            except (ToolError, OSError) as error:
                outcome = _failed(call, error)
                return outcome
            finally:
                ended = self._watches.ended(watched, outcome)
                await (ended if watched.only_reads else uncancellable(ended))  # reading leaves nothing to do
        except (ToolError, OSError) as error:
            return _failed(call, error)
        except StorageError:
            raise
        except Exception as error:
            log.exception("%s failed", call.name)
            text = (
                f"{call.name} failed inside crushpy ({type(error).__name__}: {error}). It may not have run."
            )
            return Outcome(text, is_error=True)

    def _checked(self, call: ToolCall) -> tuple[AnyTool, Args]:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise ToolError(f"There is no tool named {call.name!r}. There are: {known}.")
        if call.bad_json:
            raise ToolError(
                f"The arguments of {call.name} are not a JSON object: {call.bad_json[:200]!r}. "
                "Call it again with one."
            )
        return tool, check_args(tool, call.args)


def _failed(call: ToolCall, error: ToolError | OSError) -> Outcome:
    return Outcome(
        str(error) if isinstance(error, ToolError) else f"{call.name} failed: {error}", is_error=True
    )
