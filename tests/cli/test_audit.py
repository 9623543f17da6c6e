"""`crushpy audit show`: every decision and change is recorded."""

import hashlib
import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start

pytestmark = pytest.mark.slow

LOOK = Call("ls", {}, id="c1")
TOUCH = Call("bash", {"command": "touch made && frobnicate sk-abcdefghij0123456789ABCD"}, id="c2")
WRITE = Call("write", {"file_path": "a.txt", "content": "alpha\n"}, id="c3")


def records(cli: Cli, *args: str) -> list[dict[str, Any]]:
    done = cli("audit", "show", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def decisions(cli: Cli, *args: str) -> list[dict[str, Any]]:
    return [record for record in records(cli, *args) if record["kind"] == "decision"]


@pytest.fixture
def told(run: Run, llm: ScriptedLLM) -> str:
    """A conversation with calls that were allowed, refused and denied; its id."""
    llm.script(Reply(calls=[LOOK, TOUCH, WRITE]), "Done.")
    done = run("--allow", "bash(touch)", "--allow", "write(*.txt)", "do it")
    return done.result["session_id"]


def test_every_decision_is_recorded_with_its_parts_who_and_when(cli: Cli, told: str) -> None:
    look, touch, write = decisions(cli, told)
    assert (look["tool"], look["verdict"], look["by"]) == ("ls", "allowed", "rules")
    assert look["reason"] == "reading inside the workspace needs no rule"
    assert touch["verdict"] == "unasked"
    assert [(part["verdict"], part["about"].split()[0]) for part in touch["parts"]] == [
        ("allow", "touch"),
        ("ask", "frobnicate"),
    ]
    assert touch["sandbox"]
    assert touch["call_id"] == "c2"
    assert (write["verdict"], write["reason"]) == ("allowed", "allowed by the rule write(*.txt)")
    assert write["owner"] == write["parts"][0]["owner"] == "user"
    assert "sandbox" not in write
    assert all(entry["user"] and entry["at"] and entry["mode"] == "ask" for entry in (look, touch, write))


def test_every_change_is_recorded_with_what_was_there_before_and_after(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, told: str
) -> None:
    edit = Call("edit", {"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}, id="c4")
    look = Call("view", {"file_path": "a.txt"})
    remove = Call("bash", {"command": "rm a.txt"}, id="c5")
    llm.script(Reply(calls=[look]), Reply(calls=[edit]), Reply(calls=[remove]), "Done.")
    assert run("-s", told, "--yolo", "go on").code == 0
    alpha, beta = (hashlib.sha256(text).hexdigest() for text in (b"alpha\n", b"beta\n"))
    changes = [
        (record["call_id"], record["path"], record["before"], record["after"])
        for record in records(cli, told)
        if record["kind"] == "change"
    ]
    path = str(workspace / "a.txt")
    assert changes == [("c3", path, "", alpha), ("c4", path, alpha, beta), ("c5", path, beta, "")]
    assert f"changed {path}: {alpha[:12]} -> {beta[:12]}" in cli("audit", "show", told).stdout


def test_audit_contains_no_secret(cli: Cli, told: str, home: Path) -> None:
    assert "sk-abcdefghij0123456789ABCD" not in json.dumps(records(cli, told))
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        bodies = str(database.execute("SELECT body FROM audit").fetchall())
    assert "[redacted]" in bodies
    assert "sk-abcdefghij0123456789ABCD" not in bodies


def test_show_without_json_is_a_line_for_each_record(cli: Cli, told: str) -> None:
    shown = cli("audit", "show").stdout
    assert told in shown
    assert "allowed: ls" in shown
    assert "unasked: bash touch made" in shown
    assert "reading inside the workspace needs no rule" in shown


def test_the_database_itself_refuses_to_change_or_delete_a_record(told: str, home: Path) -> None:
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        for statement in ("UPDATE audit SET body = ''", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                database.execute(statement)


def test_deleting_a_conversation_leaves_its_audit_with_a_tombstone(cli: Cli, told: str) -> None:
    before = records(cli, told)
    assert cli("sessions", "delete", told, "--yes").returncode == 0
    after = records(cli, told[:8])
    assert after[:-1] == before
    assert after[-1]["kind"] == "deleted"
    assert after[-1]["by"]
    shown = cli("audit", "show", told).stdout
    assert "deleted by" in shown and "no longer stored" in shown


def test_branches_and_compactions_go_on_in_the_same_audit(
    run: Run, cli: Cli, llm: ScriptedLLM, told: str
) -> None:
    llm.script(Reply(calls=[LOOK]), "Branched.")
    assert run("-s", told, "--fork", "look").code == 0
    fresh = Call("new_session", {"summary": "We looked."})
    llm.script(Reply(calls=[LOOK]), Reply(calls=[fresh]), Reply(calls=[LOOK]), "Done.")
    assert run("-s", told, "--compaction", "llm", "look").code == 0
    made = decisions(cli, told)
    assert [record["number"] for record in records(cli, told)] == list(range(1, len(records(cli, told)) + 1))
    assert len({boundary["session_id"] for boundary in made}) == 3


def test_a_task_is_recorded_in_the_audit_of_its_conversation(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("task", {"prompt": "look"}, id="t1")]), Reply(calls=[LOOK]), "Seen.", "Done."
    )
    session = run("do it").result["session_id"]
    assert [(decision["tool"], decision.get("task")) for decision in decisions(cli, session)] == [
        ("task", None),
        ("ls", "t1"),
    ]


def test_a_decision_is_still_recorded_after_a_kill(start: Start, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[LOOK]), Stall())
    live = start("do it")
    session = live.session
    live.until_type("tool_result")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    assert len(decisions(cli, session)) == 1


def test_a_decision_that_cannot_be_recorded_stops_the_call(
    run: Run, llm: ScriptedLLM, workspace: Path, home: Path, told: str
) -> None:
    with closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no space left'); END"
        )
    llm.script(Reply(calls=[Call("write", {"file_path": "b.txt", "content": "x"})]), "Done.")
    done = run("-s", told, "--yolo", "go on")
    assert done.code != 0
    assert "write was not run: the decision could not be recorded" in done.result["error"]
    assert not (workspace / "b.txt").exists()


