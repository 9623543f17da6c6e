"""Completion in the shell: what Typer prints for the variables that its scripts set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def complete(shell: str, line: str, cwd: Path, **env: str) -> list[str]:
    """The words offered at the end of `line`."""
    words = line.split(" ")
    variables = {"_CRUSHPY_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    if shell == "bash":
        variables |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        variables |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "crushpy"],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **variables, **env},
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_are_completed(workspace: Path, shell: str) -> None:
    offered = "\n".join(complete(shell, "crushpy se", workspace))
    assert "sessions" in offered
    assert "doctor" not in offered


@pytest.mark.parametrize("line", ["crushpy sessions show ", "crushpy run -s ", "crushpy -s "])
def test_session_ids_are_completed(workspace: Path, line: str) -> None:
    home = Path(os.environ["CRUSHPY_HOME"])
    assert complete("bash", line, workspace) == []
    assert not (home / "crushpy.db").exists(), "a Tab creates no database"
    run = subprocess.run(
        [sys.executable, "-m", "crushpy", "run", "look around", "--format", "json"],
        capture_output=True,
        text=True,
        cwd=workspace,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    (session,) = [word for word in complete("bash", line, workspace) if word != "latest"]
    assert session in run.stdout


def test_models_with_a_key_are_completed(workspace: Path) -> None:
    offered = complete("bash", "crushpy run -m ", workspace, ANTHROPIC_API_KEY="sk-ant-none")
    assert "demo/tour" in offered
    assert any(name.startswith("anthropic/claude") for name in offered)
    assert not any(name.startswith("openai/") for name in offered)


def test_templates_are_completed(workspace: Path) -> None:
    assert "tools/bash" in complete("bash", "crushpy template show tools/b", workspace)


def test_damaged_settings_complete_nothing(workspace: Path) -> None:
    home = Path(os.environ["CRUSHPY_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("model = [\n")
    assert complete("bash", "crushpy -s ", workspace) == []
    assert complete("bash", "crushpy -m ", workspace) == []
