"""One process at work for many turns, with compactions on the way: CPU and memory, first and last."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.scale.long_history import MODEL, stored_history

SIZES = "100,1k"
QUICK = "50,100"
AIM = "CPU (the median of a tenth of the turns) and memory of a turn are flat"
WINDOW = 60_000
"""Tokens: a compaction comes every hundred turns or so."""


def answer(body: dict[str, Any]) -> Answer:
    """Each turn looks at a part of a file; a summary is a few sentences."""
    if not body.get("tools"):
        return Reply("The agent looked at a.txt, line by line, and goes on with it.")
    if body["messages"][-1]["role"] == "tool":
        return Reply("Seen.")
    return Reply("Looking.", calls=[Call("view", {"file_path": "a.txt", "offset": 1, "limit": 60})])


def measure(turns: int) -> dict[str, float]:
    with stored_history(1_000) as (cwd, env), ScriptedLLM() as llm:
        llm.always(answer)
        told = {"SCALE_CWD": str(cwd), "SCALE_TURNS": str(turns)}
        settings = f'model = "{MODEL}"\n[models."{MODEL}"]\ncontext_window = {WINDOW}\n'
        Path(env["CRUSHPY_HOME"], "config.toml").write_text(settings)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale.soak"],
            cwd=Path(__file__).parents[2],
            env={**env, **llm.env, **told},
            stdout=subprocess.PIPE,
            check=True,
        )
        found: dict[str, list[float]] = json.loads(done.stdout)
        llm.requests.clear()
    tenth = max(1, turns // 10)
    cpu, memory = found["cpu"], found["memory"]
    return {
        "ms CPU, 1st": statistics.median(cpu[:tenth]),
        "2nd tenth": statistics.median(cpu[tenth : 2 * tenth] or cpu),
        "the last": statistics.median(cpu[-tenth:]),
        "MB at a tenth": memory[tenth - 1],
        "MB at half": memory[turns // 2],
        "MB at the end": memory[-1],
        "compactions": found["boundaries"][0],
    }


async def _run() -> None:
    from crushpy.bootstrap.opening import open_conversation
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.core.events import BoundaryCommitted, Event
    from crushpy.core.start_options import StartOptions

    cwd = Path(os.environ["SCALE_CWD"])
    options = StartOptions(cwd=str(cwd), yolo=True)
    conversation = await open_conversation(ProjectEnvironment(cwd, {}), options)
    boundaries: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, BoundaryCommitted):
            boundaries.append(event.id)

    conversation.subscribe(hear)
    cpu: list[float] = []
    memory: list[float] = []
    for number in range(int(os.environ["SCALE_TURNS"])):
        before = time.process_time()
        status = await conversation.ask(f"Go on, for the {number}th time.")
        if status != "done":
            raise RuntimeError(f"{status}: {conversation.failure}")
        cpu.append((time.process_time() - before) * 1_000)
        memory.append(_resident())
    await conversation.close()
    print(json.dumps({"cpu": cpu, "memory": memory, "boundaries": [len(boundaries)]}))


def _resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    asyncio.run(_run())
