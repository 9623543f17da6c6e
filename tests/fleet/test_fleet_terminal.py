"""A fleet on a terminal: the live table, questions in the submitter's table, and the view of a task."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM, Stall
from support.command import Cli
from support.e2e_terminal import Terminal
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run, until
from support.task_model import runs

pytestmark = pytest.mark.xdist_group("postgres")
NewTerminal = Callable[..., Terminal]


@pytest.fixture
def terminal(repository: Path, fleet: Fleet, llm_env: dict[str, str]) -> NewTerminal:
    def new(*args: str) -> Terminal:
        return Terminal(*args, cwd=repository, env={**llm_env, **fleet.env}, columns=140)

    return new


def has_result(body: dict[str, Any]) -> bool:
    return any(message["role"] == "tool" for message in body["messages"])


def test_attach_follows_a_running_task_and_changes_nothing(
    run: Run, terminal: NewTerminal, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    stalled = Stall(Reply("All is well."))
    llm.always(lambda body: stalled if has_result(body) else runs("echo first-output"))
    fleet.worker()
    flags = ("--fleet", "--detach", "--allow", "bash(echo)")
    root = run("--tasks", listed(repository, named("look")), *flags, env=fleet.env).result["text"]
    until(lambda: fleet.query("SELECT steps FROM listed_task") == [(1,)], "its first step is stored")
    with terminal("fleet", "attach", root, "look") as view:
        view.wait_for("first-output")
        view.wait_for("look: running on")
        view.wait_for("read-only")
        assert "Continue here" not in view.text
        llm.release()
        view.wait_for("All is well.")
        view.wait_for("look: done")
        view.press("\x1b")
        assert view.wait_exit() == 0
    with terminal("fleet", "attach", "look") as view:  # of the latest list
        view.wait_for("All is well.")
        view.press("\x03")
        assert view.wait_exit() == 0
    assert fleet.query("SELECT count(*) FROM session WHERE kind NOT IN ('root', 'task')") == [(0,)]


def test_status_is_a_live_table_until_the_list_has_ended(
    run: Run, cli: Cli, terminal: NewTerminal, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    stalled = Stall(Reply("Done."))
    llm.always(lambda body: stalled if has_result(body) else runs("echo one"))
    fleet.worker()
    flags = ("--fleet", "--detach", "--allow", "bash(echo)")
    root = run("--tasks", listed(repository, named("look")), *flags, env=fleet.env).result["text"]
    until(lambda: fleet.query("SELECT steps FROM listed_task") == [(1,)], "its first step is stored")
    [shown] = json.loads(cli("fleet", "status", root, "--json", env=fleet.env).stdout)["lists"][root]
    used, window = shown["context_tokens"], shown["window"]
    assert used == shown["tokens"] > 0
    share = f"{used / window:.0%}" if window else f"{used:,}  {shown['worker']}"
    with terminal("fleet", "status", root) as table:
        table.wait_for("running", "1 of 1 slots", "window", share)
        llm.release()
        table.wait_for("1 done")
        assert table.wait_exit() == 0
    with terminal("fleet", "status") as table:
        table.wait_for("1 of 1 tasks done")
        table.process.send_signal(signal.SIGINT)
        assert table.wait_exit() == 0


@pytest.mark.parametrize(("key", "changed"), [("y", True), ("n", False)])
def test_questions_of_tasks_are_answered_in_the_table(
    terminal: NewTerminal, llm: ScriptedLLM, repository: Path, fleet: Fleet, key: str, changed: bool
) -> None:
    command = "touch x.txt &&\n  touch y.txt"
    llm.always(lambda body: Reply("Ended.") if has_result(body) else runs(command))
    fleet.worker()
    with terminal("run", "--tasks", listed(repository, named("ask")), "--fleet") as table:
        table.wait_for("Allow it once? y or n")
        assert "touch x.txt &&" in table.text
        assert "touch y.txt" in table.text
        [(worker,)] = fleet.query("SELECT name FROM fleet_worker")
        assert f"ask on {worker}" in table.text
        table.press("x")
        table.press(key)
        assert table.wait_exit() == 0, table.text
    branches = git(repository, "branch", "--list", "crushpy/*/ask")
    assert bool(branches) == changed
