"""Tells the user something in a corner of the screen, made harmless first."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from functools import partial
from typing import Literal

from textual.notifications import Notification, Notify
from textual.widget import Widget

from crushpy.security.sanitize import clean
from crushpy.tui.app_type import app_of

FOR_LONG = 86_400.0


def tell(
    node: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    """Says it once: what is told again takes the place of what stands there."""
    app = app_of(node)
    for same in [one for one in app._notifications if one.message == clean(text)]:
        app._unnotify(same, refresh=False)
    node.notify(clean(text), severity=severity, markup=False)


def dismiss_toasts(node: Widget) -> bool:
    """Takes away what was told in passing; False where there is nothing of the kind."""
    app = app_of(node)
    told = [one for one in app._notifications if one.timeout < FOR_LONG]
    for notification in told:
        app._unnotify(notification, refresh=False)
    if told:
        app._refresh_notifications()
    return bool(told)


def tell_for_now(node: Widget, text: str) -> Callable[[], None]:
    """Says it, on whatever screen is open, until the function that it returns is called."""
    app = app_of(node)
    notification = Notification(clean(text), severity="warning", timeout=FOR_LONG)
    app.post_message(Notify(notification))
    return partial(app._unnotify, notification)
