"""Errors that tools report to the model, and the question that a running tool may raise."""

import errno
from collections.abc import Callable

from crushpy.core.access import Access
from crushpy.core.messages import Display


class ToolError(Exception):
    """A tool could not do what was asked, for a reason the model can act on. Becomes an error result."""


class DoesNotFit(ToolError):
    """An edit does not apply to a file whose current content the model has read: no question is needed."""


class NotText(ToolError):
    """A file that was to be read as text is binary."""

    def __init__(self, shown: str, raw: bytes) -> None:
        super().__init__(f"{shown} is a binary file ({len(raw):,} bytes), not text. Use bash.")
        self.shown, self.raw = shown, raw


class ConsentNeeded(Exception):
    """A running call has met something that only the user can accept. It is run again if they do."""

    def __init__(self, access: Access, preview: Display | None, accept: Callable[[], None]) -> None:
        super().__init__(access.reason)
        self.access = access
        self.preview = preview
        self.accept = accept

    async def show(self) -> Display | None:
        """What is shown with the question."""
        return self.preview


def reason(error: Exception) -> str:
    """The system's reason for an error, without its number."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it has a loop of links, or a part of it became a link since it was checked"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)
