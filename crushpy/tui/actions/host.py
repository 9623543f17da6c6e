"""What a command of the app may use. The chat screen is one; commands know nothing else of it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from crushpy.core.messages import Message
    from crushpy.core.start_options import StartOptions
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.tui.found_items import FoundPlace
    from crushpy.tui.status_presenter import StatusPresenter
    from crushpy.tui.transcript.widget import Transcript
    from crushpy.tui.widgets.prompt import PromptInput
    from crushpy.tui.widgets.todo_line import TodoLine

ScreenResult = TypeVar("ScreenResult")


class CommandHost(Protocol):
    """Where a command is carried out."""

    options: "StartOptions"
    folded: bool
    conversation: "Conversation | None"
    """None until the engine is loaded, and after it could not be."""
    own: "OwnCommands | None"
    status: "StatusPresenter"
    transcript: "Transcript"
    todos: "TodoLine"
    prompt: "PromptInput"

    @property
    def running_app(self) -> "App[object]": ...

    def say(self, text: str, *, warning: bool = False) -> None:
        """A word to the user, in the flow."""

    async def show(self, screen: "Screen[ScreenResult]") -> ScreenResult | None:
        """Opens a screen and waits for what it returns."""
        ...

    async def copy(self, text: str) -> None:
        """Puts text on the clipboard, and says how."""

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the session at the tip anew."""

    def reveal(self, place: "FoundPlace") -> bool:
        """Goes to a message in the transcript; False where it is not there."""
        ...

    async def replace_conversation(self, options: "StartOptions") -> None:
        """Closes the conversation and opens another one in its place."""

    def take_back(self, prompt: "Message") -> None:
        """Puts a prompt that was not sent before what is written."""

    async def leave(self) -> None:
        """Ends what runs, stores what is left, and goes."""


Action = Callable[[CommandHost, str], Awaitable[None]]
"""Does a command, with what was typed after it."""

ACTIONS: dict[str, Action] = {}
"""What each command does, by the `action` of the command table. Filled by `performs`."""


def performs(action: str) -> Callable[[Action], Action]:
    """Marks the function that does a command of the table."""

    def register(function: Action) -> Action:
        ACTIONS[action] = function
        return function

    return register
