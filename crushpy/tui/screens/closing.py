"""How a screen goes away: once, and only while it is the one on top."""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import Screen

Result = TypeVar("Result")


class ClosesOnce(Screen[Result]):
    """A base for every screen that is opened over another one.

    A key or a click that comes after the one that closed it would close what lies below, or end the app.
    Beside another base it stands last: Textual takes styles from the first alone.
    """

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
