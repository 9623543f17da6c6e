"""Keys answer a question only once typing has paused: earlier ones were meant for a draft."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

from textual import events
from textual.timer import Timer
from textual.widget import Widget

from crushpy.tui.textual_adapter import app_of, subscribe

GRACE = 0.5
"""Seconds without a key, while visible, after which keys decide."""
ARMED = "-armed"
"""The class of a widget whose keys decide now."""
WAIT = "Keys work after a short pause"
BREAKS = ("ctrl+j", "shift+enter")
"""Break a line of the draft."""


@dataclass
class GracePeriod:
    """Arms and disarms `widget`; `changed` is called after both.

    The wait restarts with every key, and when a question that has not been seen yet comes into view.
    """

    widget: Widget
    typed: Callable[[str], None] | None = None
    """Receives text for a draft, which disarms again; None if no draft is in view."""
    changed: Callable[[], None] = lambda: None
    early: Collection[str] = ()
    """Keys that decide as soon as the widget has been drawn, until something else is typed."""
    _drawn: float = 0.0
    _timer: Timer | None = None
    _since: float = 0.0

    @property
    def on_top(self) -> bool:
        return app_of(self.widget).screen is self.widget.screen

    def begin(self) -> None:
        """Call this when the widget is mounted."""
        self.widget.watch(self.widget.screen, "stack_updates", self._uncovered, init=False)
        subscribe(self.widget, cast(Any, app_of(self.widget)).app_resume_signal, self.restart)
        self.restart()
        if self.early and self.on_top:
            self.widget.call_after_refresh(self._note_drawn)

    def _uncovered(self) -> None:
        """The user has closed a screen over the question, or opened one."""
        if not self.widget.has_class(ARMED):
            self.restart()
        self.changed()

    def _note_drawn(self) -> None:
        self._drawn = time.monotonic()

    def restart(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.widget.remove_class(ARMED)
        self.changed()
        if self.on_top:
            self._timer = self.widget.set_timer(GRACE, self._over)

    def _over(self) -> None:
        self._timer = None
        self._since = time.monotonic()
        self.widget.add_class(ARMED)
        self.changed()

    def decides(self, event: events.Key, choices: Collection[str]) -> bool:
        """Whether the key is one of `choices` and was pressed while armed.

        A key that was pressed before the widget was armed and is handled only now does not decide.
        """
        armed = self.widget.has_class(ARMED) and event.time >= self._since
        if armed and (event.key in choices or self.typed is None):
            return event.key in choices
        if event.key in self.early:  # before it was drawn: neither an answer nor meant for the draft
            event.stop().prevent_default()
            return 0 < self._drawn <= event.time
        self.early = ()
        text = _text(event)
        if text and self.typed is not None:
            self.typed(text)
        if text or event.key in choices or event.key == "enter":
            event.stop().prevent_default()
        if text or not armed:
            self.restart()
        return False


def _text(event: events.Key) -> str:
    """What the key adds to a draft; DEL deletes a letter."""
    if event.key == "backspace":
        return "\x7f"
    if event.key in BREAKS:
        return "\n"
    return event.character or "" if event.is_printable and not event.key.startswith("alt+") else ""
