"""How much of a summary is written: tokens of its calls so far, of what they may write together."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

CHARS_PER_TOKEN = 4
"""Of what streams: a bar needs no exact figure."""


class SummaryProgress:
    """Of the run at hand. A call that has ended counts as all that was expected of it."""

    def __init__(self) -> None:
        self._expected = 0
        self._written: dict[int, int] = {}
        self._watcher: Callable[[int, int], None] | None = None

    def expect(self, tokens: int) -> None:
        """A model begins; all its calls together write about so much."""
        self._expected = tokens
        self._written.clear()
        self._tell()

    def wrote(self, call: int, characters: int, most: int) -> None:
        """So much has come of the reply to one call, of which `most` tokens were expected."""
        self._written[call] = min(characters // CHARS_PER_TOKEN, most)
        self._tell()

    def ended(self, call: int, tokens: int) -> None:
        self._written[call] = tokens
        self._tell()

    @contextmanager
    def watched(self, watcher: Callable[[int, int], None]) -> Generator[None]:
        """`watcher` hears how much is written of how much, at once and whenever it changes."""
        self._watcher = watcher
        self._tell()
        try:
            yield
        finally:
            self._watcher = None

    def _tell(self) -> None:
        if self._watcher is not None:
            self._watcher(sum(self._written.values()), self._expected)
