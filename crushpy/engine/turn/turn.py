"""The turn: from a user's prompt until the agent stops. Ask the model, run the calls it asks for, repeat."""

import asyncio
from contextlib import suppress

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Error, Notice, TurnEnded
from crushpy.core.messages import Message
from crushpy.engine.turn.limits import BudgetReached, LoopGuard, Spent
from crushpy.engine.turn.parts import Steer, TurnParts
from crushpy.llm.errors import ContextOverflow, ModelError
from crushpy.util.uncancellable import uncancellable


class Turn:
    """One turn of one agent. `run` never raises, and the history is valid afterwards."""

    def __init__(self, parts: TurnParts, spent: Spent) -> None:
        self._parts, self._emit, self._spent = parts, parts.emit, spent
        self.failure: CrushpyError | None = None

    async def run(self, prompt: Message, steer: Steer) -> TurnStatus:
        status: TurnStatus
        try:
            try:
                status = await self._steps(prompt, steer)
            except asyncio.CancelledError:
                status = "interrupted"
            except BudgetReached as error:
                status, self.failure = "limit", error
                self._emit(Notice(f"Stopped: {error.message}", "warning"))
            with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await uncancellable(self._parts.ending.end(status))
        except Exception as error:
            status, self.failure = "error", self._parts.ending.explain(error)
            kind = self.failure.kind if isinstance(self.failure, ModelError) else "failed"
            self._emit(Error(kind, self.failure.message, self.failure.hint))
        self._emit(TurnEnded(status))
        return status

    async def _steps(self, prompt: Message, steer: Steer) -> TurnStatus:
        guard = LoopGuard()
        await self._parts.history.add_prompt(prompt)
        while not (reached := self._spent.reached()) or await self._goes_past(reached):
            self._spent.step()
            reply = await self._ask()
            if reply.calls:
                if not await self._parts.calls.run(reply, guard):
                    return "done"
                if guard.stuck:
                    self._emit(Notice("Stopped: the same call gave the same result ten times.", "warning"))
                    return "loop"
                if not self._spent.reached():
                    await steer()
            elif not await self._parts.ending.goes_on(reply):
                return "done"
        self._emit(Notice(f"Stopped: {reached}.", "warning"))
        return "limit"

    async def _goes_past(self, reached: str) -> bool:
        if await self._parts.ending.goes_past(reached):
            self._spent.go_on()
        return not self._spent.reached()

    async def _ask(self) -> Message:
        """The next reply; a request that is too large is made smaller and sent again."""
        model, compaction = self._parts.model, self._parts.compaction
        while True:
            await compaction.before_model_call()
            try:
                reply = await model.ask()
            except ContextOverflow as error:
                await compaction.recover_from_overflow(error)
                continue
            await compaction.after_reply(reply)
            return reply
