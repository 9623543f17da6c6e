"""How long a key takes to show on a terminal that is behind: 6 kB a second, while a reply streams.

    .venv/bin/python -m benchmarks.slow_tty                a terminal that answers, then one that does not
    .venv/bin/python -m benchmarks.slow_tty 2000           at that many bytes a second

What the app sends waits in the pty, as on a slow line; a key counts as shown once its bytes were taken.
"""

import os
import select
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from scripted_llm.replies import Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.keys import Recorder
from benchmarks.samples import everyday

QUESTION, ANSWER = b"\x1b[5n", b"\x1b[0n"
KEYS = "qjzxkvw" * 6
EVERY = 0.3
"""Seconds between two keys."""
SLICE = 0.01
"""Seconds between two looks at what waits."""
SETTLED = 6.0
"""Seconds of streaming before the first key."""
CHUNKS = 200
"""Pieces of four letters a second."""


def main() -> None:
    rate = int(sys.argv[1]) if len(sys.argv) > 1 else 6_000
    with tempfile.TemporaryDirectory(prefix="slow-") as top:
        for name, answers in (("answers", True), ("never answers", False)):
            waits, drawn = measure(Path(top) / name.replace(" ", "-"), rate, answers=answers)
            ninth = statistics.quantiles(waits, n=10)[-1]
            print(
                f"{rate} bytes/s, {name:14} {len(waits)} keys: median {statistics.median(waits):.0f} ms, "
                f"nine in ten below {ninth:.0f} ms, worst {max(waits):.0f} ms; {drawn:.0f} bytes/s drawn",
                flush=True,
            )


def measure(folder: Path, rate: int, *, answers: bool) -> tuple[list[float], float]:
    """Milliseconds until each key was shown, and bytes taken in a second meanwhile."""
    (folder / "home").mkdir(parents=True, mode=0o700)
    with ScriptedLLM() as llm:
        llm.script(Reply(everyday(60_000), chunk=4, delay=1 / CHUNKS))
        env = {**llm.env, "CRUSHPY_MODEL": "openai/bench", "CRUSHPY_HOME": str(folder / "home")}
        env["CRUSHPY_SMALL_MODEL"] = "demo/tour"
        with SlowTerminal(cwd=folder, env=env, columns=120, rows=40) as terminal:
            terminal.answers = answers
            terminal.wait_for("Ask anything", "bench")
            terminal.type_line("write")
            terminal.wait_for("measure")
            terminal.rate = rate
            terminal.record(SETTLED)
            before = sum(len(data) for _, data in terminal.drawn)
            pressed: list[float] = []
            for key in KEYS:
                pressed.append(time.monotonic())
                terminal.press(key)
                terminal.record(EVERY)
            drawn = sum(len(data) for _, data in terminal.drawn) - before
            terminal.record(5.0)
            [shown] = terminal.replay(KEYS)
    if len(shown) < len(pressed):
        sys.exit(f"only {len(shown)} of {len(pressed)} keys were shown in the end")
    waits = [(at - press) * 1_000 for at, press in zip(shown, pressed, strict=True)]
    return waits, drawn / (len(KEYS) * EVERY)


class SlowTerminal(Recorder):
    """Takes so many bytes a second, and answers once it has taken a question, or never."""

    rate, answers = 0, False
    _end = b""
    """The last bytes that were taken: a question may come in two pieces."""

    def record(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            if select.select([self._master], [], [], 0)[0]:
                data = os.read(self._master, max(1, round(self.rate * SLICE)))
                self.drawn.append((time.monotonic(), data))
                self._answer(data)
            time.sleep(max(0.0, SLICE - (time.monotonic() - began)))

    def _read(self, wait: float) -> bool:
        before = len(self.raw)
        came = super()._read(wait)
        self._answer(bytes(self.raw[before:]))
        return came

    def _answer(self, data: bytes) -> None:
        *questions, self._end = (self._end + data).split(QUESTION)
        self._end = self._end[-len(QUESTION) + 1 :]
        if self.answers and questions:
            os.write(self._master, ANSWER * len(questions))


if __name__ == "__main__":
    main()
