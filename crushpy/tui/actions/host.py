"""What a command of the app may use: the part of the chat screen that commands know."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from crushpy.core.messages import Message
    from crushpy.core.start_options import StartOptions
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.tui.status_presenter import StatusPresenter
    from crushpy.tui.transcript.widget import Transcript
    from crushpy.tui.transcript_presenter import FoundPlace
    from crushpy.tui.widgets.prompt import PromptInput
    from crushpy.tui.widgets.todo_line import TodoLine

ScreenResult = TypeVar("ScreenResult")


class CommandHost(Protocol):
    """Where a command runs."""

    options: "StartOptions"
    folded: bool
    conversation: "Conversation | None"
    """None until the engine is loaded, or if that failed."""
    own: "OwnCommands | None"
    status: "StatusPresenter"
    transcript: "Transcript"
    todos: "TodoLine"
    prompt: "PromptInput"

    @property
    def running_app(self) -> "App[object]": ...

    @property
    def open_conversation(self) -> "Conversation":
        """The conversation, for commands that need one: they run only once it is open."""
        ...

    def say(self, text: str, *, warning: bool = False) -> None:
        """Shows a notice in the transcript."""

    async def show(self, screen: "Screen[ScreenResult]") -> ScreenResult | None:
        """Opens a screen and waits for its result."""
        ...

    async def copy(self, text: str) -> None:
        """Copies text to the clipboard and reports how."""

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the latest session of a conversation."""

    def reveal(self, place: "FoundPlace") -> bool:
        """Scrolls to a message in the transcript; False if it is not there."""
        ...

    async def replace_conversation(self, options: "StartOptions") -> None:
        """Opens another conversation, then closes this one."""

    def take_back(self, prompt: "Message") -> None:
        """Puts a prompt that was not sent in front of the draft."""

    async def leave(self) -> None:
        """Stops everything, stores the rest, and exits."""


Action = Callable[[CommandHost, str], Awaitable[None]]
"""Runs a command, with its argument as typed."""

ACTIONS: dict[str, Action] = {}
"""The function of each command, by the `action` of the command table. Filled by `performs`."""


def performs(action: str) -> Callable[[Action], Action]:
    """Registers the function of a command of the table."""

    def register(function: Action) -> Action:
        ACTIONS[action] = function
        return function

    return register
