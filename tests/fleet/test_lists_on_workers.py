"""`crushpy run --tasks FILE --fleet`: the same lists, on workers."""

from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run, until
from support.task_model import TaskModel, runs, writes

from crushpy.core.messages import Usage

pytestmark = pytest.mark.xdist_group("postgres")


def test_tasks_run_on_a_worker_with_their_needs_and_leave_branches(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet, tmp_path: Path
) -> None:
    model = TaskModel({"survey": "Two files.", "change": [writes("b.txt", "two\n"), "Changed."]})
    llm.always(model)
    file = listed(repository, named("survey", read_only=True), named("change", needs=["survey"]))
    fleet.worker("--slots", "2")
    done = run("--tasks", file, "--fleet", "--allow", "write", env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    states = {task["name"]: task["state"] for task in done.result["tasks"]}
    assert states == {"survey": "done", "change": "done"}
    assert done.result["text"] == "Changed."
    assert "Two files." in model.told["change"]
    root = done.result["root_id"]
    assert git(repository, "show", f"crushpy/{root}/change:b.txt") == "two"
    assert git(repository, "status", "--porcelain") == ""
    assert fleet.query("SELECT count(*) FROM crushpy_queue.procrastinate_jobs") == [(0,)]
    [cache] = (home := tmp_path / "machine-0").rglob(f"{root}.git")
    again = fleet.worker("--once", env={"CRUSHPY_HOME": str(home)})
    assert again.wait(60) == 0
    assert not cache.exists()


def test_a_file_as_database_and_a_missing_library_are_named_before_anything_is_stored(
    run: Run, cli: Cli, repository: Path, home: Path, tmp_path: Path
) -> None:
    file = listed(repository, named("survey"))
    done = run("--tasks", file, "--fleet")
    assert done.code == 2
    assert "PostgreSQL" in done.result["error"]
    assert "crushpy.db" in done.result["error"]
    for words in (("--tasks", file, "--detach"), ("--tasks", file, "--no-dirty"), ("--detach", "hello")):
        done = run(*words)
        assert (done.code, "--detach and --no-dirty are for lists" in done.result["error"]) == (2, True)
    hidden = tmp_path / "hidden" / "procrastinate"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    env = {"CRUSHPY_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "PYTHONPATH": str(hidden.parent)}
    done = run("--tasks", file, "--fleet", env=env, stdin="")
    assert done.code == 2
    assert "pip install 'crushpy[fleet]'" in done.stdout


def test_uncommitted_files_travel_but_not_hidden_ones_and_none_without_dirty(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    (repository / ".gitignore").write_text("ignored.txt\n")
    for name in ("new.txt", "ignored.txt", ".env"):
        (repository / name).write_text("secret\n")
    (repository / "a.txt").write_text("changed\n")
    shows = runs("cat a.txt; ls -A")
    llm.always(lambda body: shows if body["messages"][-1]["role"] == "user" else Reply("seen"))
    fleet.worker()
    file = listed(repository, named("look"))
    allow = ("--allow", "bash(cat)", "--allow", "bash(ls)")
    done = run("--tasks", file, "--fleet", *allow, env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    seen = str(llm.requests[-1].body["messages"][-1]["content"])
    assert "changed" in seen
    assert "new.txt" in seen
    assert "ignored.txt" not in seen
    assert ".env" not in seen
    told = " ".join(line["text"] for line in done.of("notice"))
    assert "a.txt" in told
    assert "new.txt" in told
    done = run("--tasks", file, "--fleet", "--no-dirty", *allow, env=fleet.env)
    assert done.code == 0, done.stderr
    seen = str(llm.requests[-1].body["messages"][-1]["content"])
    assert "one" in seen
    assert "new.txt" not in seen


def test_a_task_waits_for_a_worker_with_its_labels_and_fails_after_a_while(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Reply("done"))
    file = listed(repository, named("gpu", labels=["gpu=yes"]), named("tpu", labels=["tpu=yes"]))
    fleet.worker()
    detached = run("--tasks", file, "--fleet", "--detach", env=fleet.env)
    assert detached.code == 0, detached.stderr
    root = detached.result["text"]

    def stuck() -> bool:
        return ("gpu=yes",) in fleet.query("SELECT stuck FROM fleet_task")

    until(stuck, "the task is stuck")
    shown = cli("fleet", "status", root, env=fleet.env).stdout
    assert "waiting: no worker has gpu=yes" in shown
    fleet.worker("--label", "gpu=yes")
    until(lambda: len(fleet.query("SELECT 1 FROM fleet_worker")) == 2, "it has started")
    followed = run("--resume", root, env={**fleet.env, "CRUSHPY_FLEET__WAIT": "5"})
    tasks = {task["name"]: task for task in followed.result["tasks"]}
    assert tasks["gpu"]["state"] == "done", (followed.stderr, fleet.told(), fleet.told(1))
    assert tasks["tpu"]["state"] == "failed"
    assert "no worker has tpu=yes" in tasks["tpu"]["error"]
    assert followed.code == 1


def test_limits_hold_for_the_whole_list(run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet) -> None:
    llm.always(lambda body: runs(f"sleep 0.{len(body['messages'])}"))
    fleet.worker("--slots", "2")
    file = listed(repository, named("left"), named("right"))
    done = run("--tasks", file, "--fleet", "--max-steps", "6", "--allow", "bash(sleep)", env=fleet.env)
    assert done.code == 4, (done.stderr, fleet.told())
    assert 6 <= sum(task["step"] for task in done.result["tasks"]) <= 7
    assert all("--max-steps 6 reached" in str(task) or task["error"] for task in done.result["tasks"])


def test_tasks_on_workers_share_the_budget_of_their_list(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Reply(calls=[Call("bash", {"command": "date +%N"})], usage=Usage(100)))
    fleet.worker("--slots", "2")
    file = listed(repository, named("left"), named("right"))
    done = run("--tasks", file, "--fleet", "--budget", "450", env=fleet.env)
    assert done.code == 4, (done.stderr, fleet.told())
    assert 5 <= len(llm.requests) <= 6  # one may have been in flight
    assert {task["state"] for task in done.result["tasks"]} == {"limit"}
