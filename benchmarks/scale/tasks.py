"""A list of tasks that only read: what is sent, in all and at most at once, and how long it takes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.scale.database import fresh_database

SIZES = "10,100"
AIM = "sent: bounded for each task; side by side where they may"
REPORT = "The parser lives in src/parse.py, and is called from four places. " * 60
"""About 4,000 characters."""
THINKING = 0.02
"""Seconds between the two pieces of a reply: a model takes its time."""


def answer(body: dict[str, Any]) -> Answer:
    """Each task looks at something once, and then reports."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return Reply(REPORT, chunk=len(REPORT) // 2, delay=THINKING)
    return Reply("Looking.", calls=[Call("ls", {})], chunk=4, delay=THINKING)


def measure(tasks: int) -> dict[str, float]:
    alone, sent, largest = _run(tasks, 1)
    together, *_ = _run(tasks, 8)
    return {
        "MB sent": sent / 1e6,
        "largest kB": largest / 1e3,
        "s, one by one": alone,
        "s, 8 at once": together,
    }


def _run(tasks: int, parallel: int) -> tuple[float, int, int]:
    """How long it took, and the bytes of all requests and of the largest."""
    with TemporaryDirectory(prefix="scale-") as top, ScriptedLLM() as llm, fresh_database() as where:
        llm.always(answer)
        home, cwd = Path(top) / "home", Path(top) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        listed = [{"prompt": f"Look at part {number}.", "read_only": True} for number in range(tasks)]
        (cwd / "list.json").write_text(json.dumps(listed))
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY")}
        env |= {**llm.env, "CRUSHPY_HOME": str(home), "HOME": top, "CRUSHPY_MODEL": "openai/bench", **where}
        side_by_side = ("--parallel", str(parallel)) if parallel > 1 else ()
        command = [sys.executable, "-m", "crushpy", "run", "-q", "--tasks", "list.json", *side_by_side]
        began = time.monotonic()
        subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
        )
        took = time.monotonic() - began
        sizes = [len(request.raw) for request in llm.requests]
    return took, sum(sizes), max(sizes)
