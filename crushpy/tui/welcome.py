"""The line that greets who talks to the built-in demo, until they take it away."""

from typing import TYPE_CHECKING

from crushpy.core.errors import CrushpyError
from crushpy.tui.items import NoticeItem, TranscriptView

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation

WELCOME = (
    "You are talking to demo/tour, which is built in and no language model: say `help`, or `look around`. "
    "/connect shows how to use a real model. Esc takes this line away for good."
)


class Welcome:
    def __init__(self, view: TranscriptView) -> None:
        self._view = view
        self._key: int | None = None

    def greet(self, conversation: "Conversation") -> None:
        """Shows it in a new conversation with the demo, unless it was taken away before."""
        new = conversation.info.model == "demo/tour" and not conversation.history
        if new and conversation.settings.welcome == "show":
            self._key = self._view.add(NoticeItem(WELCOME))

    def dismiss(self, conversation: "Conversation") -> bool:
        """Takes it away, now and for all times to come. False where it is not there."""
        key, self._key = self._key, None
        if key is None or self._view.item(key) is None:
            return False
        self._view.remove(key)
        try:
            conversation.save_choice("welcome", "hide")
        except CrushpyError as error:
            self._view.add(NoticeItem(f"It will be back: {error}", "warning"))
        return True
