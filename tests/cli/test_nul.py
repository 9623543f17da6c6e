"""A NUL character in a path is a usage error, wherever the path comes from."""

import subprocess
import sys
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

IN_PROCESS = (
    "import sys; from crushpy.cli import main; "
    "sys.argv = ['crushpy', *(word.replace('NUL', chr(0)) for word in sys.argv[1:])]; main()"
)


@pytest.mark.parametrize(
    "words",
    [
        ("--cwd", "aNULb"),
        ("run", "--cwd", "aNULb", "hi"),
        ("run", "--image", "aNULb.png", "hi"),
        ("run", "--tasks", "aNULb"),
        ("trust", "aNULb"),
        ("sessions", "import", "claude", "aNULb"),
        ("sessions", "export", "latest", "--output", "aNULb"),
        ("storage", "copy", "aNULb", "new.db"),
    ],
    ids=" ".join,
)
def test_a_command_refuses_it(home: Path, workspace: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS, *words],
        cwd=workspace,
        env={"CRUSHPY_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "NUL" in done.stderr
    assert "\0" not in done.stderr


@pytest.mark.parametrize("key", ["database_url", "model"])
def test_a_setting_refuses_it(cli: Cli, home: Path, key: str) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'{key} = "sqlite:////tmp/a\\u0000b"\n')
    done = cli("sessions", "list")
    assert done.returncode == 2
    assert key in done.stderr


def test_a_tool_refuses_it(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    calls = [
        Call("view", {"file_path": "a\0b"}),
        Call("ls", {"path": "a\0b"}),
        Call("glob", {"pattern": "*\0", "path": "."}),
        Call("grep", {"pattern": "x", "path": "a\0b"}),
        Call("edit", {"file_path": "a\0b", "old_string": "x", "new_string": "y"}),
        Call("multiedit", {"file_path": "a\0b", "edits": [{"old_string": "x", "new_string": "y"}]}),
        Call("write", {"file_path": "a\0b", "content": "x"}),
        Call("bash", {"command": "touch a\0b"}),
    ]
    llm.script(Reply(calls=calls), "Done.")
    done = run("--yolo", "go")
    results = done.of("tool_result")
    assert [result["is_error"] for result in results] == [True] * len(calls)
    assert all("NUL" in result["text"] and "inside crushpy" not in result["text"] for result in results), (
        results
    )
    assert list(workspace.iterdir()) == []
