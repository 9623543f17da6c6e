"""One model of focus: it belongs to the prompt, and the transcript and the queue only borrow it.

A widget that has borrowed it answers to its own keys. Every other key that the prompt has a use for returns
the focus and is typed there; so does a paste. The mouse never takes the focus away from the prompt.
"""

from typing import Any

from textual import events
from textual.screen import Screen
from textual.widget import Widget

from crushpy.tui.textual_adapter import run_bound_action
from crushpy.tui.widgets.folding_text_area import FoldingTextArea


class FocusController:
    """Returns the focus to the prompt, or to the approval above it that waits for an answer."""

    def __init__(self, screen: Screen[Any], prompt: FoldingTextArea) -> None:
        self._screen = screen
        self._prompt = prompt

    def type_in_prompt(self, event: events.Key | events.Paste) -> bool:
        """Forwards a key or a paste to the prompt; False if the prompt has no use for that key."""
        if isinstance(event, events.Key) and not self._prompt.takes(event):
            return False
        self._screen.set_focus(self._prompt)  # at once: keys typed behind it are meant for the prompt as well
        self._prompt.post_message(event)
        return True

    def return_focus(self) -> bool:
        """Returns a borrowed focus; False if it was not borrowed."""
        if not isinstance(self._screen.focused, FocusVisitor):
            return False
        self._screen.set_focus(next(iter(self._screen.query("ApprovalPanel")), self._prompt))
        return True


class FocusVisitor(Widget, can_focus=True):
    """A widget with keys of its own that borrows the focus. Without a controller it keeps the focus."""

    FOCUS_ON_CLICK = False

    focus_controller: FocusController | None = None

    async def on_key(self, event: events.Key) -> None:
        # Keys that arrived together with one that moved the focus are still sent here.
        focused = self.screen.focused
        if focused is not None and focused in self.screen.query("FindLine"):
            event.stop()
            if not await run_bound_action(focused, event):
                focused.post_message(event)
        elif not (focused is self and await run_bound_action(self, event)):
            self.on_paste(event)

    def on_paste(self, event: events.Paste | events.Key) -> None:
        if self.focus_controller is not None and self.focus_controller.type_in_prompt(event):
            event.stop()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self.focus_controller is not None:
            self.focus_controller.return_focus()
