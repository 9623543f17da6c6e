"""Stops boundaries that do not help: two in a row without getting under the threshold are enough."""

import time

import msgspec

from crushpy.engine.session.session import LiveSession
from crushpy.storage.records import BreakerState

REARM = 1.25
"""Growth of the window's use after which trying again makes sense."""
PAUSE = 60.0
"""Seconds after a summariser that could not be reached."""
IN_VAIN = 2
JUDGED = ("auto", "fallback")
"""Triggers of the boundaries that are crushpy's own idea."""


class CircuitBreaker:
    """Judged by the usage the provider reports after a boundary, not by our own hopes.

    Its state is stored with the session and goes over boundaries, so that one prompt per process cannot make
    boundaries for ever.
    """

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._not_before = 0.0

    @property
    def _state(self) -> BreakerState:
        return self._session.info.breaker

    async def reported(self, used: int, limit: float) -> bool:
        """The first report after a boundary tells whether it helped. True where it stops boundaries now."""
        state = self._state
        if not state.unjudged:
            return False
        in_vain = state.in_vain + 1 if used >= limit else 0
        stops = in_vain >= IN_VAIN
        await self._set(in_vain=in_vain, unjudged=False, stopped_at=used if stops else None)
        return stops

    def postponed(self) -> None:
        self._not_before = time.monotonic() + PAUSE

    async def rearm(self) -> None:
        """By hand, or after growth: try again."""
        await self._set(in_vain=0, stopped_at=None)

    async def reset(self) -> None:
        """Another model or another history: nothing of what was seen holds."""
        await self._session.set_breaker(BreakerState())

    async def blocks(self, used: int) -> bool:
        stopped_at = self._state.stopped_at
        if stopped_at is not None and used >= REARM * stopped_at:
            await self.rearm()
        return self._state.stopped_at is not None or time.monotonic() < self._not_before

    async def first_time(self) -> bool:
        """True once in a conversation: the user is told once what fills the window."""
        if self._state.told:
            return False
        await self._set(told=True)
        return True

    async def _set(self, **changes: object) -> None:
        await self._session.set_breaker(msgspec.structs.replace(self._state, **changes))


def after_boundary(state: BreakerState, trigger: str) -> BreakerState:
    """What the child of a boundary starts with."""
    return msgspec.structs.replace(state, unjudged=True) if trigger in JUDGED else state
