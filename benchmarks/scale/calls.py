"""Many calls in one reply, in the app: how long until all are answered, and keys meanwhile."""

import time
from typing import Any

from scripted_llm.replies import Answer, Call, Reply

from benchmarks.scale.app_keys import WatchedApp, of_keys
from benchmarks.scale.long_history import Stepper, served, stored_history

SIZES = "100,500,2k,10k"
AIM = "2,000 under 3 s, 10,000 under 15 s, keys under 50 ms"


class ManyCalls(Stepper):
    """Asks for all of them at once, then stops."""

    def __init__(self, calls: int) -> None:
        super().__init__(0, 1_000)
        self._calls = calls
        self.at: list[float] = []
        """When it was asked, by the clock."""

    def __call__(self, body: dict[str, Any]) -> Answer:
        self.at.append(time.monotonic())
        if len(self.at) > 1:
            return super().__call__(body)
        calls = [
            Call("view", {"file_path": "a.txt", "offset": 1 + n % 1_900, "limit": 1})
            for n in range(self._calls)
        ]
        return Reply("All at once.", calls=calls)


def measure(calls: int) -> dict[str, float]:
    model = ManyCalls(calls)
    with (
        stored_history(1_000) as (cwd, env),
        served(model) as llm,
        WatchedApp("-c", "--yolo", cwd=cwd, env={**env, **llm.env}, columns=120, rows=40) as app,
    ):
        app.wait_for("bench", "That is all.")
        app.wait_quiet()
        before = app.cpu()
        app.type_line("Go on.")
        waits = app.work(lambda: len(model.at) > 1, 300)
        spent = app.cpu() - before
    return {"seconds": model.at[1] - model.at[0], "s CPU": spent, **of_keys(waits)}
