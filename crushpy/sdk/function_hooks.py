"""Functions of the caller's program as hooks."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from crushpy.core.errors import UsageError
from crushpy.engine.hooks import NO_REPLY, HookEvent, HookReply, Hooks, merge_replies

HOOK_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "PreCompact", "PostCompact")
log = logging.getLogger(__name__)


class FunctionHooks(Hooks):
    """Asks a function about each event that it is given for, then the hooks of the settings."""

    def __init__(self, functions: Mapping[str, Callable[[HookEvent], Any]], configured: Hooks) -> None:
        self._functions, self._configured = functions, configured

    async def fire(self, event: HookEvent) -> HookReply:
        function = self._functions.get(event.name)
        own = await self._ask(function, event) if function is not None else NO_REPLY
        if own.decision == "deny" or own.stop:
            return own
        others = await self._configured.fire(event)
        return others if own == NO_REPLY else own if others == NO_REPLY else merge_replies((own, others))

    async def _ask(self, function: Callable[[HookEvent], Any], event: HookEvent) -> HookReply:
        try:
            answer: Any = await asyncio.to_thread(function, event)
            if inspect.isawaitable(answer):
                answer = await answer
            match answer:
                case None | True:
                    return NO_REPLY
                case False:
                    return HookReply("deny", "a hook of the program refused it")
                case str():
                    return HookReply("deny", answer)
                case _:
                    return msgspec.convert(answer, HookReply)
        except Exception as error:
            log.exception("a hook failed")
            if event.name == "PreToolUse":  # a hook that guards calls must not fail open
                return HookReply("deny", f"a hook of the program failed: {type(error).__name__}: {error}")
            return NO_REPLY

    def describe(self) -> str:
        return self._configured.describe()

    async def close(self) -> None:
        await self._configured.close()


def check_hooks(functions: Mapping[str, Any]) -> Mapping[str, Callable[[HookEvent], Any]]:
    """Raises UsageError if one cannot be used."""
    for name, function in functions.items():
        if name not in HOOK_EVENTS:
            raise UsageError(f"There is no hook {name}.", f"Use one of {', '.join(HOOK_EVENTS)}.")
        if not callable(function):
            raise UsageError(f"The hook {name} is not a function.")
    return cast("Mapping[str, Callable[[HookEvent], Any]]", functions)
