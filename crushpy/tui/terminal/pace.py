"""How much of what was written has not arrived at the terminal, and how much more it can take at once.

A terminal that answers tells when it has drawn what came before the question: that holds over SSH and on a
serial line too, where the kernel's own figures end at this machine. One that never answers is known by what
it holds up.
Knows nothing of Textual; all of it runs on the event loop's thread.
"""

import time
from collections.abc import Callable

QUESTION, ANSWER = "\x1b[5n", "\x1b[0n"
"""Is all well? A terminal answers once it has drawn what came before."""
UNBOUNDED = 1 << 16
"""Bytes under way that no terminal in good health notices."""
LEAST = 400
"""Bytes that may always be under way: a few lines."""
AHEAD = 0.06
"""Seconds of a slow line that may lie between a key and what it shows."""
AT_ONCE = 0.06
"""Seconds that an answer may take longer than the quickest one where nothing had to wait."""
SLOW = 30_000
"""Bytes a second below which a line keeps keys waiting. Above it an answer that is late says only that
somebody was busy, and so does a late answer to fewer bytes than may always be under way."""
PATIENCE = 3.0
"""Seconds after which no answer will come any more."""
OFTEN, MUCH = 0.3, 2_000
"""Seconds and bytes after which a terminal in good health is asked again; a slow one is asked at once."""
KERNEL, DRAINED = 20_000, 16_000
"""Bytes that a pty takes before it is full, and that must have gone before it takes more."""
BLOCKED = 0.03
"""Seconds after which bytes that the kernel has not taken are held up by the terminal."""
SOON = 0.03
GROWTH = 1.5
CAUTION = 0.9
"""How much of the speed that was seen is relied on."""
RECOVERED = 60.0
"""Seconds after which a terminal that was slow may be tried again."""


class Pace:
    """Figures of one terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent = self._arrived = 0
        """Bytes handed to the writer, and drawn by the terminal."""
        self.written = 0
        """Bytes that the kernel took; counted by the writer's thread."""
        self._asked: tuple[int, float] | None = None
        """What had been sent when the terminal was asked, and when, while it has not answered."""
        self._answers: bool | None = None
        """Whether it answers; None before it was ever asked."""
        self._last_asked = 0.0
        self._quickest: float | None = None
        self._window = UNBOUNDED
        """Bytes that may be under way."""
        self._rate = 0.0
        """Bytes a second, as blocked writes told; 0 where nothing blocks."""
        self._level = (0.0, 0.0)
        """How much the kernel was thought to hold, and when."""
        self._full_at = 0.0
        self._since = 0.0
        """When the writer was last handed something with nothing else to do."""

    # --- what happened -----------------------------------------------------------------------------------

    def writes(self, size: int) -> bool:
        """So many bytes are about to be written; True where the terminal is to be asked behind them."""
        now = self._clock()
        self._level = (self._held(now) + size, now)
        if self.written >= self._sent:
            self._since = now
        self._sent += size
        if self._asked is not None or self._answers is False or not self._is_due(now):
            return False
        self._answers = self._answers or False
        self._asked, self._last_asked = (self._sent, now), now
        return True

    def answered(self, came: float | None = None) -> bool:
        """The terminal has drawn what came before the question; True where it is to be asked again.

        `came` is when its answer was read, where that was not just now.
        """
        self._answers = True
        if self._asked is None:
            return False
        (mark, at), self._asked = self._asked, None
        took = (self._clock() if came is None else came) - at
        size, self._arrived = mark - self._arrived, mark
        waited = took - (self._quickest or 0.0)
        self._quickest = min(took, self._quickest or took)
        if waited > AT_ONCE and LEAST <= size < waited * SLOW:
            self._window = max(LEAST, min(self._window, round(size / took * AHEAD)))
        elif 2 * size > self._window:
            self._window = min(UNBOUNDED, round(self._window * GROWTH))
        return self._sent > mark and self._is_due(self._clock())

    def _is_due(self, now: float) -> bool:
        """It is time to ask how far the terminal is."""
        much = self._sent - self._arrived >= MUCH
        return not self._answers or self.is_slow or much or now - self._last_asked >= OFTEN

    def wrote(self, held_up: float) -> None:
        """The kernel took what was written, and took more after so many seconds; 0 where it was not full."""
        now = self._clock()
        if held_up:
            self._rate = DRAINED / held_up * CAUTION
            self._level, self._full_at = (KERNEL - DRAINED, now), now
        elif now - self._full_at > RECOVERED:
            self._rate = 0.0

    @property
    def answers(self) -> bool:
        return bool(self._answers)

    @property
    def is_slow(self) -> bool:
        """The terminal was behind a short while ago."""
        return self._rate > 0 or self._window < UNBOUNDED

    # --- what follows ------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes that may be drawn now; 0 while what went before is still under way."""
        window, pending = self._figures()
        return window - pending if 2 * pending <= window else 0

    @property
    def is_behind(self) -> bool:
        """Too much is under way for anything more, even for a key."""
        window, pending = self._figures()
        return pending > window

    @property
    def look_again(self) -> float:
        """Seconds after which there may be room though nobody said so."""
        if self._answers and self._asked is not None:
            return max(0.0, self._asked[1] + PATIENCE - self._clock()) + 0.01
        window, pending = self._figures()
        return min(PATIENCE, max(SOON, (pending - window / 2) / self._rate)) if self._rate else SOON

    def _figures(self) -> tuple[int, int]:
        """How much may be under way, and how much is."""
        now = self._clock()
        if self._answers:
            if self._asked is None or now - self._asked[1] <= PATIENCE:
                return self._window, self._sent - self._arrived
            self._answers, self._asked = False, None
        if self.written < self._sent and now - self._since > BLOCKED:
            return 0, self._sent - self.written
        if not self._rate:
            return UNBOUNDED, 0
        return max(LEAST, round(self._rate * AHEAD)), round(self._held(now))

    def _held(self, now: float) -> float:
        level, at = self._level
        return max(0.0, level - (now - at) * self._rate) if self._rate else 0.0
