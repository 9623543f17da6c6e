"""The turn: from a user's prompt until the agent stops. Ask the model, run what it asks for, again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Error, Event, Notice, TurnEnded, UsageReported
from crushpy.core.messages import Message
from crushpy.engine.compaction.overflow import OverflowRecovery
from crushpy.engine.compaction.policy import CompactionPolicy
from crushpy.engine.compaction.view import ContextView
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.loop_guard import LoopGuard
from crushpy.engine.turn.mode_notes import ModeNotes
from crushpy.engine.turn.model_call import Draft
from crushpy.engine.turn.once import Once
from crushpy.engine.turn.recorded_calls import RecordedCalls
from crushpy.engine.turn.tool_runner import ToolRunner
from crushpy.engine.unexpected import unexpected
from crushpy.llm.errors import ContextOverflow, ModelError
from crushpy.llm.protocol import Request
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

Status = Literal["done", "interrupted", "error", "limit", "loop"]
Steer = Callable[[], Awaitable[None]]


class Turn:
    """One turn of one session. `run` never raises: whatever happens, the session is valid afterwards."""

    def __init__(
        self,
        session: LiveSession,
        models: Models,
        view: ContextView,
        policy: CompactionPolicy,
        overflow: OverflowRecovery,
        tools: ToolRunner,
        emit: Callable[[Event], None],
        spent: Spent,
        mode_notes: ModeNotes,
        *,
        keep_prompt: bool = False,
        steer: Steer | None = None,
    ) -> None:
        """`keep_prompt`: store the prompt even where no model could be asked, for a user who sees it then.

        `steer` is awaited between two steps, when every call has its result: prompts may be added there.
        """
        self._steer = steer
        self._keep_prompt = keep_prompt
        self._session = session
        self._models = models
        self._view = view
        self._policy = policy
        self._overflow = overflow
        self._tools = tools
        self._emit = emit
        self._spent = spent
        self._calls = RecordedCalls(session, models, spent, emit)
        self._mode_notes = mode_notes
        self.failure: CrushpyError | None = None
        """Why it ended in error."""

    async def run(self, prompt: Message) -> Status:
        prompt = self._mode_notes.with_prompt(prompt)
        commit = Once(lambda: self._session.add_prompt(prompt))
        try:
            status = await self._until_stopped(prompt, commit)
        except CrushpyError as error:
            if self._keep_prompt and not commit.done:
                with suppress(CrushpyError):
                    await commit()
            status = self._fail(error)
        except Exception as error:
            log.exception("the turn failed")
            status = self._fail(unexpected(error))
        self._emit(TurnEnded(status))
        return status

    async def _until_stopped(self, prompt: Message, commit: Once) -> Status:
        try:
            model = self._session.info.model
            if self._session.stored:
                await commit()
            await self._models.prepare(model)
            if not commit.done and self._models.slow_to_begin(model):
                self._models.warm_up(model)
                await commit()
            return await self._steps_until_done(prompt, commit)
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await uncancellable(
                    commit()
                )  # the user's words are kept, however early they changed their mind
            return "interrupted"

    def _fail(self, error: CrushpyError) -> Status:
        self.failure = error
        kind = error.kind if isinstance(error, ModelError) else "failed"
        self._emit(Error(kind, error.message, error.hint))
        return "error"

    async def _steps_until_done(self, prompt: Message, commit: Once) -> Status:
        guard = LoopGuard()
        while True:
            reached = self._spent.reached()
            if reached:
                self._emit(Notice(f"Stopped: {reached}.", "warning"))
                return "limit"
            self._spent.step()
            message = await self._ask_model(prompt, commit)
            if not message.calls:
                if message.finish == "length":
                    self._emit(Notice("The reply was cut off at the output limit.", "warning"))
                return "done"
            await self._tools.run(message, guard)
            if guard.stuck:
                self._emit(Notice("Stopped: the same call gave the same result ten times.", "warning"))
                return "loop"
            if self._steer is not None and not self._spent.reached():
                await self._steer()

    async def _ask_model(self, prompt: Message, commit: Once) -> Message:
        """One step's reply, stored. A new session's first request leaves before the prompt is committed."""
        while True:
            if commit.done:
                await self._policy.before_call()
                await self._mode_notes.tell()
                await asyncio.sleep(0)  # after thousands of results: keys are heard in between
            request = self._view.next_request(() if commit.done else (prompt,))
            call = self._calls.begin(request, commit)
            try:
                draft = await call.run()
            except asyncio.CancelledError:
                await uncancellable(self._keep_partial(call.draft, request.model))
                raise
            except ContextOverflow as error:
                await self._overflow.shrink(error)
                continue
            return await self._keep(draft, request)

    async def _keep(self, draft: Draft, request: Request) -> Message:
        message = await uncancellable(self._stored(draft, request.model))
        self._overflow.replied()
        await self._policy.after_reply(message)
        if draft.status_moved:
            self._models.learn_placement(request.model)
        if message.usage is not None:
            self._spent.use(message.usage)
            self._emit(UsageReported(message.usage, self._session.usage))
        return message

    async def _stored(self, draft: Draft, model: str) -> Message:
        message = self._models.priced(await draft.message(model, self._session.call_ids))
        await self._session.add_reply(message)
        return message

    async def _keep_partial(self, draft: Draft, model: str) -> None:
        partial = draft.interrupted(model)
        if partial is not None:
            await self._session.add_reply(msgspec.structs.replace(partial, usage=draft.usage))
