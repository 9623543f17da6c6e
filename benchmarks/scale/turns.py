"""The CPU that one step of a turn takes, model call and tool call, with a long history behind it."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.scale.long_history import Stepper, served, stored_history

SIZES = "10k,100k,1m"
AIM = "10 ms plus at most 2 ms per MB sent, at 1m"
STEPS = 40


def measure(tokens: int) -> dict[str, float]:
    """Milliseconds of CPU for a step, in a process of its own, and what each request sends."""
    with stored_history(tokens) as (cwd, env), served(Stepper(STEPS, tokens)) as llm:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale.turns"],
            cwd=Path(__file__).parents[2],
            env={**env, **llm.env, "SCALE_CWD": str(cwd)},
            stdout=subprocess.PIPE,
            check=True,
        )
        figures: list[float] = json.loads(done.stdout)
        megabytes = len(llm.requests[-1].raw) / 1e6
    middle = statistics.median(figures)
    return {
        "ms CPU a step": middle,
        "mean": statistics.mean(figures),
        "MB sent": megabytes,
        "aim": 10 + 2 * megabytes,
    }


async def _run() -> None:
    import os

    from crushpy.bootstrap.opening import open_conversation
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.core.events import Event, UsageReported
    from crushpy.core.start_options import StartOptions

    cwd = Path(os.environ["SCALE_CWD"])
    options = StartOptions(cwd=str(cwd), yolo=True, resume_latest=True)
    conversation = await open_conversation(ProjectEnvironment(cwd, {}), options)
    at: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, UsageReported):
            at.append(time.process_time())

    conversation.subscribe(hear)
    status = await conversation.ask("Go on.")
    if status != "done":
        raise RuntimeError(f"{status}: {conversation.failure}")
    await conversation.close()
    steps = [(after - before) * 1_000 for before, after in pairwise(at)]
    print(json.dumps(steps[5:]))  # the first ones load what is needed


if __name__ == "__main__":
    asyncio.run(_run())
