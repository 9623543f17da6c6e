"""Shows a summary to the user before it takes effect, and waits for their word."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from crushpy.core.events import Event, ReviewDone, ReviewNeeded
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Seed


class Verdict(Data, frozen=True):
    """What the user said to a summary."""

    kind: Literal["accept", "regenerate", "decline"]
    text: str = ""
    """accept: the summary as edited (empty: as it is); regenerate: a note; decline: words for the agent."""


class ReviewGate:
    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self.seconds = 0.0
        """How long the user was waited for, in all."""

    def answer(self, review_id: str, verdict: Verdict) -> bool:
        """Answers a review that waits; False where none of that id does."""
        waiting = self._waiting.get(review_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(verdict)
        return True

    async def ask(self, trigger: str, seed: Seed, before: int, after: int) -> Verdict:
        review_id = new_id()
        waiting: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[review_id] = waiting
        self._emit(ReviewNeeded(review_id, trigger, seed.summary, seed.evidence, before, after))
        verdict: Verdict | None = None
        asked = time.monotonic()
        try:
            verdict = await waiting
            return verdict
        finally:
            del self._waiting[review_id]
            self.seconds += time.monotonic() - asked
            self._emit(ReviewDone(review_id, verdict.kind if verdict else "interrupted"))
