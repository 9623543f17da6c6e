"""Runs one piece of work at a time for a conversation, which the user may interrupt, and queues prompts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Notice
from crushpy.core.messages import Message
from crushpy.engine.attachments import Attachments
from crushpy.engine.compaction.draft import Declined
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.event_bus import EventBus
from crushpy.util.spawn import spawn
from crushpy.util.uncancellable import uncancellable


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

    async def run_exclusively(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs work that must not overlap a turn; a failure becomes a notice."""
        if self.busy:
            work.close()
            self._emit.emit_now(Notice("Not while the agent is working. Interrupt it first.", "warning"))
            return None
        try:
            return await asyncio.shield(self.start(work))
        except (Postponed, CrushpyError) as error:
            self._emit.emit_now(Notice(f"{error}", "warning"))
        except Declined:
            self._emit.emit_now(Notice("Declined: nothing has changed."))
        except asyncio.CancelledError:
            self._emit.emit_now(Notice("Interrupted: nothing has changed."))
        finally:
            self.finish()
        return None


class QueuedPrompts:
    """In order of arrival. A delivered prompt is no longer in the queue."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._prompts: list[Message] = []
        self._next_step: set[str] = set()

    @property
    def prompts(self) -> tuple[Message, ...]:
        return tuple(self._prompts)

    def is_next(self, prompt_id: str) -> bool:
        """Whether it is sent with the next step of the running turn."""
        return prompt_id in self._next_step

    def add(self, prompt: Message, *, next_step: bool = False, first: bool = False) -> None:
        """`first`: before all others, because it could not be delivered."""
        self._prompts.insert(0 if first else len(self._prompts), prompt)
        if next_step:
            self._next_step.add(prompt.id)

    def send_next(self, prompt_id: str) -> bool | None:
        """Toggles whether a prompt is sent with the next step; None if it is no longer queued."""
        if all(prompt.id != prompt_id for prompt in self._prompts):
            return None
        self._next_step ^= {prompt_id}
        return prompt_id in self._next_step

    def remove(self, prompt_id: str) -> Message | None:
        prompt = next((one for one in self._prompts if one.id == prompt_id), None)
        if prompt is not None:
            self._discard(prompt)
            self._attachments.forget(prompt)
        return prompt

    def pop(self) -> Message | None:
        """The next prompt: those meant for a next step first."""
        urgent = [prompt for prompt in self._prompts if prompt.id in self._next_step]
        prompt = next(iter((*urgent, *self._prompts)), None)
        if prompt is not None:
            self._discard(prompt)
        return prompt

    def clear(self) -> None:
        self._prompts.clear()
        self._next_step.clear()

    async def deliver(self, add: Callable[[Message], Coroutine[Any, Any, None]]) -> None:
        """Passes the prompts for the next step to `add`, one by one; a prompt that fails stays queued."""
        for prompt in [one for one in self._prompts if one.id in self._next_step]:
            whole = await self._attachments.complete(prompt)
            if prompt not in self._prompts or prompt.id not in self._next_step:
                continue  # removed meanwhile
            place = self._prompts.index(prompt)
            self._discard(prompt)
            try:
                await uncancellable(add(whole))
            except Exception:
                self._prompts.insert(place, whole)
                raise

    def _discard(self, prompt: Message) -> None:
        self._prompts.remove(prompt)
        self._next_step.discard(prompt.id)
