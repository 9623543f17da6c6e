"""The real app on a pty, keys pressed while it works, and the CPU its process took."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.keys import Recorder

KEYS = "qjzxkvw"
EVERY = 0.1
"""Seconds between two keys."""


class WatchedApp(Recorder):
    """`work` presses keys until it is over."""

    ended = 0.0
    """When it was, by the clock."""

    def cpu(self) -> float:
        """Seconds of CPU that the process took so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def work(self, over: Callable[[], bool], most_seconds: float) -> list[float]:
        """How long each key took to show, in milliseconds."""
        pressed: list[float] = []
        typed = ""
        until = time.monotonic() + most_seconds
        while not over() and time.monotonic() < until:
            key = KEYS[len(typed) % len(KEYS)]
            if len(typed) < 60:
                pressed.append(time.monotonic())
                self.press(key)
                typed += key
            self.record(EVERY)
        if not over():
            raise TimeoutError(f"not over after {most_seconds} s")
        self.ended = time.monotonic()
        self.record(1.0)
        [shown] = self.replay(typed)
        return [(at - press) * 1_000 for at, press in zip(shown, pressed, strict=False)]


def of_keys(waits: list[float]) -> dict[str, float]:
    return {"key median ms": statistics.median(waits), "key worst ms": max(waits)} if waits else {}
