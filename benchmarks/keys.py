"""How long a key takes to show while a reply streams: the real app on a pty, a scripted model behind it.

    .venv/bin/python -m benchmarks.keys            at rest, then at 200 chunks a second

A key counts as shown once a terminal has drawn it: what the app sends is replayed after the run.
"""

import os
import select
import statistics
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from scripted_llm.replies import Reply
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

from benchmarks.samples import everyday

KEYS = "qjzxkvw" * 6
EVERY = 0.15
"""Seconds between two keys."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="keys-") as top:
        for name, rate in (("at rest", 0), ("200 chunks a second", 200)):
            waits = [wait * 1_000 for wait in measure(Path(top) / name.replace(" ", "-"), rate)]
            ninth = statistics.quantiles(waits, n=10)[-1]
            print(
                f"{name:20} {len(waits)} keys: median {statistics.median(waits):.1f} ms, "
                f"nine in ten below {ninth:.1f} ms, worst {max(waits):.1f} ms",
                flush=True,
            )


def measure(folder: Path, rate: int) -> list[float]:
    """How long each key took to be on the screen, in seconds."""
    folder.mkdir()
    with ScriptedLLM() as llm:
        llm.script(Reply(everyday(40_000), chunk=4, delay=1 / rate) if rate else "Hello.")
        env = {**llm.env, "CRUSHPY_MODEL": "openai/bench", "CRUSHPY_HOME": str(folder / "home")}
        env["CRUSHPY_SMALL_MODEL"] = "demo/tour"
        with Recorder(cwd=folder, env=env, columns=120, rows=40) as terminal:
            terminal.wait_for("Ask anything", "bench")
            terminal.type_line("write")
            terminal.wait_for("measure" if rate else "Hello.")
            terminal.record(2.0)
            pressed: list[float] = []
            for key in KEYS:
                pressed.append(time.monotonic())
                terminal.press(key)
                terminal.record(EVERY)
            [shown] = terminal.replay(KEYS)
    return [at - press for at, press in zip(shown, pressed, strict=True)]


class Recorder(Terminal):
    """Notes what was drawn when, and draws it later: a terminal in Python is slower than the app."""

    def record(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self.drawn.append((time.monotonic(), os.read(self._master, 65536)))

    def press(self, keys: str | bytes) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def replay(self, *words: str) -> list[list[float]]:
        """When each key of each word was first seen, one after the other."""
        seen: list[list[float]] = [[] for _ in words]
        for at, data in self.drawn:
            self._stream.feed(data)
            text = "".join(self._screen.display)
            for word, times in zip(words, seen, strict=True):
                while len(times) < len(word) and word[: len(times) + 1] in text:
                    times.append(at)
                if len(times) < len(word):
                    break
        return seen

    @cached_property
    def drawn(self) -> list[tuple[float, bytes]]:
        return []


if __name__ == "__main__":
    main()
