"""What every test may use: a home of its own, a workspace of its own, and the real command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Cli

pytest_plugins = ["scripted_llm.fixtures", "talk", "headless"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh CRUSHPY_HOME, and none of this machine's keys or settings."""
    folder = tmp_path / "home"
    for name in list(os.environ):
        if name.startswith("CRUSHPY_") or name.endswith(
            ("_API_KEY", "_BASE_URL", "_API_BASE", "_PROXY", "_proxy")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CRUSHPY_HOME", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; the current directory of the test."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cli(workspace: Path) -> Cli:
    """Runs the real crushpy in a process of its own: `cli("config", "list", env={...}, stdin="...")`."""

    def run(
        *args: str,
        env: dict[str, str] | None = None,
        stdin: str = "",
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "crushpy", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd or workspace,
            env={**os.environ, **(env or {})},
        )

    return run
