"""A deed done again and again, each time on a copy of what was stored, and killed a little later.

In a process of its own, since it forks: `killed_at_every` starts a script whose `main` calls
`kill_at_every_step`. The copies are BASE.1, BASE.2, ...; in the last one the deed came through.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from crushpy.storage.store import Store

Deed = Callable[[Path, int], Coroutine[Any, Any, None]]
"""Given a copy, and the step at which it kills itself."""
TESTS = Path(__file__).parents[1]


class Countdown:
    """Kills this process, with SIGKILL, at its n-th step."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal
        self.running = True

    def step(self, *_: Any) -> int:
        self._left -= self.running
        if self.running and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


async def watch(store: Store, how: str, countdown: Countdown) -> None:
    """From now on each SQL statement is a step, or each instruction of SQLite's machine."""

    def hook() -> None:
        database: Any = store.thread.database
        raw = database._raw
        raw.execute("PRAGMA cache_size = 10")
        if how == "statements":
            raw.set_trace_callback(countdown.step)
        else:
            raw.set_progress_handler(countdown.step, 1)

    await store.thread.run(hook)


def kill_at_every_step(base: Path, step: int, deed: Deed) -> None:
    """Forks a process for the steps 1, 1 + step, ... until one comes through; prints how many were killed."""
    killed = 0
    while True:
        copy = base.with_name(f"{base.name}.{killed + 1}")
        shutil.copytree(base, copy) if base.is_dir() else shutil.copy(base, copy)
        child = os.fork()
        if child == 0:
            asyncio.run(_to_the_end(deed(copy, 1 + killed * step)))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
        print(killed)
        return


async def _to_the_end(deed: Coroutine[Any, Any, None]) -> None:
    await deed
    os._exit(0)  # nothing is closed: whoever comes next finds the log as a crash leaves it


def killed_at_every(script: Path, base: Path, *args: str, **env: str) -> tuple[list[Path], Path]:
    """The copies that a killed process left, step by step, and that of the one which came through."""
    done = subprocess.run(
        [sys.executable, str(script), str(base), *args],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS, script.parent))),
            **env,
        },
    )
    assert done.returncode == 0, done.stderr
    *killed, whole = (base.with_name(f"{base.name}.{n}") for n in range(1, int(done.stdout) + 2))
    return killed, whole
