"""The database is deleted, replaced or overwritten under a run: it stops before the next tool, and saves."""

import json
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Done, Run, Start, until

pytestmark = pytest.mark.slow

WAIT = "touch began; until [ -e go ]; do sleep 0.01; done; echo walrus"


def deleted(file: Path) -> None:
    file.unlink()


def deleted_with_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def replaced(file: Path) -> None:
    other = file.with_name("other.db")
    shutil.copy(file, other)
    other.replace(file)


def replaced_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbage(file: Path) -> None:
    file.write_bytes(b"not a database " * 10_000)


def zeroed(file: Path) -> None:
    with file.open("r+b") as out:
        out.write(bytes(file.stat().st_size))


def another_database(file: Path) -> None:
    made = file.with_name("made.db")
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    file.write_bytes(made.read_bytes())


def an_older_copy(file: Path) -> None:
    file.write_bytes(file.with_name("copy.db").read_bytes())


def log_deleted(file: Path) -> None:
    file.with_name(f"{file.name}-wal").unlink()


def log_emptied(file: Path) -> None:
    file.with_name(f"{file.name}-wal").write_bytes(b"")


def log_overwritten(file: Path) -> None:
    file.with_name(f"{file.name}-wal").write_bytes(b"not a log " * 10_000)


ACCIDENTS: list[Callable[[Path], None]] = [
    *(deleted, deleted_with_folder, replaced, replaced_by_a_folder, emptied, garbage, zeroed),
    *(another_database, an_older_copy, log_deleted, log_emptied, log_overwritten),
]


def stopped_run(start: Start, home: Path, workspace: Path, accident: Callable[[Path], None]) -> Done:
    running = start("--yolo", "work")
    until((workspace / "began").exists, "the first command runs")
    accident(home / "crushpy.db")
    (workspace / "go").touch()
    return running.end()


def rescued_lines(home: Path) -> list[dict[str, Any]]:
    (file,) = home.glob("crushpy.db.rescued-*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda accident: accident.__name__)
def test_the_turn_stops_before_the_next_tool_and_saves_its_messages(
    run: Run,
    start: Start,
    llm: ScriptedLLM,
    home: Path,
    workspace: Path,
    accident: Callable[[Path], None],
) -> None:
    llm.script("Hello.")
    assert run("earlier").code == 0
    shutil.copy(home / "crushpy.db", home / "copy.db")
    second = Call("bash", {"command": "touch second"})
    llm.script(Reply("I start.", calls=[Call("bash", {"command": WAIT}), second]), "Never asked for.")
    done = stopped_run(start, home, workspace, accident)
    assert done.code == 1
    assert not (workspace / "second").exists()
    assert llm.steps_left == 1
    (error,) = done.of("error")
    (file,) = home.glob("crushpy.db.rescued-*.jsonl")
    assert str(file) in error["message"]
    assert str(file) in done.result["error"]
    session, *messages = rescued_lines(home)
    assert session["id"] == done.lines[0]["id"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert "walrus" in json.dumps(messages[-1])


def test_a_call_that_only_reads_is_not_run_either(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    (workspace / "notes").write_text("secret of the walrus\n")
    calls = [Call("bash", {"command": WAIT}), Call("view", {"file_path": "notes"})]
    llm.script(Reply(calls=calls), "Never asked for.")
    done = stopped_run(start, home, workspace, deleted)
    assert done.code == 1
    assert "secret of the walrus" not in done.stdout + json.dumps(rescued_lines(home))


def test_damage_met_in_a_turn_saves_the_messages(
    run: Run, start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    llm.script("x" * 100_000)
    assert run("earlier").code == 0

    def damage_middle(file: Path) -> None:
        size = file.stat().st_size
        with file.open("r+b") as out:
            out.seek(4096)
            out.write(b"\xff" * (size - 2 * 4096))

    llm.script(Reply(calls=[Call("bash", {"command": WAIT})]), "Never asked for.")
    done = stopped_run(start, home, workspace, damage_middle)
    assert done.code == 1
    assert "rescued" in done.result["error"]
    assert len(rescued_lines(home)) == 4


def test_run_continues_while_other_processes_write_and_checkpoint(
    run: Run, start: Start, cli: Cli, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": WAIT}), Call("bash", {"command": "touch second"})]))
    running = start("--yolo", "work")
    until((workspace / "began").exists, "the first command runs")
    llm.script("y" * 3_000_000, "Good.")
    assert run("another").code == 0
    assert cli("sessions", "list").returncode == 0
    with closing(sqlite3.connect(home / "crushpy.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (workspace / "go").touch()
    assert running.end().code == 0
    assert (workspace / "second").exists()
    assert not list(home.glob("*.rescued-*"))


def test_a_checkpoint_by_hand_is_not_damage(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    def checkpoint(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    llm.script(Reply(calls=[Call("bash", {"command": WAIT})]), "Good.")
    done = stopped_run(start, home, workspace, checkpoint)
    assert (done.code, done.result["text"]) == (0, "Good.")
