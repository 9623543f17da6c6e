"""Shows a running command's output while it runs: in bounded pieces, seldom enough not to flood anyone."""

import asyncio
from collections.abc import Callable

from crushpy.tools.shell.terminal_text import as_plain_text
from crushpy.tools.truncate import MAX_LIVE_CHARS, HeadTail

_SECONDS_BETWEEN = 0.1


class LiveOutput:
    """Sends pieces to `emit`, at most ten a second. A command that ends before the first one sends none."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._pending = HeadTail(MAX_LIVE_CHARS)
        self._line = ""
        self._shown = ""
        """What was already sent of the unfinished line."""
        self._timer: asyncio.TimerHandle | None = None
        self._started = False

    def add(self, text: str) -> None:
        """Finished lines."""
        if self._shown:
            # The line that was shown half is finished now: its rest, or all of it where it was rewritten.
            text = text.removeprefix(self._shown) if text.startswith(self._shown) else "\n" + text
            self._shown = ""
        self._pending.add(text)
        self._wake()

    def show(self, line: str) -> None:
        """The line that is not finished yet, as it came."""
        self._line = line
        if line:
            self._wake()

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._started:
            self._flush()
        self._timer = None

    def _wake(self) -> None:
        if not self._timer:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS_BETWEEN, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._started = True
        piece = self._pending.text().text
        self._pending = HeadTail(MAX_LIVE_CHARS)
        line = as_plain_text(self._line)[:MAX_LIVE_CHARS]
        if line.startswith(self._shown):
            piece += line[len(self._shown) :]
            self._shown = line
        if piece:
            self._emit(piece)
