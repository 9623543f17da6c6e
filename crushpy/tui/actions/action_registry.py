"""The registry of commands: a function of `actions/` for each command of the table."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crushpy.tui.screens.chat_host import ChatHost

Action = Callable[["ChatHost", str], Awaitable[None]]
"""Runs a command in the chat, with its argument as typed."""

ACTIONS: dict[str, Action] = {}
"""The function of each command, by the `action` of the command table. Filled by `performs`."""


def performs(action: str) -> Callable[[Action], Action]:
    """Registers the function of a command of the table."""

    def register(function: Action) -> Action:
        ACTIONS[action] = function
        return function

    return register