def test_read_result_is_neither_kept_nor_sent_when_its_record_fails(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path, told: str
) -> None:
    (workspace / "notes.txt").write_text("the plan\n")
    with closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no space left'); END"
        )
    llm.script(Reply(calls=[Call("view", {"file_path": "notes.txt"})]), "Done.")
    asked = len(llm.requests)
    done = run("-s", told, "--yolo", "go on")
    assert done.code != 0
    assert "no space left" in done.result["error"]
    assert len(llm.requests) == asked + 1
    assert "the plan" not in cli("sessions", "export", told).stdout


def test_a_call_that_only_reads_is_recorded_with_its_result(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    (workspace / "notes.txt").write_text("the plan\n")
    names = [*(f"v{number}" for number in range(40)), "gone"]
    paths = [*["notes.txt"] * 40, "missing.txt"]
    looks = zip(names, paths, strict=True)
    llm.script(Reply(calls=[Call("view", {"file_path": path}, id=name) for name, path in looks]), "Done.")
    done = run("look")
    assert sorted(decision["call_id"] for decision in decisions(cli, done.result["session_id"])) == sorted(
        names
    )
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        runs = database.execute(
            "SELECT call_id, is_error, ended_at >= started_at, message.role FROM tool_run "
            "JOIN message ON message.id = tool_run.result_id"
        ).fetchall()
    assert sorted(runs) == sorted((name, name == "gone", 1, "tool") for name in names)


def test_a_conversation_without_records_says_so(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    run("hi")
    assert "Nothing is recorded" in cli("audit", "show").stdout
    assert cli("audit", "show", "nonesuch").returncode == 2
