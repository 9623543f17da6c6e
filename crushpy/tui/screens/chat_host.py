"""The chat screen as its parts and the commands know it: none of them imports the screen itself."""

from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen

from crushpy.core.start_options import StartOptions
from crushpy.tui.focus_controller import FocusController
from crushpy.tui.screens.transcript_screen import TranscriptScreen
from crushpy.tui.status_presenter import StatusPresenter
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.transcript_presenter import TranscriptPresenter
from crushpy.tui.widgets.activity_line import ActivityLine
from crushpy.tui.widgets.attachment_list import AttachmentList
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView
from crushpy.tui.widgets.todo_line import TodoLine

if TYPE_CHECKING:
    from crushpy.core.messages import Message
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.user_commands import OwnCommands
    from crushpy.tui.transcript_presenter import FoundPlace

T = TypeVar("T")


class ChatHost(TranscriptScreen):
    """`ChatScreen` implements it."""

    options: StartOptions
    folded: bool
    conversation: "Conversation | None"
    """None until the engine is loaded, or if that failed."""
    own: "OwnCommands | None"
    transcript: Transcript
    prompt: PromptInput
    queue: QueueView
    todos: TodoLine
    attachments: AttachmentList
    activity: ActivityLine
    feed: TranscriptPresenter
    status: StatusPresenter
    focus_controller: FocusController

    @property
    def open_conversation(self) -> "Conversation":
        """The conversation, for commands that need one: they run only once it is open."""
        assert self.conversation is not None
        return self.conversation

    async def show(self, screen: Screen[T]) -> T | None:
        """Opens a screen and waits for its result. Only from a worker."""
        return await app_of(self).push_screen_wait(screen)

    def keep(self, typed: str) -> None:
        """Adds input that was typed into a question by accident to the draft; never sends it."""
        if typed == "\x7f":
            self.prompt.action_delete_left()
        else:
            self.prompt.paste_text(typed)

    def say(self, text: str, *, warning: bool = False) -> None:
        """Shows a notice in the transcript."""
        raise NotImplementedError

    def end_greeting(self) -> None:
        """Removes the card of a new conversation."""
        raise NotImplementedError

    async def opened_conversation(self) -> "Conversation | None":
        """Waits until the engine is loaded or has failed to load."""
        raise NotImplementedError

    async def show_history(self, conversation: "Conversation") -> None:
        """Shows the latest session of a conversation."""
        raise NotImplementedError

    async def replace_conversation(self, options: StartOptions) -> None:
        """Opens another conversation, then closes this one; raises if it cannot be opened."""
        raise NotImplementedError

    async def perform(self, action: str, argument: str = "") -> None:
        """Runs a command of the table."""
        raise NotImplementedError

    def reveal(self, place: "FoundPlace") -> bool:
        """Scrolls to a message in the transcript; False if it is not there."""
        raise NotImplementedError

    def take_back(self, prompt: "Message") -> None:
        """Puts a prompt that was not sent, and its images, in front of the draft."""
        raise NotImplementedError

    def dismiss_notices(self) -> bool:
        """Removes the notice about the demo and all toasts; False if there are none."""
        raise NotImplementedError

    def stop(self) -> bool:
        """Stops the agent and the user's own commands; False if nothing runs."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Stops everything, stores the rest, and exits."""
        raise NotImplementedError
