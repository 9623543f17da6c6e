"""Tells the user something in a corner of the screen, made harmless first."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from functools import partial
from typing import Literal

from textual.notifications import Notification, Notify
from textual.widget import Widget

from crushpy.sanitize import clean
from crushpy.tui.app_type import app_of

FOR_LONG = 86_400.0


def tell(
    node: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    node.notify(clean(text), severity=severity, markup=False)


def tell_for_now(node: Widget, text: str) -> Callable[[], None]:
    """Says it, on whatever screen is open, until the function that it returns is called."""
    app = app_of(node)
    notification = Notification(clean(text), severity="warning", timeout=FOR_LONG)
    app.post_message(Notify(notification))
    return partial(app._unnotify, notification)
