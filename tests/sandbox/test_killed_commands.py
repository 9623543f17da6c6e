"""What the guard would have put aside after a command is put aside at the next start after a kill."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from confined import each_sandbox
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Run, Start, until

__all__ = ["each_sandbox"]

LEFT = {
    ".envrc": "echo hostile",
    ".mcp.json": json.dumps({"mcpServers": {"evil": {"command": "touch", "args": ["ran"]}}}),
    "sub/.vscode/tasks.json": "{}",
    "lib/.git/config": "[core]\n\tfsmonitor = touch ran\n",
    "lib/.git/HEAD": "ref: refs/heads/main\n",
}


def kill_during(start: Start, llm: ScriptedLLM, workspace: Path, command: str) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": f"{command}; touch done; sleep 86400"})]), "Done.")
    live = start("--yolo", "go")
    until((workspace / "done").exists, "the command ran")
    live.process.send_signal(signal.SIGKILL)
    live.process.wait()


@pytest.mark.usefixtures("each_sandbox")
def test_files_of_a_killed_command_are_put_aside_at_the_next_start(
    start: Start, run: Run, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    (workspace / "sub").mkdir()
    (workspace / "keep").mkdir()
    (workspace / "keep" / ".envrc").write_text("mine")
    commands = [
        f"mkdir -p $(dirname {name}) && echo {json.dumps(text)!r} > {name}" for name, text in LEFT.items()
    ]
    commands += [
        "mkdir -p lib/.git/objects lib/.git/refs",
        "echo hostile > keep/.envrc",
        "echo fine > code.py",
    ]
    kill_during(start, llm, workspace, "; ".join(commands))
    assert (workspace / ".envrc").exists(), "nothing could be put aside"
    llm.script("Hello.")
    done = run("hi")
    assert done.code == 0
    said = "\n".join(line["text"] for line in done.of("notice"))
    for name in (".envrc", ".mcp.json", "sub/.vscode/tasks.json", "lib/.git/config"):
        assert not (workspace / name).exists(), name
        assert f"{workspace}/{name} was created and was moved to {home}/put_aside/" in said
    assert (workspace / "keep" / ".envrc").read_text() == "mine"
    assert (workspace / "code.py").read_text() == "fine\n"
    assert not list((home / "sandboxes").glob("*.guarded"))
    llm.script("Hello.")
    assert "was killed" not in str(run("hi").of("notice")), "it is said once"


def test_records_of_running_and_other_workspaces_are_left_alone(
    start: Start, run: Run, llm: ScriptedLLM, workspace: Path, home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    kill_during(start, llm, workspace, "echo x > .envrc")
    (record,) = (home / "sandboxes").glob("*.guarded")
    llm.script("Hello.")
    assert run("--cwd", str(other), "hi").code == 0
    assert record.exists() and (workspace / ".envrc").exists()


def test_finished_command_leaves_no_record(run: Run, llm: ScriptedLLM, home: Path) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "echo"})]), "Done.")
    assert run("--yolo", "go").code == 0
    assert [name for name in os.listdir(home / "sandboxes") if not name.endswith(".lock")] == []


def test_git_of_the_user_runs_nothing_after_the_next_start(
    start: Start, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    setting = f"[core]\\n\\tfsmonitor = touch {workspace}/ran\\n"
    kill_during(start, llm, workspace, f"git init -q lib && printf '{setting}' >> lib/.git/config")
    assert (workspace / "lib" / ".git" / "config").read_text().count("fsmonitor") == 1
    llm.script("Hello.")
    run("hi")
    subprocess.run(["git", "-C", str(workspace / "lib"), "status"], capture_output=True, check=False)
    assert not (workspace / "ran").exists()
