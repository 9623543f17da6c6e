"""Questions that wait for their answers: of the user, of a server, of an editor."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class PendingAnswers(Generic[T]):
    """All of one kind, by id."""

    def __init__(self) -> None:
        self._waiting: dict[object, asyncio.Future[T]] = {}

    async def wait(self, key: object) -> T:
        """The answer to a question. Raises an answer that is an exception."""
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        finally:
            del self._waiting[key]

    def settle(self, key: object, answer: T | Exception) -> bool:
        """Answers a question; False if none of that id is open."""
        waiting = self._waiting.get(key)
        if waiting is None or waiting.done():
            return False
        waiting.set_exception(answer) if isinstance(answer, Exception) else waiting.set_result(answer)
        return True

    def settle_all(self, error: Exception) -> None:
        """No answer will come any more."""
        for key in self._waiting:
            self.settle(key, error)
