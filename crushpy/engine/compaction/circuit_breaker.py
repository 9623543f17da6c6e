"""Stops boundaries that do not help: two in a row without getting under the threshold are enough."""

import time

REARM = 1.25
"""Growth of the window's use after which trying again makes sense."""
PAUSE = 60.0
"""Seconds after a summariser that could not be reached."""


class CircuitBreaker:
    """Judged by the usage the provider reports after a boundary, not by our own hopes."""

    def __init__(self) -> None:
        self._in_vain = 0
        self._waiting_for_report = False
        self._stopped_at: int | None = None
        self._not_before = 0.0
        self._told = False

    def boundary_made(self) -> None:
        self._waiting_for_report = True

    def reported(self, used: int, limit: float) -> None:
        """The first report after a boundary tells whether it helped."""
        if not self._waiting_for_report:
            return
        self._waiting_for_report = False
        self._in_vain = self._in_vain + 1 if used >= limit else 0
        if self._in_vain >= 2:
            self._stopped_at = used

    def postponed(self) -> None:
        self._not_before = time.monotonic() + PAUSE

    def rearm(self) -> None:
        """A manual compact or another model: try again."""
        self._in_vain, self._stopped_at, self._told = 0, None, False

    def blocks(self, used: int) -> bool:
        if self._stopped_at is not None and used >= REARM * self._stopped_at:
            self.rearm()
        return self._stopped_at is not None or time.monotonic() < self._not_before

    def first_time(self) -> bool:
        """True once after it stopped: the user is told once."""
        if self._stopped_at is None or self._told:
            return False
        self._told = True
        return True
