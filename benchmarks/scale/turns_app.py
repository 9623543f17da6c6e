"""The CPU of one step in the app with a long history behind it, and how long keys take to show meanwhile."""

from benchmarks.scale.app_keys import WatchedApp, of_keys
from benchmarks.scale.long_history import Stepper, served, stored_history

SIZES = "10k,100k,1m"
AIM = "under 20 ms, keys under 10 ms"
STEPS = 60
DELAY = 0.03
"""Seconds between the pieces of a reply: a model takes its time."""


def measure(tokens: int) -> dict[str, float]:
    stepper = Stepper(STEPS, tokens, DELAY)
    with (
        stored_history(tokens) as (cwd, env),
        served(stepper) as llm,
        WatchedApp("-c", "--yolo", cwd=cwd, env={**env, **llm.env}, columns=120, rows=40) as app,
    ):
        app.wait_for("bench", "That is all.")
        app.wait_quiet()
        app.type_line("Go on.")
        app.record(1.0)
        spent: list[float] = []
        waits: list[float] = []
        for typing in (False, True):
            before, steps = app.cpu(), stepper.asked
            until = STEPS if typing else (steps + STEPS) // 2
            if typing:
                waits = app.work(lambda: stepper.asked > STEPS, 120)
            else:
                while stepper.asked <= until:
                    app.record(0.05)
            spent.append((app.cpu() - before) / (stepper.asked - steps) * 1_000)
    return {"ms CPU a step": spent[0], "with keys": spent[1], **of_keys(waits)}
