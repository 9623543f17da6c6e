"""Every other provider, through litellm, which runs in a process of its own: it is never imported here."""

from collections.abc import AsyncIterator
from itertools import count

from crushpy.core.messages import Json
from crushpy.http import Timeouts
from crushpy.llm.errors import ModelError
from crushpy.llm.litellm.frames import ProviderAccess
from crushpy.llm.litellm.helper_process import helper_process, running_helper
from crushpy.llm.protocol import Done, Piece, Request

_numbers = count(1)


def begin_loading() -> None:
    """Starts litellm's process where there is none."""
    try:
        helper_process()
    except ModelError:
        pass  # told with the request that needs it


class LiteLLMProvider:
    """Implements `llm.protocol.Provider`. Without a key or an address, litellm looks in the environment.

    `extra` holds further arguments of every call.
    """

    def __init__(
        self,
        api_base: str | None = None,
        api_key: str | None = None,
        *,
        key_variable: str = "",
        extra: Json | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._access = ProviderAccess(api_base, api_key, key_variable, extra or {}, timeouts or Timeouts())
        self._number = next(_numbers)

    @property
    def slow_to_begin(self) -> bool:
        helper = running_helper()
        return helper is None or not helper.ready

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        helper = helper_process()
        call = helper.ask(self._number, self._access, request)
        complete = False
        try:
            while not complete:
                piece = (await helper.answer(call)).piece
                complete = isinstance(piece, Done)
                yield piece
        finally:
            helper.forget(call, stop=not complete)

    async def close(self) -> None:
        helper = running_helper()
        if helper is not None:
            helper.let_go(self._number)
