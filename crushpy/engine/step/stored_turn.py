"""The parts of a turn that works in a stored session: its prompt, its replies and its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Notice, UsageReported
from crushpy.core.messages import Message, Note, SentStatus, Usage
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.branch_service import BranchService
from crushpy.engine.compaction.pins_and_rules import add_prompt
from crushpy.engine.compaction.window import ContextView
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.hooks import sent_back
from crushpy.engine.session.export import rescued
from crushpy.engine.step.mode_notes import ModeNotes
from crushpy.engine.step.model_call import Draft, RecordedCall
from crushpy.engine.turn.limits import Spent
from crushpy.llm.protocol import Request
from crushpy.storage.records import DatabaseLost
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

THINKING_DROPPED = "The provider refused the model's earlier thinking, so this request was sent without it."
PASSED_OVER = (
    "The call of {} in your reply was not run, because text follows it. "
    "Call it again and write nothing after it."
)

BehindPrompt = Callable[[Message], Awaitable[None]]
"""Adds what belongs behind a prompt, once that is stored."""


class StoredReplies:
    """Adds the prompt of a turn to a session, and asks its model for replies."""

    def __init__(
        self, scope: AgentScope, view: ContextView, spent: Spent, behind_prompt: BehindPrompt | None = None
    ) -> None:
        self._scope, self._session, self._behind_prompt = scope, scope.session, behind_prompt
        self._models, self._emit = scope.models, scope.emit
        self._view, self._spent = view, spent
        self._mode_notes = ModeNotes(scope)
        self._told_thinking_dropped = False
        self.passed_over = ""
        """The tool of a call in the text of the last reply that was not run."""

    async def add_prompt(self, prompt: Message) -> None:
        """Raises if there is no provider that the prompt could be sent to. Then it is stored only if the user
        sees it."""
        prompt = self._mode_notes.with_prompt(prompt)
        try:
            await self._models.prepare(self._session.info.model, tools=True)
        except (asyncio.CancelledError, CrushpyError) as error:
            if self._scope.interactive or isinstance(error, asyncio.CancelledError):
                await uncancellable(add_prompt(self._scope, prompt))
            raise
        await uncancellable(add_prompt(self._scope, prompt))
        if self._behind_prompt is not None:
            await self._behind_prompt(prompt)

    async def ask(self) -> Message:
        await self._mode_notes.add_due_note()
        await asyncio.sleep(0)  # lets key presses through after thousands of results
        request = self._view.next_request()
        call = RecordedCall(self._scope, request, self._spent)
        try:
            draft = await call.run()
        except asyncio.CancelledError:
            await uncancellable(self._store_partial(call.draft, request))
            raise
        message = await uncancellable(self._store(draft, request))
        self._view.dropped_thoughts = draft.end.dropped_thoughts
        self.passed_over = draft.end.passed_over
        if draft.end.status_moved:
            self._models.learn(request.model, status_placement="append")
        if message.calls:
            self._models.learn(request.model, call_form=draft.end.call_form)
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
            if draft.end.usage is None:  # only a complete reply reports its tokens: these are our count
                gauge, sent = self._scope.gauge, request.messages
                counted = Usage(gauge.request_size(request, sent), gauge.size(partial))
                await self._session.count(self._models.with_cost(request.model, counted))


class StoredEnding:
    """Ends the turn of an agent: its branches return, and hooks, or once a call that was not run, may send it
    back."""

    def __init__(self, scope: AgentScope, branches: BranchService, replies: StoredReplies) -> None:
        self._scope, self._session, self._emit = scope, scope.session, scope.emit
        self._branches, self._replies = branches, replies
        self._times_sent_back = 0
        self._told_passed_over = False

    async def goes_on(self, reply: Message) -> bool:
        if reply.finish == "length":
            self._emit(Notice("The reply was cut off at the output limit.", "warning"))
        if (name := self._replies.passed_over) and not self._told_passed_over:
            self._told_passed_over = True
            await self._session.add_note(Note(PASSED_OVER.format(name)))
            return True
        if self._branches.opened_by_agent:
            await self._branches.close(reply.text)
            return True
        hooks, task = self._scope.services.approvals.hooks, self._scope.task
        reason = await sent_back(hooks, task, reply.text, self._times_sent_back, self._emit)
        if reason:
            self._times_sent_back += 1
            await self._session.add_note(Note(reason, origin="hook"))
        return bool(reason)

    async def goes_past(self, reached: str) -> bool:
        services = self._scope.services
        may_ask = services.has_user and not self._scope.task
        return may_ask and await services.approvals.ask_to_go_on(f"Limit: {reached}.")

    async def end(self, status: TurnStatus) -> None:
        await self._branches.return_all(status)

    def explain(self, error: Exception) -> CrushpyError:
        if isinstance(error, DatabaseLost):
            return rescued(self._session, self._scope.services.store.location.file, error)
        if isinstance(error, CrushpyError):
            return error
        log.error("the turn failed", exc_info=error)
        return unexpected_error(error)
