"""Runs one piece of work at a time for a conversation, which the user may interrupt."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Notice
from crushpy.engine.compaction.draft import Declined
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.event_bus import EventBus
from crushpy.util.spawn import spawn


class RunSlot:
    """`start` work while it is not `busy`; the work calls `finish` when it ends."""

    def __init__(self, emit: EventBus) -> None:
        self._emit = emit
        self.running: asyncio.Task[Any] | None = None
        self.failure: CrushpyError | None = None
        """Why the last turn or task list failed."""

    @property
    def busy(self) -> bool:
        return self.running is not None

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.running = spawn(work)
        return self.running

    def finish(self) -> None:
        self.running = None

    def interrupt(self) -> bool:
        """Cancels the running work. False if there is none."""
        if self.running is None:
            return False
        # Not at once: a task cancelled before its first step never runs, and its prompt would be lost.
        asyncio.get_running_loop().call_soon(self.running.cancel)
        return True

    def report(self, text: str, level: str = "info") -> None:
        self._emit(Notice(text, level), now=True)

    async def run_exclusively(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs work that must not overlap a turn; a failure becomes a notice."""
        if self.busy:
            work.close()
            self.report("Not while the agent is working. Interrupt it first.", "warning")
            return None
        try:
            return await asyncio.shield(self.start(work))
        except (Postponed, CrushpyError) as error:
            self.report(f"{error}", "warning")
        except Declined:
            self.report("Declined: nothing has changed.")
        except asyncio.CancelledError:
            self.report("Interrupted: nothing has changed.")
        finally:
            self.finish()
        return None
