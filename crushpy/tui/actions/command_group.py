"""What the groups of commands have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crushpy.core.app_commands import BY_ACTION, CommandValue
from crushpy.core.errors import CrushpyError
from crushpy.tui.screens.choose import Choice, ChooseScreen
from crushpy.tui.screens.overlay import PanelScreen

if TYPE_CHECKING:
    from textual.widget import Widget

    from crushpy.engine.conversation import Conversation
    from crushpy.tui.screens.chat_host import ChatHost


class RefusedCommand(CrushpyError):
    """A command that does nothing now; the user is told why in a warning."""


class CommandGroup:
    """Commands about one subject, for one chat. A method gets the argument as typed, and returns False if it
    had no use for it."""

    def __init__(self, chat: "ChatHost") -> None:
        self.chat = chat
        self.say = chat.say
        self.show = chat.show

    @property
    def conversation(self) -> "Conversation":
        """The open conversation: commands that need one run only once it is open."""
        assert self.chat.conversation is not None
        return self.chat.conversation

    def require_idle(self) -> None:
        if self.chat.conversation is not None and self.chat.conversation.busy:
            raise RefusedCommand("The agent is working. Press Esc to interrupt it first.")

    async def choose(self, title: str, choices: Sequence[Choice], hint: str = "") -> str | None:
        return await self.show(ChooseScreen(title, choices, hint=hint))

    async def choose_value(
        self, action: str, typed: str, current: str, hint: str = ""
    ) -> CommandValue | None:
        """The value of a command that was typed, or one chosen from all of them; None if none was."""
        command = BY_ACTION[action]
        values = {value.title.lower(): value for value in command.values}
        name: str | None = typed.strip().lower()
        if not name:
            choices = [
                Choice(name, value.title, value.help, value.value == current)
                for name, value in values.items()
            ]
            name = await self.choose(command.title, choices, hint)
        if name is not None and name not in values:
            raise RefusedCommand(f"{command.title}: {name!r} is not one of {', '.join(values)}.")
        return None if name is None else values[name]

    async def show_panel(self, heading: str, body: "str | Widget") -> None:
        """Shows what a command reports until Esc closes it."""
        self.chat.status.refresh()  # the gauge shows the same figures
        await self.show(PanelScreen(heading, body))
