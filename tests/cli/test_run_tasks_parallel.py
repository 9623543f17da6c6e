"""`crushpy run --tasks FILE --parallel N`: what runs side by side, what tasks are told, limits, printing."""

import json
import os
import pty
import signal
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.databases import both_databases
from support.headless import InShell, Run, Start
from support.task_model import TaskModel, writes

from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow


def listed(workspace: Path, *tasks: Any) -> str:
    (workspace / "list.json").write_text(json.dumps(tasks))
    return "list.json"


def states(result: dict[str, Any]) -> dict[str, str]:
    return {task["name"]: task["state"] for task in result["tasks"]}


READING = [{"prompt": word, "name": word, "read_only": True} for word in ("one", "two", "three")]


@both_databases
def test_tasks_that_only_read_run_side_by_side_and_others_alone(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    name = listed(workspace, *READING[:2], {"prompt": "alone"}, READING[2])
    model = TaskModel({word: Stall(Reply(f"{word} is done.")) for word in ("one", "two", "three", "alone")})
    llm.always(model)
    live = start("--tasks", name, "--parallel", "8")
    llm.wait_requests_blocking(2)
    assert sorted(model.prompts) == ["one", "two"]
    llm.release()
    done = live.end()
    assert done.code == 0 and done.result["text"] == "three is done."
    assert model.prompts[2:] == ["alone", "three"], "what comes after one that works alone waits for it"
    assert set(states(done.result).values()) == {"done"}


def test_tasks_run_one_at_a_time_by_default(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    model = TaskModel({word: Stall(Reply(f"{word}.")) for word in ("one", "two", "three")})
    llm.always(model)
    live = start("--tasks", listed(workspace, *READING))
    llm.wait_requests_blocking(1)
    live.until(lambda lines: any(line.get("text") for line in lines if line["type"] == "text"))
    assert model.prompts == ["one"]
    llm.release()
    assert live.end().code == 0


@both_databases
def test_a_task_gets_the_results_it_needs_and_no_others(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    tasks: list[dict[str, Any]] = [
        {"prompt": "last", "name": "last", "needs": ["b", "a"]},
        {"prompt": "first", "name": "a", "needs": []},
        {"prompt": "second", "name": "b"},
        {"prompt": "third", "name": "c"},
        {"prompt": "nothing", "needs": []},
    ]
    model = TaskModel({"first": "A.", "second": "B.", "third": "C.", "last": "All.", "nothing": "0."})
    llm.always(model)
    done = run("--tasks", listed(workspace, *tasks))
    assert done.code == 0
    assert model.prompts == ["first", "second", "last", "third", "nothing"]
    assert "Task 2, a: first\n\nA." in model.told["last"] and "B." in model.told["last"]
    assert "C." not in model.told["last"]
    assert "A." in model.told["third"] and "B." in model.told["third"], "what was done before it in the list"
    assert model.told["nothing"] == "nothing"


def test_task_receives_bounded_results_of_the_tasks_before(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.always(lambda body: Reply("said " * 500))
    tasks = [{"prompt": f"number {number}", "read_only": True} for number in range(30)]
    assert run("--tasks", listed(workspace, *tasks)).code == 0
    last = llm.requests[-1].body["messages"][1]["content"]
    assert len(last) < 25_000
    assert "Task 29: number 28" in last and "Task 1: number 0" not in last
    assert "earlier reports left out; recall finds them" in last


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        pytest.param([{"prompt": "x", "needs": ["y"]}], "task 1 (task-1) needs 'y'", id="unknown"),
        pytest.param([{"prompt": "x", "name": "a", "needs": ["a"]}], "task 1 (a) needs itself", id="itself"),
        pytest.param(
            [{"prompt": "x", "name": "a", "needs": ["b"]}, {"prompt": "y", "name": "b", "needs": ["a"]}],
            "task 1 (a) depends on itself: a needs b needs a",
            id="circle",
        ),
        pytest.param(
            [{"prompt": "x", "name": "a"}, {"prompt": "y", "name": "a"}],
            "task 2 has the name 'a'",
            id="twice",
        ),
        pytest.param([{"prompt": "x"}, {"prompt": "y", "name": "task-1"}], "task 2 has the name", id="given"),
        pytest.param([{"prompt": "x", "name": "../up"}], "task 1 has the name '../up'", id="path"),
        pytest.param([{"prompt": "x", "name": "a.lock"}], "task 1 has the name 'a.lock'", id="lock"),
        pytest.param(
            [{"prompt": "x", "max_steps": -1}], "task 1: max_steps must be a whole number", id="limit"
        ),
        pytest.param([{"prompt": "x", "needs": "a"}], "task 1: needs must be a list of texts", id="no list"),
        pytest.param(
            [{"prompt": "x"}, {"prompt": "y", "name": "tree", "worktree": True}],
            "task 2 (tree) wants a worktree, but",
            id="no git",
        ),
    ],
)
def test_a_list_that_can_never_be_done_is_refused_before_anything_begins(
    run: Run, llm: ScriptedLLM, workspace: Path, tasks: list[Any], said: str, home: Path
) -> None:
    done = run("--tasks", listed(workspace, *tasks))
    assert done.code == 2 and said in done.result["error"]
    assert not llm.requests and not done.of("session")


@pytest.mark.parametrize("many", ["0", "33", "x"])
def test_parallel_option_has_bounds(run: Run, workspace: Path, many: str) -> None:
    done = run("--tasks", listed(workspace, "one"), "--parallel", many)
    assert done.code == 2 and "--parallel" in done.stderr


def test_parallel_is_for_lists(run: Run, workspace: Path) -> None:
    done = run("--parallel", "2", "hello")
    assert done.code == 2 and "--parallel is for lists of tasks" in done.result["error"]


def test_a_task_has_limits_of_its_own(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    looks = Reply(calls=[Call("ls", {})], usage=Usage(100, 10))
    model = TaskModel({"steps": [looks], "tokens": [looks], "fine": "Fine.", "needy": "Never."})
    llm.always(model)
    tasks = [
        {"prompt": "steps", "name": "steps", "max_steps": 2},
        {"prompt": "tokens", "name": "tokens", "max_tokens": 300},
        {"prompt": "needy", "name": "needy", "needs": ["steps"]},
        {"prompt": "fine", "name": "fine"},
    ]
    done = run("--tasks", listed(workspace, *tasks))
    assert done.code == 4
    assert states(done.result) == {"steps": "limit", "tokens": "limit", "needy": "skipped", "fine": "done"}
    assert model.steps["steps"] == 2 and model.steps["tokens"] == 3
    said = [line["text"] for line in done.of("notice")]
    assert "Stopped: the task's max_steps 2 reached." in said


@both_databases
def test_a_limit_of_the_list_stops_what_runs_and_begins_nothing_more(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.always(lambda body: Reply(calls=[Call("ls", {})]))
    done = run("--max-steps", "5", "--parallel", "2", "--tasks", listed(workspace, *READING))
    assert done.code == 4 and len(llm.requests) == 5
    assert states(done.result) == {"one": "limit", "two": "limit", "three": "waiting"}


@both_databases
def test_the_stream_tells_of_each_task_and_whose_event_it_is(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    looks = Reply("Looking.", calls=[Call("ls", {})], usage=Usage(100, 10))
    model = TaskModel({"one": [looks, Reply("1.", usage=Usage(200, 5))], "two": "2.", "three": "3."})
    llm.always(model)
    done = run("--tasks", listed(workspace, *READING), "--parallel", "3")
    assert done.code == 0
    told = [line for line in done.of("task") if line["name"] == "one"]
    assert [line["state"] for line in told][:2] == ["waiting", "running"] and told[-1]["state"] == "done"
    last = told[-1]
    assert (last["step"], last["tokens"], last["number"], last["of"]) == (2, 315, 1, 3)
    assert "cost" in last and any(line["line"].startswith("List") for line in told)
    assert "".join(line["text"] for line in done.of("text") if line["task"] == "one") == "Looking.1."
    assert {line["task"] for line in done.of("usage")} == {"one", "two", "three"}
    assert done.result["tasks"][0] == last


def test_json_format_prints_one_object_for_all_tasks(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    llm.always(lambda body: Reply("Done."))
    done = run("--tasks", listed(workspace, *READING), "--format", "json")
    [line] = done.lines
    assert states(line) == {"one": "done", "two": "done", "three": "done"}


def test_a_pipe_gets_calm_lines_and_the_last_report(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    llm.always(lambda body: Reply("The report.", usage=Usage(1_000, 10)))
    done = run("--tasks", listed(workspace, *READING[:2]), "--format", "text")
    assert done.stdout == "The report.\n"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("!")]
    assert lines[:4] == [
        "· [1/2] one started",
        "✓ [1/2] one: done, 1 step, 1,010 tokens, $0.00",
        "· [2/2] two started",
        "✓ [2/2] two: done, 1 step, 1,010 tokens, $0.00",
    ]
    assert "\x1b" not in done.stderr


def test_a_terminal_gets_a_table(llm: ScriptedLLM, workspace: Path, llm_env: dict[str, str]) -> None:
    import subprocess
    import sys

    llm.always(lambda body: Reply("The report.", usage=Usage(1_000, 10)))
    name = listed(workspace, *READING[:2])
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "crushpy", "run", "--tasks", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, **llm_env, "COLUMNS": "100", "LINES": "30"},
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65_536):
                seen += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0
    os.close(ours)
    text = seen.decode()
    assert "\x1b[4A" in text, "drawn over itself"
    assert "\x1b[J" not in text, "some terminals keep a copy of each screen that is cleared"
    rows = [line.replace("\x1b[K", "").split() for line in text.splitlines()]
    assert ["✓", "two", "done", "1", "1,010", "$0.00", "The", "report."] in rows, text
    assert any(row[:4] == ["2", "tasks:", "2", "done,"] for row in rows)


@both_databases
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupt", "terminate"]
)
def test_a_signal_ends_all_and_says_how_to_go_on_which_reads_no_file(
    start: Start, run: Run, llm: ScriptedLLM, workspace: Path, number: int, code: int
) -> None:
    name = listed(workspace, {"prompt": "ready", "name": "ready", "read_only": True}, *READING)
    model = TaskModel(
        {"ready": "Ready.", "one": [Stall(), "1."], "two": [Stall(), "2."], "three": "3."},
    )
    llm.always(model)
    live = start("--tasks", name, "--parallel", "2")
    llm.wait_requests_blocking(3)
    live.until(lambda lines: any(line.get("state") == "done" for line in lines))
    live.process.send_signal(number)
    done = live.end()
    assert done.code == code
    stood = states(done.result)
    assert stood.pop("ready") == "done" and "done" not in stood.values() and "interrupted" in stood.values()
    root = done.result["root_id"]
    assert any(f"crushpy run --resume {root}" in line["text"] for line in done.of("notice"))

    (workspace / name).unlink()
    again = run("--resume", root)
    assert again.code == 0 and again.result["root_id"] == root
    assert set(states(again.result).values()) == {"done"}
    assert model.steps["ready"] == 1, "what was done is not done again"
    assert "Ready." in model.told["three"], "and what it reported is known"
    nothing = run("--resume", root)
    assert nothing.code == 2 and "All tasks of its list are done." in nothing.result["error"]


@both_databases
def test_a_killed_run_goes_on_where_it_was(start: Start, run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    model = TaskModel({"one": "1.", "two": [Stall(), "2."], "three": "3."})
    llm.always(model)
    live = start("--tasks", listed(workspace, *READING))
    llm.wait_requests_blocking(2)
    live.process.kill()
    root = live.session
    live.end()
    again = run("--resume", root)
    assert again.code == 0 and model.steps == {"one": 1, "two": 2, "three": 1}
    assert again.result["text"] == "3."


@both_databases
def test_failed_tasks_and_those_that_waited_for_them_run_when_going_on(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    from scripted_llm import Fail

    tasks = [
        {"prompt": "good", "name": "good"},
        {"prompt": "bad", "name": "bad"},
        {"prompt": "needy", "name": "needy", "needs": ["bad"]},
    ]
    model = TaskModel({"good": "Good.", "bad": [Fail(401), "Better."], "needy": "Served."})
    llm.always(model)
    first = run("--tasks", listed(workspace, *tasks))
    assert first.code == 1 and states(first.result) == {"good": "done", "bad": "failed", "needy": "skipped"}
    again = run("--resume", first.result["root_id"], "--parallel", "2")
    assert again.code == 0 and model.steps == {"good": 1, "bad": 2, "needy": 1}
    assert "Better." in model.told["needy"] and "Good." not in model.told["needy"]


def test_the_end_names_who_failed_and_only_some_of_those_that_did_not_begin(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    from scripted_llm import Fail

    model = TaskModel({"bad": Fail(401), "other": "Done."})
    llm.always(model)
    tasks = [
        {"prompt": "bad", "name": "bad"},
        {"prompt": "late", "name": "late", "needs": ["bad", "other"]},
        {"prompt": "other", "name": "other"},
    ]
    tasks += [{"prompt": str(number), "name": f"n{number}", "needs": ["late"]} for number in range(50)]
    done = run("--tasks", listed(workspace, *tasks))
    assert done.code == 1
    ended = {task["name"]: task["error"] for task in done.result["tasks"]}
    assert ended["late"] == "it needs bad", "the other one is only not done yet"
    last = done.of("notice")[-1]["text"]
    assert "1 of 53 tasks are done; failed: bad; skipped: late, n0, n1," in last
    assert "n7, n8 and 41 more. `crushpy run --resume" in last


@both_databases
def test_the_tree_of_sessions_shows_tasks_by_name(
    run: Run, llm: ScriptedLLM, workspace: Path, in_shell: InShell
) -> None:
    llm.always(lambda body: Reply("Done."))
    root = run("--tasks", listed(workspace, {"prompt": "look", "name": "survey"})).result["root_id"]
    tree = in_shell(f"$CRUSHPY sessions tree {root}").stdout.splitlines()
    assert [line for line in tree if line.endswith("survey: look  task")], tree


def test_a_written_file_of_one_task_is_seen_by_the_next(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    model = TaskModel({"write": [writes("a.txt", "hello\n"), "Written."], "read": "Read."})
    llm.always(model)
    assert run("--yolo", "--tasks", listed(workspace, "write", "read"), "--parallel", "4").code == 0
    assert (workspace / "a.txt").read_text() == "hello\n" and model.prompts == ["write", "read"]
