"""Messages outside the transcript: toasts, the window title, and the bell. Their text is sanitized first."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from textual.app import App
from textual.notifications import Notification, Notify
from textual.widget import Widget

from crushpy.security.sanitize import clean, one_line
from crushpy.tui.textual_adapter import app_of, remove_notifications, write_to_terminal

UNTIL_DISMISSED_S = 86_400.0
"""Timeout of a toast that stays until it is removed."""
PUSH_TITLE, POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"


def tell(
    node: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    """Shows a toast; one with the same text is replaced."""
    take_back(node, text)
    node.notify(clean(text), severity=severity, markup=False)


def take_back(node: Widget, text: str) -> None:
    """Removes the toast with this text, if it is shown."""
    remove_notifications(app_of(node), lambda toast: toast.message == clean(text))


def dismiss_toasts(node: Widget) -> bool:
    """Removes all toasts except those that stay; False if there are none."""
    return remove_notifications(app_of(node), lambda toast: toast.timeout < UNTIL_DISMISSED_S)


def tell_for_now(node: Widget, text: str) -> Callable[[], object]:
    """Shows a toast, on any screen, until the returned function is called."""
    app = app_of(node)
    toast = Notification(clean(text), severity="warning", timeout=UNTIL_DISMISSED_S)
    app.post_message(Notify(toast))
    return lambda: remove_notifications(app, lambda shown: shown is toast)


def set_title(app: App[object], text: str) -> None:
    write_to_terminal(app, f"\x1b]2;{one_line(text)[:80]}\x07")


def restore_title() -> None:
    """Restores the saved title, after the app has released the terminal and can no longer write to it."""
    terminal = sys.__stderr__
    with suppress(OSError, ValueError):
        if terminal is not None and terminal.isatty():
            terminal.write(POP_TITLE)
            terminal.flush()


def call_attention(app: App[object], text: str) -> None:
    """Rings and sends a desktop notification (OSC 9) if the window does not have the focus."""
    if not app.app_focus:
        app.bell()
        write_to_terminal(app, f"\x1b]9;{one_line(text)[:120]}\x07")
