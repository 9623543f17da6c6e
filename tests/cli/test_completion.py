"""Completion in the shell: what Typer prints for the variables that its scripts set."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.e2e_terminal import Terminal

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


PROMPTS = {
    "bash": (".bashrc", "PS1='READY> '\n"),
    "zsh": (".zshrc", "PS1='READY> '\n"),
    "fish": (
        ".config/fish/config.fish",
        "set -g fish_greeting\nfunction fish_prompt; echo -n 'READY> '; end\n",
    ),
}


@contextmanager
def new_shell(shell: str, home: Path, project: Path) -> "Iterator[Terminal]":
    """An interactive shell of a user with this home, where `crushpy` is on the PATH.

    Opening the terminal by its name makes it the controlling one, which shells need for their jobs.
    """
    env = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "xterm"}
    with Terminal(launcher=("sh", "-c", f"exec {shell} -i <$(tty)"), cwd=project, env=env) as terminal:
        terminal.wait_for("READY>")
        yield terminal


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_first_tab_completes_in_a_shell_that_installed_it(
    workspace: Path, tmp_path: Path, shell: str
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    settings, prompt = PROMPTS[shell]
    (tmp_path / settings).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / settings).write_text(prompt)
    (workspace / "notes.txt").touch()
    with new_shell(shell, tmp_path, workspace) as terminal:
        terminal.type_line("crushpy --install-completion")
        terminal.wait_for(f"{shell} completion installed")
    for typed, completed in (
        ("crushpy template show tools/gre", "tools/grep"),
        ("crushpy run --image no", "--image notes.txt"),  # what is not ours to complete is a file
    ):
        with new_shell(shell, tmp_path, workspace) as terminal:
            terminal.press(typed)
            terminal.wait_for(typed)
            terminal.press("\t")
            terminal.wait_for(completed)


def test_a_tab_loads_no_slow_library(workspace: Path) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('LOADED', *sys.modules));"
        "from crushpy.cli import main; main()"
    )
    variables = {"_CRUSHPY_COMPLETE": "complete_bash", "COMP_WORDS": "crushpy ses", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **variables}
    )
    loaded = set(done.stdout.partition("LOADED")[2].split())
    assert "crushpy.cli.app" in loaded, done.stderr
    assert not loaded & {"pydantic", "litellm", "textual", "sqlalchemy", "rich.console"}
