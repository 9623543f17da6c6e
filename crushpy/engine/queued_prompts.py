"""Prompts queued while a turn runs, for its end or for its next step. They can be removed."""

from collections.abc import Callable, Coroutine
from typing import Any

from crushpy.core.messages import Message
from crushpy.engine.attachments import Attachments
from crushpy.util.uncancellable import uncancellable


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
