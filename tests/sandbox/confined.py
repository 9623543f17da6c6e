"""For tests of the sandbox: a context whose commands run in it, and a word where there is none."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import ResourceLimits, confine
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import find_sandbox
from crushpy.tools.base import Outcome, ToolContext
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.files.file_memory import FileMemory
from crushpy.tools.shell.jobs import Jobs

needs_sandbox = pytest.mark.skipif(
    find_sandbox().name != "bubblewrap", reason=f"no bubblewrap here: {find_sandbox().why_not}"
)


@asynccontextmanager
async def confined(
    workspace: Path, home: Path, limits: ResourceLimits | None = None
) -> AsyncGenerator[ToolContext]:
    """A context for `workspace`; `home` is crushpy's, which commands must not see."""
    home.mkdir(mode=0o700, exist_ok=True)
    config = SandboxConfig(workspace, Path.home(), (home,), home / "outputs", home / "put_aside")
    jobs = Jobs((), lambda: confine("on", config, home / "sandboxes" / "one", limits))
    assert jobs.confinement.sandbox.on  # what tests try must never run outside
    try:
        yield ToolContext(workspace, home / "outputs", FileMemory(), jobs)
    finally:
        await jobs.close()


async def bash(
    context: ToolContext, command: str, needs: Privileges | None = None, *, timeout: float = 60
) -> Outcome:
    lent = context.copy_for_call("call", lambda _: None, needs)
    return await BashTool().run(BashArgs(command, timeout), lent)
