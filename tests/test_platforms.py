"""Systems that crushpy does not run on, or has not been tried on: what works there, and what is said."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import crushpy

PACKAGE = Path(crushpy.__file__).parent
HOMES = {
    "fcntl": "util/posix.py",
    "pwd": "util/posix.py",
    "termios": "util/terminal_modes.py",
    "tty": "util/terminal_modes.py",
    "pty": "util/terminal_modes.py",
}
"""Modules that Windows does not have, and the one module of ours that may import each."""
WINDOWS = """
import asyncio, os, signal, subprocess, sys

import keyring.core, typer, platformdirs  # they adapt to the real system

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {missing}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for module, names in {names}.items():
    for name in names:
        delattr(sys.modules[module], name)
sys.argv = ["crushpy", *sys.argv[1:]]
sys.platform = {platform!r}
import crushpy
from crushpy.cli import main
main()
"""
NOT_IN_OS = ("getuid", "geteuid", "getgid", "fork", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "uname")
NOT_IN_SIGNAL = ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1")


def crushpy_on(platform: str, *args: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command without the POSIX modules; on win32 also without POSIX functions and constants."""
    hidden = {"os": NOT_IN_OS, "signal": NOT_IN_SIGNAL} if platform == "win32" else {}
    missing = (*HOMES, "resource", "grp")
    code = WINDOWS.format(missing=missing, names=hidden, platform=platform)
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "CRUSHPY_HOME": str(home)},
        timeout=100,
    )


def test_posix_modules_are_imported_by_one_module_each() -> None:
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in imported:
                assert HOMES.get(module, name) == name, f"{name} imports {module}"


@pytest.mark.slow
def test_version_is_printed_on_windows(tmp_path: Path) -> None:
    done = crushpy_on("win32", "--version", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"crushpy {crushpy.__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("args", [(), ("run", "look around"), ("sessions", "list"), ("--help",)], ids=str)
def test_windows_is_told_to_use_wsl(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = crushpy_on("win32", *args, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "WSL 2" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_doctor_works_on_windows(tmp_path: Path) -> None:
    done = crushpy_on("win32", "doctor", "--json", home=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "WSL 2" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
    rows = json.loads(done.stdout)
    assert [row["text"] for row in rows if row["mark"] == "fail"] == [
        "commands cannot be run on Windows itself"
    ]
    assert {"versions", "files", "keys", "settings"} <= {row["area"] for row in rows}


@pytest.mark.slow
def test_doctor_works_without_posix_modules(tmp_path: Path) -> None:
    done = crushpy_on(sys.platform, "doctor", "--json", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [row for row in json.loads(done.stdout) if row["mark"] == "fail"]
