"""One long markdown reply in the app: how long until it is drawn, the memory it takes, and keys meanwhile."""

import time
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer, Reply

from benchmarks.scale.app_keys import WatchedApp, of_keys
from benchmarks.scale.long_history import Stepper, served, stored_history
from benchmarks.scale.long_texts import long_text

SIZES = "100k,1m,2m"
AIM = "5 MB a MB of text, stalls under 50 ms"
SHAPE = "mixed"
WARM_UP = 1_000_000
PIECE = 400
"""Characters that the server sends at a time."""


class LongReply(Stepper):
    """Behind a first reply: what any reply loads, and what is kept of all of them up to a bound (pages of
    SQLite, rows that were drawn), is there when the one that is measured comes."""

    def __init__(self, size: int) -> None:
        super().__init__(0, 1_000)
        self._texts = [
            f"{long_text('mixed', WARM_UP)}\n\nThe first end.",
            f"{long_text(SHAPE, size)}\n\nThe very end.",
        ]

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.asked += 1
        return Reply(self._texts[min(self.asked, 2) - 1], chunk=PIECE)


def measure(size: int) -> dict[str, float]:
    with (
        stored_history(1_000) as (cwd, env),
        served(LongReply(size)) as llm,
        WatchedApp("-c", "--yolo", cwd=cwd, env={**env, **llm.env}, columns=120, rows=40) as app,
    ):
        app.wait_for("bench", "That is all.")
        app.wait_quiet()
        app.type_line("Go on.")
        app.wait_for("The first end.")
        app.wait_quiet()
        Path(f"/proc/{app.process.pid}/clear_refs").write_text("5")  # the peak is counted from here on
        before, began, cpu = memory(app, "VmRSS"), time.monotonic(), app.cpu()
        app.type_line("Go on.")
        waits = app.work(lambda: any(b"The very end." in data for _, data in app.drawn[-20:]), 300)
        took = app.ended - began
        app.wait_quiet()
        spent = app.cpu() - cpu
        grown = memory(app, "VmHWM") - before
        kept = memory(app, "VmRSS") - before
    megabytes = size / 1e6
    return {
        "seconds": took,
        "s CPU": spent,
        "MB at most": grown,
        "a MB of text": grown / megabytes,
        "kept": kept / megabytes,
        **of_keys(waits),
    }


def memory(app: WatchedApp, name: str) -> float:
    """In MB, of the app's process."""
    status = Path(f"/proc/{app.process.pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1_000
