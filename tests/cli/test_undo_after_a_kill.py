"""`kill -9` while a command runs: the next start knows what the command had changed, and can take it back."""

import json
import os
import signal
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start, until

pytestmark = pytest.mark.slow

COMMAND = (
    "echo new > a.txt; rm b.txt; mv folder moved; chmod +x run.sh; mkdir made; touch made/ready; sleep 100"
)


def files(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode) if path.is_file() else ("", 0)
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def before(workspace: Path) -> dict[str, tuple[str, int]]:
    for name in ("a.txt", "b.txt", "mine.txt", "run.sh"):
        (workspace / name).write_text("old\n")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "inner.txt").write_text("inner\n")
    return files(workspace)


@pytest.fixture
def killed(start: Start, llm: ScriptedLLM, workspace: Path, before: object) -> str:
    """A session whose crushpy was killed while its command ran."""
    llm.script(Reply(calls=[Call("bash", {"command": COMMAND}, id="c1")]))
    live = start("--yolo", "change things")
    session = live.session
    until((workspace / "made" / "ready").exists, "the command has changed things")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    return session


def prompt_of(cli: Cli, session: str) -> str:
    shown = json.loads(cli("sessions", "show", session, "--json").stdout)
    return next(message["id"] for message in shown["messages"] if message["role"] == "user")


def changed(cli: Cli, session: str, workspace: Path) -> set[str]:
    listed = json.loads(cli("sessions", "changes", session, "--json").stdout)["files"]
    return {str(Path(entry["path"]).relative_to(workspace)) for entry in listed}


def test_changes_of_a_killed_command_are_recorded_at_the_next_start(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path, killed: str, before: object
) -> None:
    llm.script("I see.")
    done = run("-s", killed, "what happened?")
    assert "killed while a command ran" in str(done.of("notice"))
    assert changed(cli, killed, workspace) == {
        *("a.txt", "b.txt", "run.sh", "folder", "folder/inner.txt", "moved", "moved/inner.txt"),
        *("made", "made/ready"),
    }
    recorded = json.loads(cli("audit", "show", killed, "--json").stdout)
    assert {record["call_id"] for record in recorded if record["kind"] == "change"} == {"c1"}
    back = cli("sessions", "rewind", killed, "--to", prompt_of(cli, killed), "--files", "--yes")
    assert back.returncode == 0, back.stderr
    assert files(workspace) == before
    assert list((home / "undo" / "running").iterdir()) == []
    llm.script("Fine.")
    assert run("-s", killed, "and now?").of("notice") == []


def test_undo_leaves_changes_made_after_the_kill(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path, killed: str
) -> None:
    (note,) = (home / "undo" / "running").glob("*.json")
    os.utime(note, (1, 1))  # as if it had been gone before anything changed
    after = files(workspace)
    llm.script("I see.")
    assert run("-s", killed, "what happened?").code == 0
    back = cli("sessions", "rewind", killed, "--to", prompt_of(cli, killed), "--files", "--yes")
    assert back.returncode == 1
    assert "the result is unknown" in back.stderr
    assert files(workspace) == after


def test_another_conversation_records_changes_of_a_killed_one(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, killed: str
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "echo other > mine.txt"})]), "Done.")
    other = run("--yolo", "something else").result["session_id"]
    assert changed(cli, other, workspace) == {"mine.txt"}
    ours = changed(cli, killed, workspace)
    assert "mine.txt" not in ours and len(ours) == 9


def test_killed_while_no_command_runs_there_is_nothing_to_tell(
    run: Run, start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "echo x > x.txt"})]), Stall())
    live = start("--yolo", "change it")
    session = live.session
    live.until_type("tool_result")
    running = home / "undo" / "running"
    until(lambda: not list(running.glob("*.json")), "the note of the command is gone")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    llm.release()
    llm.script(Reply(calls=[Call("bash", {"command": "echo y > y.txt"})]), "Done.")
    told = [notice["text"] for notice in run("-s", session, "--yolo", "go on").of("notice")]
    assert [text for text in told if "window of" not in text] == []  # that may be told once more
    assert list(running.iterdir()) == []
