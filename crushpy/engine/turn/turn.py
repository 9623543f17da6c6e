"""The turn: from a user's prompt until the agent stops. Ask the model, run the calls it asks for, repeat."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Error, Notice, TurnEnded, UsageReported
from crushpy.core.messages import Message, Note, SentStatus
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.policy import CompactionPolicy
from crushpy.engine.compaction.window import ContextView
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.hooks import sent_back
from crushpy.engine.session.export import rescued
from crushpy.engine.turn.limits import LoopGuard, Spent
from crushpy.engine.turn.mode_notes import ModeNotes
from crushpy.engine.turn.model_call import Draft, RecordedCall
from crushpy.engine.turn.tool_runner import ToolRunner
from crushpy.llm.errors import ContextOverflow, ModelError
from crushpy.llm.protocol import Request
from crushpy.storage.records import DatabaseLost
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

AddQueuedPrompts = Callable[[], Awaitable[None]]
THINKING_DROPPED = "The provider refused the model's earlier thinking, so this request was sent without it."


class Turn:
    """One turn of one agent; a boundary may move it to a child session. `run` never raises, and the history
    is valid afterwards."""

    def __init__(
        self, scope: AgentScope, view: ContextView, policy: CompactionPolicy, tools: ToolRunner, spent: Spent
    ) -> None:
        self._scope, self._session = scope, scope.session
        self._models, self._emit = scope.models, scope.emit
        self._view, self._policy, self._tools = view, policy, tools
        self._spent = spent
        self._steer: AddQueuedPrompts | None = None
        self._mode_notes = ModeNotes(scope)
        self._told_thinking_dropped = False
        self.failure: CrushpyError | None = None

    async def run(self, prompt: Message, steer: AddQueuedPrompts | None = None) -> TurnStatus:
        """`steer` is awaited between two steps, when every call has its result: it may add prompts."""
        self._steer = steer
        try:
            status = await self._until_stopped(prompt)
            with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await uncancellable(self._policy.branches.return_all(status))
        except CrushpyError as error:
            status = self._fail(rescued(self._session, error) if isinstance(error, DatabaseLost) else error)
        except Exception as error:
            log.exception("the turn failed")
            status = self._fail(unexpected_error(error))
        self._emit(TurnEnded(status))
        return status

    async def _until_stopped(self, prompt: Message) -> TurnStatus:
        try:
            await self._store_prompt(self._mode_notes.with_prompt(prompt))
            return await self._steps_until_done()
        except asyncio.CancelledError:
            return "interrupted"

    async def _store_prompt(self, prompt: Message) -> None:
        """Raises if there is no provider, which the prompt could be sent to: it is not stored then."""
        try:
            await self._models.prepare(self._session.info.model, tools=True)
        except asyncio.CancelledError:
            await uncancellable(self._session.add_prompt(prompt))
            raise
        await uncancellable(self._session.add_prompt(prompt))

    def _fail(self, error: CrushpyError) -> TurnStatus:
        self.failure = error
        kind = error.kind if isinstance(error, ModelError) else "failed"
        self._emit(Error(kind, error.message, error.hint))
        return "error"

    async def _steps_until_done(self) -> TurnStatus:
        guard, times = LoopGuard(), 0
        while True:
            reached = self._spent.reached()
            if reached:
                self._emit(Notice(f"Stopped: {reached}.", "warning"))
                return "limit"
            self._spent.step()
            message = await self._ask_model()
            if not message.calls:
                if message.finish == "length":
                    self._emit(Notice("The reply was cut off at the output limit.", "warning"))
                if self._policy.branches.opened_by_agent:
                    await self._policy.branches.close(message.text)
                    continue
                hooks = self._scope.services.approvals.hooks
                if reason := await sent_back(hooks, self._scope.task, message.text, times, self._emit):
                    times += 1
                    await self._session.add_note(Note(reason))
                    continue
                return "done"
            branches = self._session.branches
            await self._tools.run(message, guard)
            if self._tools.stopped:
                self._emit(Notice(f"Stopped by a hook: {self._tools.stopped}", "warning"))
                return "done"
            if branches and not branches[-1].call_id and branches[-1] not in self._session.branches:
                return "done"  # the agent returned from a branch of the user's
            if guard.stuck:
                self._emit(Notice("Stopped: the same call gave the same result ten times.", "warning"))
                return "loop"
            if self._steer is not None and not self._spent.reached():
                await self._steer()

    async def _ask_model(self) -> Message:
        """One step's reply, stored."""
        while True:
            await self._policy.before_model_call()
            await self._mode_notes.add_due_note()
            await asyncio.sleep(0)  # lets key presses through after thousands of results
            request = self._view.next_request()
            call = RecordedCall(self._scope, request, self._spent)
            try:
                draft = await call.run()
            except asyncio.CancelledError:
                await uncancellable(self._store_partial(call.draft, request))
                raise
            except ContextOverflow as error:
                await self._policy.recover_from_overflow(error)
                continue
            return await self._record(draft, request)

    async def _record(self, draft: Draft, request: Request) -> Message:
        message = await uncancellable(self._store(draft, request))
        await self._policy.after_reply(message)
        self._view.dropped_thoughts = draft.end.dropped_thoughts
        if draft.end.status_moved:
            self._models.learn(request.model, status_placement="append")
        if draft.end.thinking_dropped and not self._told_thinking_dropped:
            self._told_thinking_dropped = True
            self._emit(Notice(THINKING_DROPPED, "warning"))
        if message.usage is not None:
            self._spent.use(message.usage)
            self._emit(UsageReported(message.usage, self._session.usage))
        return message

    async def _store(self, draft: Draft, request: Request) -> Message:
        message = await draft.message(request.model, self._session.call_ids)
        message = self._models.priced(message, draft.end.search_cost)
        await self._store_status(request, draft)
        await self._session.add_reply(message)
        return message

    async def _store_status(self, request: Request, draft: Draft) -> None:
        """Stores what stays in later requests. Without its reply it has no effect."""
        if request.status_placement == "keep" and not draft.end.status_moved and request.messages:
            sent = request.tool_changes or SentStatus(request.messages[-1].id, request.status)
            if sent.text or sent.added or sent.removed:
                await self._session.add_status(sent)

    async def _store_partial(self, draft: Draft, request: Request) -> None:
        partial = draft.interrupted(request.model)
        if partial is not None:
            await self._store_status(request, draft)
            await self._session.add_reply(msgspec.structs.replace(partial, usage=draft.end.usage))
