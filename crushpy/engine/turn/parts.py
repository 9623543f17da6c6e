"""What a turn is made of. The loop knows only these protocols: `tests/engine/test_loop.py` runs it in memory.

The parts that work with storage, permissions and a provider are in `engine/step` and `engine/compaction`.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Emit
from crushpy.core.messages import Message
from crushpy.engine.turn.limits import LoopGuard
from crushpy.llm.errors import ContextOverflow

Steer = Callable[[], Awaitable[None]]
"""Awaited between two steps, when every call has its result: it may add prompts to the history."""


class AddsPrompts(Protocol):
    """The history."""

    async def add_prompt(self, prompt: Message, /) -> None:
        """Stores a prompt and emits it, also if it is cancelled. Raises if it cannot be sent."""
        ...


class AsksModel(Protocol):
    async def ask(self) -> Message:
        """The reply to the history: complete, stored and emitted. If it is cancelled, the part that has come
        is stored. Raises ModelError: ContextOverflow if the request was too large, BudgetReached if none
        may be sent."""
        ...


class RunsCalls(Protocol):
    async def run(self, reply: Message, guard: LoopGuard, /) -> bool:
        """Runs the calls of a reply: each gets exactly one result, stored and emitted, also if it is
        cancelled. Returns whether the turn goes on."""
        ...


class Compacts(Protocol):
    async def before_model_call(self) -> None:
        """Makes the history shorter if the window is full. Does not raise: then it stays as it is."""
        ...

    async def after_reply(self, reply: Message, /) -> None: ...

    async def recover_from_overflow(self, error: ContextOverflow, /) -> None:
        """Makes the next request smaller than the one that was refused. Raises if nothing helps."""
        ...


class EndsTurns(Protocol):
    async def goes_on(self, reply: Message, /) -> bool:
        """Whether another step follows a reply without calls."""
        ...

    async def goes_past(self, reached: str, /) -> bool:
        """Whether the user lets the turn go on beyond a number of steps."""
        ...

    async def end(self, status: TurnStatus, /) -> None:
        """The turn has ended, if not by an error."""
        ...

    def explain(self, error: Exception, /) -> CrushpyError:
        """The error to show."""
        ...


class TurnParts(NamedTuple):
    history: AddsPrompts
    model: AsksModel
    calls: RunsCalls
    compaction: Compacts
    ending: EndsTurns
    emit: Emit
