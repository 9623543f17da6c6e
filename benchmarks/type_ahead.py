"""Whether what is typed while the app starts is in its prompt: one start for each moment, under load.

    .venv/bin/python -m benchmarks.type_ahead            every 50 ms over the first 1.5 s
    .venv/bin/python -m benchmarks.type_ahead 0.2 0.4    at these seconds after the start

The terminal answers the question for its background in the middle of the typing, as terminals do.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.e2e_terminal import Terminal

TYPED = "grüße an alle 42"
BETWEEN = 0.008
"""Seconds between two keys."""
LONGEST_WAIT = 15.0
QUESTION = b"\x1b]11;?"
ANSWER = b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\"
EVERY, UNTIL = 0.05, 1.5


def main() -> int:
    moments = [float(word) for word in sys.argv[1:]] or [
        EVERY * number for number in range(round(UNTIL / EVERY) + 1)
    ]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        with tempfile.TemporaryDirectory(prefix="type-ahead-") as top:
            lost = [moment for moment in moments if not kept(Path(top), moment)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"{len(moments)} starts, {len(lost)} lost something" + (f": {lost}" if lost else ""))
    return 1 if lost else 0


def kept(top: Path, moment: float) -> bool:
    """Types so many seconds after the start; whether all of it is in the prompt, in order."""
    folder = top / f"{moment * 1000:.0f}"
    (folder / "home").mkdir(parents=True, mode=0o700)
    env = {"CRUSHPY_MODEL": "demo/tour", "CRUSHPY_HOME": str(folder / "home")}
    with Typist(cwd=folder, env=env) as terminal:
        terminal.watch(moment)
        for number, key in enumerate(TYPED):
            terminal.press(key)
            terminal.watch(BETWEEN, answer=number > len(TYPED) // 2)
        terminal.watch(0, answer=True)
        try:
            terminal.wait_for(f"│ {TYPED}\n", "demo/tour", timeout=LONGEST_WAIT)
        except AssertionError as error:
            print(f"at {moment * 1000:.0f} ms: {error}", flush=True)
            return False
    return True


class Typist(Terminal):
    """A terminal that says what its background is, when it gets to it."""

    _answered = False

    def watch(self, seconds: float, *, answer: bool = False) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
        if answer and not self._answered and QUESTION in self.raw:
            self._answered = True
            self.press(ANSWER)


if __name__ == "__main__":
    sys.exit(main())
