"""Many headless runs on one database, so many at a time: how many fail, and how long they take."""

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.scale.database import execute, fresh_database

SIZES = "50,200"
QUICK = "10,50"
AIM = "0 of 200 fail, 50 at a time"
AT_A_TIME = 50
PATIENCE = 600


def answer(body: dict[str, Any]) -> Answer:
    """Each run looks at something once, and then says so."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return Reply("Done.")
    return Reply("Looking.", calls=[Call("ls", {})])


def measure(runs: int) -> dict[str, float]:
    with TemporaryDirectory(prefix="scale-") as top, ScriptedLLM() as llm, fresh_database() as where:
        llm.always(answer)
        home, cwd = Path(top) / "home", Path(top) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY")}
        env |= {**llm.env, "CRUSHPY_HOME": str(home), "HOME": top, "CRUSHPY_MODEL": "openai/bench", **where}

        def run(number: int) -> tuple[str, float]:
            """Why it failed, or nothing; and how long it took."""
            began = time.monotonic()
            command = [sys.executable, "-m", "crushpy", "run", "-q", f"Look around, number {number}."]
            done = subprocess.run(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            said = (done.stderr.strip().splitlines() or [""])[0]
            bad = done.returncode != 0 or done.stdout.strip() != "Done."
            return (f"{done.returncode}: {said}" if bad else "", time.monotonic() - began)

        began = time.monotonic()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            ended = list(pool.map(run, range(runs)))
        seconds = time.monotonic() - began
        stored = execute(env, "SELECT count(*) FROM conversation")[0][0]
    for reason, many in Counter(reason for reason, _ in ended if reason).items():
        print(f"  {many} failed: {reason}", file=sys.stderr)
    return {
        "failed": sum(bool(reason) for reason, _ in ended),
        "stored": stored,
        "seconds": seconds,
        "slowest s": max(took for _, took in ended),
    }
