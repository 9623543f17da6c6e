"""What a worker leaves when it dies or is cut off, and how another one continues."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM, Stall
from support.fleet_workers import Fleet, children, git, listed, named, task_processes
from support.headless import Run, Start, is_alive, until
from support.task_model import asked, runs, writes

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("postgres")]
ALLOW = ("--allow", "write", "--allow", "bash(cat)", "--allow", "bash(sleep)")


class Steps:
    """Answers the first requests from a list, each once, and all later ones with `Finished.`"""

    def __init__(self, *steps: Any) -> None:
        self.steps, self.taken = list(steps), 0

    def __call__(self, body: dict[str, Any]) -> Any:
        self.taken += 1
        return self.steps[self.taken - 1] if self.taken <= len(self.steps) else Reply("Finished.")


def test_task_continues_on_another_worker_after_kill_9(
    start: Start, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    steps = Steps(writes("b.txt", "two\n"), Stall(Reply("I was")), runs("cat b.txt"))
    llm.always(steps)
    first = fleet.worker()
    live = start("--tasks", listed(repository, named("change")), "--fleet", *ALLOW, env=fleet.env)
    until(lambda: steps.taken == 2, "its second step")
    until(lambda: fleet.query("SELECT steps FROM listed_task") == [(1,)], "the first one is stored")
    processes = [*children(first.pid), *task_processes(first.pid)]
    first.kill()
    until(lambda: not any(map(is_alive, processes)), "all its processes have ended")
    fleet.age_heartbeats()
    fleet.worker()
    done = live.end()
    assert done.code == 0, (done.stderr, fleet.told(1))
    root = done.result["root_id"]
    assert git(repository, "show", f"crushpy/{root}/change:b.txt") == "two"
    last = llm.requests[-1].body["messages"]
    assert "two" in str(last[-1]["content"])
    assert sum("b.txt" in str(message.get("tool_calls")) for message in last) == 2
    assert fleet.query("SELECT count(*) FROM session WHERE kind = 'task'") == [(1,)]
    assert "was lost" in str(fleet.query("SELECT deaths FROM fleet_task"))


def test_a_call_that_was_cut_off_is_not_run_again(
    start: Start, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Steps(runs("sleep 300")))
    first = fleet.worker()
    live = start("--tasks", listed(repository, named("wait")), "--fleet", *ALLOW, env=fleet.env)
    until(lambda: fleet.query("SELECT count(*) FROM tool_run") == [(1,)], "the call has begun")
    processes = [*children(first.pid), *task_processes(first.pid)]
    first.kill()
    until(lambda: not any(map(is_alive, processes)), "all its processes have ended")
    fleet.age_heartbeats()
    fleet.worker()
    done = live.end()
    assert done.code == 0, (done.stderr, fleet.told(1))
    assert "interrupted" in str(llm.requests[-1].body["messages"]).lower()
    assert fleet.query("SELECT count(*) FROM tool_run") == [(1,)]


def test_a_task_runs_again_before_others_and_fails_after_its_retries(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    def end_process(body: dict[str, Any]) -> Any:
        if asked(body) == "next":
            return Reply("Done.")
        for process in task_processes(worker.pid):
            os.killpg(process, signal.SIGKILL)
        return Stall(Reply("never"))

    llm.always(end_process)
    worker = fleet.worker()
    file = listed(repository, named("die", retries=2), named("next", needs=[]))
    done = run("--tasks", file, "--fleet", env=fleet.env)
    assert done.code == 1, (done.stderr, fleet.told())
    error = done.result["tasks"][0]["error"]
    assert "2 attempts ended without a result" in error
    assert error.count("its process was killed") == 2
    assert [asked(request.body) for request in llm.requests] == ["die", "die", "next"]


def test_a_worker_that_returns_after_it_was_replaced_changes_nothing(
    start: Start, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    late = Stall(writes("late.txt", "late\n"))
    steps = Steps(writes("b.txt", "two\n"), late)
    llm.always(steps)
    first = fleet.worker()
    live = start("--tasks", listed(repository, named("change")), "--fleet", *ALLOW, env=fleet.env)
    until(lambda: steps.taken == 2, "its second step")
    until(lambda: fleet.query("SELECT steps FROM listed_task") == [(1,)], "the first one is stored")
    stopped = [first.pid, *children(first.pid), *task_processes(first.pid)]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    fleet.age_heartbeats()
    fleet.worker()
    done = live.end()
    assert done.code == 0, (done.stderr, fleet.told(1))
    stored = fleet.query("SELECT count(*) FROM message")
    llm.release()
    for process in stopped:
        os.kill(process, signal.SIGCONT)
    until(lambda: not is_alive(stopped[-1]), "the process of the replaced attempt has ended")
    assert fleet.query("SELECT count(*) FROM message") == stored
    assert fleet.query("SELECT state FROM listed_task") == [("done",)]
    branch = f"crushpy/{done.result['root_id']}/change"
    assert git(repository, "ls-tree", "--name-only", branch).split() == ["a.txt", "b.txt"]
