"""One model of focus: it is at home in the prompt and only visits the transcript and the queue.

A visited place answers to its own keys. Every other key that the prompt has a use for brings the focus home
and is typed there; so does a paste. The mouse never moves the focus away from home.
"""

from collections.abc import Callable
from typing import Any

from textual import events
from textual.screen import Screen
from textual.widget import Widget

from crushpy.tui.textual_adapter import app_of, bindings_for_key
from crushpy.tui.widgets.folding_text_area import FoldingTextArea


class Home:
    """Where the focus belongs: in the prompt, or with the `question` above it that waits for an answer."""

    def __init__(
        self, screen: Screen[Any], prompt: FoldingTextArea, question: Callable[[], Widget | None]
    ) -> None:
        self._screen = screen
        self._prompt = prompt
        self._question = question

    def take(self, event: events.Key | events.Paste) -> bool:
        """Has the prompt type what was meant for it. False where it has no use for that key."""
        if isinstance(event, events.Key) and not self._prompt.takes(event):
            return False
        self._screen.set_focus(self._prompt)  # at once: what was typed behind it is meant for the prompt too
        self._prompt.post_message(event)
        return True

    def come_back(self) -> bool:
        """Ends a visit; False where there is none."""
        if not isinstance(self._screen.focused, Visited):
            return False
        self._screen.set_focus(self._question() or self._prompt)
        return True


class Visited(Widget, can_focus=True):
    """A place with keys of its own. Without a `home` it keeps whatever focus it has."""

    FOCUS_ON_CLICK = False

    home: Home | None = None

    async def on_key(self, event: events.Key) -> None:
        # Acted on here: left to bubble, a key would be acted on after those that were typed behind it. And
        # those that came in one go with a key that brought the focus home are still sent here.
        if self.screen.focused is self and await self._act(event.key):
            event.stop()
            event.prevent_default()
        elif self.home is not None and self.home.take(event):
            event.stop()

    def on_paste(self, event: events.Paste) -> None:
        if self.home is not None and self.home.take(event):
            event.stop()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self.home is not None:
            self.home.come_back()

    async def _act(self, key: str) -> bool:
        """Does what the key means here, if it means something now."""
        app = app_of(self)
        for binding in bindings_for_key(self, key):
            if await app.run_action(binding.action, self):
                return True
        return False
