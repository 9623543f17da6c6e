"""For tests of commands: a context to run them in, and a look at the processes of this machine."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from crushpy.tools.base import CallContext, Outcome, Workspace
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.shell.jobs import Jobs

DEADLINE = 60.0


@asynccontextmanager
async def lent(
    workspace: Path, outputs: Path | None = None, jobs: Jobs | None = None
) -> AsyncIterator[CallContext]:
    """A context for `workspace` whose processes are gone at the end, whatever the test did."""
    context = CallContext(Workspace(workspace, outputs or workspace.parent / "outputs", jobs or Jobs()))
    try:
        yield context
    finally:
        await context.workspace.jobs.close()


async def bash(context: CallContext, command: str, timeout: float = 60, background: bool = False) -> Outcome:
    return await BashTool().run(BashArgs(command, timeout, background), context)


async def timed_out(context: CallContext, command: str, once: Callable[[Outcome], object]) -> Outcome:
    """What a command gives that its timeout ended; with more time where it was ended before `once` held."""
    for seconds in (0.3, 2, 10, 40):
        outcome = await bash(context, command, seconds)
        if once(outcome):
            break
    assert outcome.text.endswith(f"[timed out after {seconds:g} s and was killed]")
    assert outcome.is_error
    return outcome


async def until(condition: Callable[[], object], what: str) -> None:
    """Waits for `condition`, and fails with `what` where it does not come true."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


def holds_pid(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


async def pid_in(file: Path) -> int:
    """The process number that a command writes to `file`."""
    await until(lambda: holds_pid(file), f"{file} holds a number")
    return int(file.read_text())
