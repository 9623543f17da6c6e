"""`crushpy audit`: every decision is recorded, and what was tampered with is found."""

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
    assert "sandbox" not in write
    assert all(one["user"] and one["at"] and one["mode"] == "ask" for one in (look, touch, write))


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
        (one["call_id"], one["path"], one["before"], one["after"])
        for one in records(cli, told)
        if one["kind"] == "change"
    ]
    path = str(workspace / "a.txt")
    assert changes == [("c3", path, "", alpha), ("c4", path, alpha, beta), ("c5", path, beta, "")]
    assert f"changed {path}: {alpha[:12]} -> {beta[:12]}" in cli("audit", "show", told).stdout
    assert cli("audit", "verify", told).returncode == 0


def test_what_is_recorded_holds_no_secret(cli: Cli, told: str, home: Path) -> None:
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


def test_a_chain_that_holds_verifies(cli: Cli, told: str) -> None:
    done = cli("audit", "verify")
    assert done.returncode == 0, done.stdout
    assert told in done.stdout
    assert "the chain holds" in done.stdout
    assert cli("audit", "verify", told[:6]).returncode == 0


TAMPERED = {
    "a record that was changed": (
        "UPDATE audit SET body = replace(body, 'unasked', 'allowed') WHERE number = 2",
        2,
    ),
    "a time that was changed": ("UPDATE audit SET at = at + 1 WHERE number = 1", 1),
    "a record that is missing": ("DELETE FROM audit WHERE number = 2", 2),
    "the last record missing": ("DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)", None),
    "two that changed places": (
        "UPDATE audit SET number = CASE number WHEN 1 THEN -2 WHEN 2 THEN -1 ELSE number END",
        1,
    ),
    "no end": ("DELETE FROM audit_end", None),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_verify_names_the_first_bad_record(cli: Cli, told: str, home: Path, what: str) -> None:
    statement, bad = TAMPERED[what]
    with closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        last = database.execute("SELECT max(number) FROM audit").fetchone()[0]
        database.execute("DROP TRIGGER audit_is_not_changed")
        database.execute("DROP TRIGGER audit_is_not_deleted")
        database.execute(statement)
        database.execute("UPDATE audit SET number = -number WHERE number < 0")
    done = cli("audit", "verify", told)
    assert done.returncode == 1
    assert f"record {bad or last} is bad" in done.stdout
    assert json.loads(cli("audit", "verify", "--json").stdout)[0]["holds"] is False


def test_the_database_itself_refuses_to_change_or_delete_a_record(told: str, home: Path) -> None:
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        for statement in ("UPDATE audit SET body = ''", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                database.execute(statement)


def test_deleting_a_conversation_leaves_a_tombstone(cli: Cli, told: str) -> None:
    before = records(cli, told)
    assert cli("sessions", "delete", told, "--yes").returncode == 0
    after = records(cli, told[:8])
    assert after[:-1] == before
    assert after[-1]["kind"] == "deleted"
    assert after[-1]["by"]
    assert cli("audit", "verify", told).returncode == 0
    assert "deleted by" in cli("audit", "show", told).stdout


def test_branches_and_compactions_go_on_in_the_same_chain(
    run: Run, cli: Cli, llm: ScriptedLLM, told: str
) -> None:
    llm.script(Reply(calls=[LOOK]), "Branched.")
    assert run("-s", told, "--fork", "look").code == 0
    fresh = Call("new_session", {"summary": "We looked."})
    llm.script(Reply(calls=[LOOK]), Reply(calls=[fresh]), Reply(calls=[LOOK]), "Done.")
    assert run("-s", told, "--compaction", "llm", "look").code == 0
    made = decisions(cli, told)
    assert [one["number"] for one in records(cli, told)] == list(range(1, len(records(cli, told)) + 1))
    assert len({one["session_id"] for one in made}) == 3
    assert cli("audit", "verify").returncode == 0


def test_a_task_is_recorded_in_the_chain_of_its_conversation(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("task", {"prompt": "look"}, id="t1")]), Reply(calls=[LOOK]), "Seen.", "Done."
    )
    session = run("do it").result["session_id"]
    assert [(one["tool"], one.get("task")) for one in decisions(cli, session)] == [
        ("task", None),
        ("ls", "t1"),
    ]


def test_killed_in_the_middle_the_chain_still_holds(start: Start, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[LOOK]), Stall())
    live = start("do it")
    session = live.session
    live.until_type("tool_result")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    assert cli("audit", "verify", session).returncode == 0
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


def test_what_was_read_without_a_record_is_neither_kept_nor_sent(
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
    assert sorted(one["call_id"] for one in decisions(cli, done.result["session_id"])) == sorted(names)
    assert cli("audit", "verify").returncode == 0
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
    assert cli("audit", "verify").returncode == 0
    assert cli("audit", "show", "nonesuch").returncode == 2


def tamper(home: Path, *statements: str) -> None:
    """Changes the database as a program with full access would."""
    with closing(sqlite3.connect(home / "crushpy.db")) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_conversation_that_vanished_without_a_deletion_is_reported(cli: Cli, told: str, home: Path) -> None:
    tamper(home, "DELETE FROM message", "DELETE FROM conversation", "DELETE FROM session")
    done = cli("audit", "verify", told)
    assert done.returncode == 1
    assert "the conversation is gone, and no record says that it was deleted" in done.stdout
    assert cli("audit", "verify").returncode == 1
    assert "no longer stored" in cli("audit", "show", told).stdout


@pytest.mark.parametrize("given", [True, False], ids=["one", "all"])
def test_an_audit_that_vanished_completely_is_reported(
    cli: Cli, told: str, home: Path, *, given: bool
) -> None:
    tamper(home, "DELETE FROM audit", "DELETE FROM audit_end")
    done = cli("audit", "verify", *([told] if given else []))
    assert done.returncode == 1
    assert "all records are missing" in done.stdout
