"""`crushpy fleet`: what the user says reaches tasks on workers through the store."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run, Start, until
from support.task_model import asked, runs, writes

pytestmark = pytest.mark.xdist_group("postgres")


def has_result(body: dict[str, Any]) -> bool:
    return any(message["role"] == "tool" for message in body["messages"])


def has_worker(fleet: Fleet) -> bool:
    tables = fleet.query("SELECT 1 FROM pg_tables WHERE tablename = 'fleet_worker'")
    return bool(tables and fleet.query("SELECT 1 FROM fleet_worker"))


def states(fleet: Fleet) -> dict[str, str]:
    return dict(fleet.query("SELECT name, state FROM listed_task"))


def test_a_question_parks_the_task_and_the_answer_continues_it(
    start: Start, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(lambda body: Reply("Touched.") if has_result(body) else runs("touch x.txt"))
    fleet.worker()
    live = start("--tasks", listed(repository, named("ask")), "--fleet", env=fleet.env)
    until(lambda: fleet.query("SELECT token FROM fleet_task WHERE question <> ''") == [(0,)], "it is parked")
    [(root,)] = fleet.query("SELECT root_id FROM task_list")
    assert "touch x.txt" in cli("fleet", "answer", root, env=fleet.env).stdout
    live.until(lambda lines: f"crushpy fleet answer {root} ask once" in str(lines))
    assert cli("fleet", "answer", root, "ask", "once", env=fleet.env).returncode == 0
    assert live.end().code == 0
    assert len(llm.requests) == 2
    assert cli("fleet", "fetch", root, env=fleet.env).stdout == f"crushpy/{root}/ask\n"
    assert "x.txt" in git(repository, "ls-tree", "--name-only", f"crushpy/{root}/ask")
    logs = cli("fleet", "logs", root, "ask", env=fleet.env).stdout
    assert "touch x.txt" in logs
    assert "Touched." in logs
    late = cli("fleet", "answer", root, "ask", "once", env=fleet.env)
    assert (late.returncode, "ask does not ask anything" in late.stderr) == (2, True)
    late = cli("fleet", "steer", root, "ask", "more", env=fleet.env)
    assert (late.returncode, "ask is done and takes no prompts" in late.stderr) == (2, True)


def test_a_question_without_an_answer_is_denied_after_a_while_and_the_run_exits_3(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(lambda body: Reply("I could not.") if has_result(body) else runs("touch x.txt"))
    fleet.worker("--slots", "2")
    until(lambda: has_worker(fleet), "the worker has started")
    file = listed(repository, named("one", needs=[]), named("two", needs=[]))
    done = run("--tasks", file, "--fleet", env={**fleet.env, "CRUSHPY_FLEET__WAIT": "3"})
    assert done.code == 3, (done.stderr, fleet.told())
    assert states(fleet) == {"one": "done", "two": "done"}
    results = [
        message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"
    ]
    assert "No answer came within 3 s (fleet.wait)" in str(results)


def test_prompts_reach_a_running_task_and_stop_ends_one(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if asked(body) == "endless":
            return runs("sleep 300")
        steered = any("turn left" in str(message.get("content")) for message in body["messages"])
        return Reply("Left.") if steered else runs(f"sleep 0.{len(body['messages'])}")

    llm.always(answer)
    fleet.worker("--slots", "2")
    file = listed(repository, named("endless"), named("walk"))
    flags = ("--fleet", "--detach", "--allow", "bash(sleep)")
    root = run("--tasks", file, *flags, env=fleet.env).result["text"]
    until(lambda: fleet.query("SELECT count(DISTINCT session_id) FROM tool_run") == [(2,)], "both run")
    assert cli("fleet", "steer", root, "walk", "turn left", env=fleet.env).returncode == 0
    assert cli("fleet", "stop", root, "endless", env=fleet.env).returncode == 0
    until(lambda: states(fleet) == {"endless": "interrupted", "walk": "done"}, "both have ended")
    said = fleet.query(
        "SELECT m.parts FROM message m JOIN session s ON s.id = m.session_id"
        " WHERE s.kind = 'task' AND m.role = 'user'"
    )
    origins = [
        part.get("origin") for (parts,) in said for part in json.loads(parts) if part["type"] == "text"
    ]
    assert origins == ["fleet"] * 3
    shown = json.loads(cli("fleet", "status", "--json", env=fleet.env).stdout)
    [worker] = shown["workers"]
    assert cli("fleet", "drain", worker["name"], env=fleet.env).returncode == 0
    assert fleet.workers[0].wait(60) == 0


def test_branches_without_conflicts_are_merged_and_the_others_are_named(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    files = {"left": "b.txt", "right": "b.txt", "free": "c.txt"}

    def answer(body: dict[str, Any]) -> Any:
        first = body["messages"][-1]["role"] == "user"
        return writes(files[asked(body)], asked(body)) if first else Reply("ok")

    llm.always(answer)
    (repository / "a.txt").write_text("uncommitted")
    fleet.worker("--slots", "3")
    done = run(
        "--tasks", listed(repository, *map(named, files)), "--fleet", "--allow", "write", env=fleet.env
    )
    assert done.code == 0, (done.stderr, fleet.told())
    root = done.result["root_id"]
    merged = cli("fleet", "merge", root, env=fleet.env)
    assert merged.returncode == 1
    assert f"crushpy/{root}/left and crushpy/{root}/right in b.txt" in merged.stderr
    assert git(repository, "ls-tree", "--name-only", f"crushpy/{root}/merged").split() == ["a.txt", "c.txt"]
    assert git(repository, "status", "--porcelain") == "M a.txt"
    git(repository, "stash")
    git(repository, "branch", "-D", f"crushpy/{root}/merged")
    git(repository, "checkout", "-q", f"crushpy/{root}/left")
    (repository / "b.txt").write_text("right")
    git(repository, "commit", "-qam", "resolved")
    merged = cli("fleet", "merge", root, env=fleet.env)
    assert (merged.returncode, merged.stderr) == (0, "")
    assert git(repository, "show", f"crushpy/{root}/merged:b.txt") == "right"
    clone = repository.parent / "clone"
    git(repository, "clone", "-q", "--single-branch", "-b", "main", str(repository), str(clone))
    assert cli("fleet", "merge", root, env=fleet.env, cwd=clone).returncode == 1
    assert git(clone, "show", f"crushpy/{root}/merged:a.txt") == "uncommitted"


def test_the_rules_of_the_worker_are_a_ceiling(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    call = runs("touch x.txt")
    llm.always(lambda body: call if body["messages"][-1]["role"] == "user" else Reply("ok"))
    fleet.worker("--accept-yolo", env={"CRUSHPY_PERMISSIONS__DENY": '["bash(touch)"]'})
    done = run("--tasks", listed(repository, named("t")), "--fleet", "--yolo", env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    assert "Denied" in str(llm.requests[-1].body["messages"][-1]["content"])
    assert done.result["tasks"][0]["branch"] == ""


def test_yolo_counts_only_on_workers_that_accept_it(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(lambda body: runs("touch x.txt") if body["messages"][-1]["role"] == "user" else Reply("ok"))
    fleet.worker()
    run("--tasks", listed(repository, named("t")), "--fleet", "--yolo", "--detach", env=fleet.env)
    until(lambda: fleet.query("SELECT count(*) FROM fleet_task WHERE question <> ''") == [(1,)], "it asks")


def test_a_stopped_task_asks_nothing(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(lambda body: runs("touch x.txt"))
    fleet.worker()
    flags = ("--fleet", "--detach")
    root = run("--tasks", listed(repository, named("ask")), *flags, env=fleet.env).result["text"]
    until(lambda: fleet.query("SELECT token FROM fleet_task WHERE question <> ''") == [(0,)], "it is parked")
    assert cli("fleet", "stop", root, env=fleet.env).returncode == 0
    assert cli("fleet", "answer", root, env=fleet.env).stdout == ""
    late = cli("fleet", "answer", root, "ask", "once", env=fleet.env)
    assert (late.returncode, "ask does not ask anything" in late.stderr) == (2, True)
    assert "asks for permission" not in cli("fleet", "status", root, env=fleet.env).stdout


def test_an_unknown_list_is_named_with_the_next_step(cli: Cli, fleet: Fleet) -> None:
    refused = cli("fleet", "stop", "zzz", env=fleet.env)
    assert refused.returncode == 2
    assert "There is no task list 'zzz' on the fleet" in refused.stderr
    assert "crushpy fleet status" in refused.stderr


def test_a_worker_without_a_sandbox_takes_no_tasks(cli: Cli) -> None:
    refused = cli("worker", "--once", env={"CRUSHPY_SANDBOX__MODE": "off"})
    assert refused.returncode == 2
    assert "takes no tasks" in refused.stderr
    assert "--no-sandbox" in refused.stderr
