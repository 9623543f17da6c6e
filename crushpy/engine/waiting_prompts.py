"""Prompts that wait while a turn runs, for its end or for its next step. They can be taken back."""

from collections.abc import Awaitable, Callable

from crushpy.core.messages import Message
from crushpy.engine.attachments import Attachments
from crushpy.util.uncancellable import uncancellable


class WaitingPrompts:
    """In the order in which they came. One that was handed over is no longer here."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._prompts: list[Message] = []
        self._next_step: set[str] = set()

    @property
    def prompts(self) -> tuple[Message, ...]:
        return tuple(self._prompts)

    def is_next(self, prompt_id: str) -> bool:
        """It goes out with the next step of the running turn, and does not wait for its end."""
        return prompt_id in self._next_step

    def add(self, prompt: Message, *, next_step: bool) -> None:
        self._prompts.append(prompt)
        if next_step:
            self._next_step.add(prompt.id)

    def put_first(self, prompt: Message) -> None:
        """One that could not be handed over waits again, before the others."""
        self._prompts.insert(0, prompt)

    def send_next(self, prompt_id: str) -> bool | None:
        """Has one go out with the next step, or wait for the end again; None where it waits no longer."""
        if all(prompt.id != prompt_id for prompt in self._prompts):
            return None
        self._next_step ^= {prompt_id}
        return prompt_id in self._next_step

    def take_back(self, prompt_id: str) -> Message | None:
        prompt = next((one for one in self._prompts if one.id == prompt_id), None)
        if prompt is not None:
            self._remove(prompt)
            self._attachments.forget(prompt)
        return prompt

    def pop(self) -> Message | None:
        """The one whose turn it is: what was to go with a next step comes first."""
        hastened = [prompt for prompt in self._prompts if prompt.id in self._next_step]
        prompt = next(iter((*hastened, *self._prompts)), None)
        if prompt is not None:
            self._remove(prompt)
        return prompt

    def clear(self) -> None:
        self._prompts.clear()
        self._next_step.clear()

    async def deliver(self, add: Callable[[Message], Awaitable[None]]) -> None:
        """Hands those that are meant for the next step to `add`, one by one; what fails stays here."""
        for prompt in [one for one in self._prompts if one.id in self._next_step]:
            whole = await self._attachments.complete(prompt)
            if prompt not in self._prompts or prompt.id not in self._next_step:
                continue  # taken back meanwhile
            place = self._prompts.index(prompt)
            self._remove(prompt)
            try:
                await uncancellable(_awaited(add(whole)))
            except Exception:
                self._prompts.insert(place, whole)
                raise

    def _remove(self, prompt: Message) -> None:
        self._prompts.remove(prompt)
        self._next_step.discard(prompt.id)


async def _awaited(work: Awaitable[None]) -> None:
    await work
