"""Colours code with pygments, in a thread. Pygments is loaded when it is first needed."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from threading import Thread

from crushpy.util.markup import Coloured, colour_code, is_too_large

Done = Callable[[Sequence[Coloured] | None], None]
"""Called with the lines of each code of a request; None if they cannot be coloured."""

MAX_CACHED_RESULTS = 32

HighlightJob = tuple[str, tuple[str, ...]]
"""A language and some codes that are coloured together."""


class Highlighter:
    """Works through requests in order, and caches the last results."""

    def __init__(self) -> None:
        self._results: OrderedDict[HighlightJob, list[Sequence[Coloured] | None]] = OrderedDict()
        """Each with one result, or none while a thread is working on it."""
        self._queue: deque[tuple[HighlightJob, Done]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def request(self, language: str, codes: tuple[str, ...], done: Done) -> None:
        """Calls `done` at once if the colours are known, or the codes too large for any; else from `work`."""
        job = (language, codes)
        if known := self._results.get(job):
            self._results.move_to_end(job)
            done(known[0])
        elif not language or any(map(is_too_large, codes)):
            done(None)
        else:
            self._queue.append((job, done))

    def drop(self) -> None:
        """Drops all pending requests."""
        self._queue.clear()

    def work(self, until: float) -> None:
        """Hands over what is coloured by now, until that time (`time.perf_counter`). A thread works: loading
        a lexer alone takes up to a fifth of a second."""
        while self._queue and time.perf_counter() <= until:
            job, done = self._queue[0]
            if job not in self._results:
                self._results[job] = []
                Thread(target=_colour, args=(job, self._results[job]), daemon=True).start()
                if len(self._results) > MAX_CACHED_RESULTS:
                    self._results.popitem(last=False)
            if not self._results[job]:
                return
            self._queue.popleft()
            done(self._results[job][0])


def _colour(job: HighlightJob, results: list[Sequence[Coloured] | None]) -> None:
    """Adds the lines of the codes to `results`."""
    codes = [colour_code(job[0], code) for code in job[1]]
    known = [lines for lines in codes if lines is not None]
    results.append(known if len(known) == len(codes) else None)
