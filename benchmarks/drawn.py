"""How much is drawn while a reply streams, on a fast and on a slow connection: the real app on a pty.

    .venv/bin/python -m benchmarks.drawn           about four minutes

Answers of 1,000 and 4,000 bytes come in pieces of five. The slow connection takes 2,000 bytes a second.
"""

import os
import select
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from scripted_llm.replies import Reply
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

from benchmarks.samples import everyday

ANSWERS_BYTES = (1_000, 4_000)
RATES = (200, 20)
"""Pieces a second."""
LINK_BYTES_PER_S = 2_000
READ_BYTES = 200
ENDED = "1 step"
"""On the line that ends the turn."""


class SlowTerminal(Terminal):
    """Takes `limit` bytes a second, if that is set."""

    limit = 0

    def _read(self, wait: float) -> bool:
        if not self.limit:
            return super()._read(wait)
        if not select.select([self._master], [], [], wait)[0]:
            return False
        time.sleep(READ_BYTES / self.limit)
        return self._take(os.read(self._master, READ_BYTES))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="drawn-") as top:
        for link in (0, LINK_BYTES_PER_S):
            for rate, size in product(RATES, ANSWERS_BYTES):
                drawn, seconds = measure(Path(top) / f"{link}-{rate}-{size}", rate, size, link)
                name = f"{link:,} bytes a second" if link else "fast connection"
                share = f"{drawn / size:.1f} bytes for each of {size:,} bytes"
                print(f"{name:20} {rate:3} pieces a second: {share}, {seconds:.0f} s", flush=True)


def measure(folder: Path, rate: int, size: int, link: int) -> tuple[int, float]:
    """The bytes drawn from Enter to the end of the turn, and how long that took."""
    folder.mkdir()
    with ScriptedLLM() as llm:
        llm.script(Reply(everyday(size), chunk=5, delay=1 / rate))
        env = {**llm.env, "CRUSHPY_MODEL": "openai/bench", "CRUSHPY_HOME": str(folder / "home")}
        env["CRUSHPY_SMALL_MODEL"] = "demo/tour"
        with SlowTerminal(cwd=folder, env=env, columns=120, rows=40) as terminal:
            terminal.wait_for("Ask anything", "bench")
            terminal.press("write")
            terminal.wait_for("write")
            terminal.wait_quiet()
            before, began, terminal.limit = len(terminal.raw), time.monotonic(), link
            terminal.press("\r")
            terminal.wait_for(ENDED, timeout=300)
            return len(terminal.raw) - before, time.monotonic() - began


if __name__ == "__main__":
    main()
