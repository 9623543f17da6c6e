"""The CPU of a boundary by the generation it ends, in a lineage of many megabytes made by the real engine."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.scale.database import megabytes
from benchmarks.scale.long_history import Stepper, served, stored_history
from crushpy.core.messages import Usage

SIZES = "2,50,100"
QUICK = "2,20"
AIM = "flat"
CALLS = 16
"""Of each generation; each reads a part of a file."""
LINES = 500
_CHARS = 60


class Worker(Stepper):
    """Reads in each generation, and writes a summary when it is asked for one."""

    def __init__(self) -> None:
        super().__init__(0, 1_000)
        self._left = CALLS

    def __call__(self, body: dict[str, Any]) -> Any:
        from scripted_llm.replies import Call, Reply

        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("## Goal\nRead all of it.", usage=Usage(1_000, 50))
        self.asked += 1
        if self.asked % (CALLS + 1) == 0:
            return Reply("Read.", usage=Usage(2_000, 20))
        place = 1 + self.asked * 7 % 1_000
        name = f"file_{self.asked % 40}.txt"
        calls = [Call("view", {"file_path": name, "offset": place, "limit": LINES})]
        return Reply("Next.", calls=calls, usage=Usage(2_000, 20))


def measure(generations: int) -> dict[str, float]:
    """Of the last boundaries before that generation."""
    with stored_history(1_000) as (cwd, env), served(Worker()) as llm:
        for number in range(40):
            lines = (f"{number} {line} ".ljust(_CHARS, "x") for line in range(1_600))
            (cwd / f"file_{number}.txt").write_text("\n".join(lines))
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale.boundary"],
            cwd=Path(__file__).parents[2],
            env={**env, **llm.env, "SCALE_CWD": str(cwd), "SCALE_GENERATIONS": str(generations)},
            stdout=subprocess.PIPE,
            check=True,
        )
        figures: list[float] = json.loads(done.stdout)
        size = megabytes(env)
    return {"ms CPU": statistics.median(figures[-3:]), "MB of lineage": size}


async def _run() -> None:
    from crushpy.bootstrap.opening import open_conversation
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.core.events import BoundaryCommitted, Compacting, Event
    from crushpy.core.start_options import StartOptions

    cwd = Path(os.environ["SCALE_CWD"])
    options = StartOptions(cwd=str(cwd), yolo=True)
    conversation = await open_conversation(ProjectEnvironment(cwd, {}), options)
    begun = 0.0
    took: list[float] = []

    def hear(event: Event) -> None:
        nonlocal begun
        if isinstance(event, Compacting):
            begun = time.process_time()
        elif isinstance(event, BoundaryCommitted):
            took.append((time.process_time() - begun) * 1_000)

    conversation.subscribe(hear)
    for _ in range(int(os.environ["SCALE_GENERATIONS"])):
        status = await conversation.ask("Read on.")
        if status != "done":
            raise RuntimeError(f"{status}: {conversation.failure}")
        await conversation.context.compact()
    await conversation.close()
    print(json.dumps(took))


if __name__ == "__main__":
    asyncio.run(_run())
