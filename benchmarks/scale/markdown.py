"""One long markdown reply in the app: how long until it is drawn, the memory it takes, and keys meanwhile."""

import time
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer, Reply

from benchmarks.samples import everyday
from benchmarks.scale.app_keys import WatchedApp, of_keys
from benchmarks.scale.long_history import Stepper, served, stored_history

SIZES = "100k,1m,10m"
AIM = "5 MB a MB of text, stalls under 50 ms"
WARM_UP = 100_000
PIECE = 400
"""Characters that the server sends at a time."""


class LongReply(Stepper):
    """The first reply is short: what any reply loads is there when the long one comes."""

    def __init__(self, characters: int) -> None:
        super().__init__(0, 1_000)
        some = everyday(min(characters, WARM_UP))
        self._texts = [f"{some}\n\nThe first end."]
        whole = (some * (characters // len(some) + 1))[:characters]
        self._texts.append(f"{whole}\n\nThe very end.")

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.asked += 1
        return Reply(self._texts[min(self.asked, 2) - 1], chunk=PIECE)


def measure(characters: int) -> dict[str, float]:
    with (
        stored_history(1_000) as (cwd, env),
        served(LongReply(characters)) as llm,
        WatchedApp("-c", "--yolo", cwd=cwd, env={**env, **llm.env}, columns=120, rows=40) as app,
    ):
        app.wait_for("bench", "That is all.")
        app.wait_quiet()
        app.type_line("Go on.")
        app.wait_for("The first end.")
        app.wait_quiet()
        Path(f"/proc/{app.process.pid}/clear_refs").write_text("5")  # the peak is counted from here on
        before, began, cpu = _memory(app, "VmRSS"), time.monotonic(), app.cpu()
        app.type_line("Go on.")
        waits = app.work(lambda: any(b"The very end." in data for _, data in app.drawn[-20:]), 300)
        took = app.ended - began
        app.wait_quiet()
        spent = app.cpu() - cpu
        grown = _memory(app, "VmHWM") - before
        kept = _memory(app, "VmRSS") - before
    megabytes = characters / 1e6
    return {
        "seconds": took,
        "s CPU": spent,
        "MB at most": grown,
        "a MB of text": grown / megabytes,
        "kept": kept / megabytes,
        **of_keys(waits),
    }


def _memory(app: WatchedApp, name: str) -> float:
    """In MB, of the app's process."""
    status = Path(f"/proc/{app.process.pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1_000
