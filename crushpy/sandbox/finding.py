"""Finds the sandbox that works on this machine, and why if none does. Tried once and cached."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data
from crushpy.security.programs import find_program

SandboxName = Literal["bubblewrap", "landlock", "sandbox-exec", "none"]

_TRIAL_TIMEOUT_S = 10
NAMESPACES = (
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
)
"""What bubblewrap isolates for every command; the network is isolated separately."""

_LANDLOCK_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from crushpy.sandbox.supervisor.landlock import MIN_VERSION, landlock_version, restrict_process
from crushpy.sandbox.supervisor.landlock import filters_sockets
if landlock_version() < MIN_VERSION or not filters_sockets():
    sys.exit(1)
restrict_process([], network=False)
try:
    open("/proc/self/stat")
except PermissionError:
    sys.exit(0)
sys.exit(1)
"""


class Sandbox(Data, frozen=True):
    """The sandbox commands run in."""

    name: SandboxName
    why_not: str = ""
    """Why there is none, or not the better one, and what to do about it."""
    program: str = ""
    """The program that creates it."""

    @property
    def on(self) -> bool:
        return self.name != "none"

    @property
    def keeps_repository(self) -> bool:
        """Whether `.git` and other executed files stay unchanged, so that commands need no question."""
        return self.name == "bubblewrap"


def find_sandbox(mode: str = "on") -> Sandbox:
    """The sandbox under `sandbox.mode`. The first call tries the candidates, which takes milliseconds."""
    if mode == "off":
        return Sandbox("none", "it is turned off (sandbox.mode)")
    return working_sandbox()


@cache
def working_sandbox() -> Sandbox:
    if sys.platform.startswith("linux"):
        found = _find_bubblewrap()
        return found if found.on else working_landlock(found.why_not)
    if sys.platform == "darwin":
        return _find_sandbox_exec()
    return Sandbox("none", f"there is none for {sys.platform}")


def _find_bubblewrap() -> Sandbox:
    program = find_program("bwrap")
    if program is None:
        return Sandbox("none", "bubblewrap is not installed (the package is called bubblewrap)")
    trial = [program, *NAMESPACES, "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    try:
        result = _run([*trial, "--", "true"])
    except (OSError, subprocess.SubprocessError) as error:
        return Sandbox("none", f"bubblewrap could not be started: {error}")
    if result.returncode != 0:
        return Sandbox("none", f"bubblewrap does not work here: {_first_line(result.stderr)}")
    return Sandbox("bubblewrap", program=program)


def _find_sandbox_exec() -> Sandbox:
    program = shutil.which("sandbox-exec", path="/usr/bin")
    if program is None:
        return Sandbox("none", "sandbox-exec is not installed")
    result = _run([program, "-p", "(version 1)(allow default)(deny network*)", "/usr/bin/true"])
    if result.returncode != 0:
        return Sandbox("none", f"sandbox-exec does not work here: {_first_line(result.stderr)}")
    return Sandbox("sandbox-exec", program=program)


def working_landlock(why_not: str = "") -> Sandbox:
    """Landlock, if a child process can restrict itself with it."""
    result = _run([sys.executable, "-I", "-S", "-c", _LANDLOCK_SCRIPT, str(Path(__file__).parents[2])])
    if result.returncode == 0:
        return Sandbox("landlock", why_not)
    return Sandbox("none", f"{why_not}; Landlock does not work here either (it needs Linux 6.2)")


def _run(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_TIMEOUT_S, check=False
    )


def _first_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else "it gave no reason"
