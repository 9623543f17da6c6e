"""`crushpy run` across boundaries: the agent's own, one made by crushpy, and what the lines say of them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.databases import both_databases
from support.headless import MODEL, Run, Start, until

from crushpy.core.messages import Usage
from crushpy.core.paths import Paths

pytestmark = pytest.mark.slow


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines if line["type"] in ("session", "boundary", "result")]


@both_databases
def test_a_new_session_headless_runs_on_in_the_child_to_its_end(run: Run, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": "echo one"})]),
        Reply(calls=[Call("new_session", {"summary": "We said one."})]),
        Reply(calls=[Call("bash", {"command": "echo two"})]),
        "All done.",
    )
    done = run("--yolo", "--compaction", "llm", "count to two")
    assert done.code == 0
    assert kinds(done.lines) == ["session", "boundary", "session", "result"]
    first, second = done.of("session")
    (boundary,) = done.of("boundary")
    assert (first["parent_id"], second["parent_id"]) == (None, first["id"])
    assert first["compaction"] == second["compaction"] == "llm"
    assert boundary["trigger"] == "agent"
    assert (boundary["parent_id"], boundary["child_id"]) == (first["id"], second["id"])
    assert boundary["tokens_before"] > 0 and boundary["tokens_after"] > 0 and boundary["coverage"] == 1.0
    assert done.result["session_id"] == second["id"] and done.result["root_id"] == first["id"]
    assert done.result["text"] == "All done."
    told = json.dumps(llm.requests[-1].body["messages"])
    assert "We said one." in told and "count to two" in told


def test_the_safety_net_holds_headless_and_every_request_but_the_summary_has_one_status(
    run: Run, llm: ScriptedLLM
) -> None:
    used = iter((2_000, 9_500, 2_000))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("Notes.", usage=Usage(900, 9))
        tokens = next(used, None)
        if tokens is None:
            return Reply("All done.", usage=Usage(900, 9))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 9))

    llm.always(answer)
    done = run(
        "--yolo",
        "--compaction",
        "llm",
        "go",
        env={f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"},
    )
    assert done.code == 0, done.stderr
    assert [line["trigger"] for line in done.of("boundary")] == ["fallback"]
    counts = [json.dumps(request.body["messages"]).count("<context_status>{") for request in llm.requests]
    asked = ["<transcript>" in json.dumps(request.body["messages"][-1]) for request in llm.requests]
    assert counts == [0 if summary else 1 for summary in asked] and sum(asked) == 1


UNTIL_COUNTED = """
import sqlite3, time
while sqlite3.connect({file!r}).execute("SELECT max(output_tokens) FROM session").fetchone()[0] < 5000:
    time.sleep(0.01)
"""
"""Waits until what the summary used is stored."""


def test_a_prepared_start_is_told_by_its_line_and_by_what_is_stored(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "wait.py").write_text(UNTIL_COUNTED.format(file=str(Paths().database)))
    used = iter((1_000, 2_000, 6_400, 6_500, 7_600))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("Notes.", usage=Usage(900, 5_000))
        tokens = next(used, None)
        if tokens is None:
            return Reply("All done.", usage=Usage(900, 9))
        command = f"{sys.executable} wait.py" if tokens == 6_500 else f"echo {tokens}"
        return Reply(calls=[Call("bash", {"command": command})], usage=Usage(tokens, 9))

    llm.always(answer)
    done = run("--yolo", "go", env={f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"})
    assert done.code == 0, done.stderr
    (boundary,) = done.of("boundary")
    assert (boundary["trigger"], boundary["prepared"], boundary["moment"]) == ("auto", True, "")
    assert done.result["usage"]["output_tokens"] == 5_000 + 6 * 9
    child = json.loads(cli("sessions", "show", boundary["child_id"], "--json").stdout)
    tree = json.loads(cli("sessions", "tree", boundary["child_id"], "--json").stdout)
    for stored in (child["boundary"], tree[1]["boundary"]):
        assert (stored["prepared"], stored["moment"]) == (True, "")
        assert stored["waited_ms"] == boundary["waited_ms"]
    assert json.loads(cli("sessions", "show", boundary["parent_id"], "--json").stdout)["boundary"] is None
    assert "prepared" in cli("sessions", "tree", boundary["child_id"]).stdout


def test_a_run_that_ends_does_not_wait_for_a_preparation(run: Run, llm: ScriptedLLM) -> None:
    used = iter((1_000, 2_000, 6_400))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Stall(headers=False)
        tokens = next(used, None)
        if tokens is None:
            return Reply("All done.", usage=Usage(6_400, 9))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 9))

    llm.always(answer)
    done = run("--yolo", "go", env={f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"})
    assert (done.code, done.result["text"]) == (0, "All done.")
    assert not done.of("boundary")


@both_databases
@pytest.mark.parametrize("summary", [Reply("Notes.", usage=Usage(900, 9)), Stall(headers=False)])
def test_a_run_killed_while_a_start_is_prepared_goes_on_as_if_there_had_been_none(
    start: Start, run: Run, llm: ScriptedLLM, summary: Answer
) -> None:
    used = iter((1_000, 2_000, 6_400))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return summary
        tokens = next(used, None)
        if tokens is None:
            return Stall(headers=False)
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 9))

    env = {f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"}
    llm.always(answer)
    live = start("--yolo", "go", env=env)
    session = live.session
    llm.wait_requests_blocking(5)
    live.process.kill()
    live.end()
    more = iter((7_600, 900))
    llm.always(
        lambda body: (
            Reply("Notes.", usage=Usage(900, 9))
            if "<transcript>" in json.dumps(body["messages"][-1])
            else Reply(calls=[Call("ls", {})], usage=Usage(tokens, 9))
            if (tokens := next(more, None))
            else Reply("All done.", usage=Usage(900, 9))
        )
    )
    done = run("--yolo", "--session", session, "go on", env=env)
    assert (done.code, done.result["text"]) == (0, "All done."), done.stderr
    assert [boundary["parent_id"] for boundary in done.of("boundary")] == [session]


def test_a_preparation_that_hangs_is_ended_at_its_limit_and_the_run_comes_to_its_end(
    run: Run, llm: ScriptedLLM
) -> None:
    used = iter((1_000, 2_000, 6_400, 7_600))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Stall(Reply("Never whole."), after=1)
        tokens = next(used, None)
        if tokens is None:
            return Reply("All done.", usage=Usage(900, 9))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 9))

    llm.always(answer)
    window = {f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"}
    done = run("--yolo", "count", env={"CRUSHPY_COMPACTION__SUMMARY_SECONDS": "10", **window})
    assert done.result["text"] == "All done."
    (boundary,) = done.of("boundary")
    assert (boundary["trigger"], boundary["prepared"]) == ("auto", False)
    assert any("took longer than 10 s to summarise" in notice["text"] for notice in done.of("notice"))
    asked = [
        request for request in llm.requests if "<transcript>" in json.dumps(request.body["messages"][-1])
    ]
    assert [request.closed_early for request in asked] == [True]


@both_databases
def test_a_branch_headless_folds_and_its_return_can_be_undone(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("branch", {"goal": "look round"})]),
        Reply(calls=[Call("bash", {"command": "echo needle in the branch"})]),
        Reply(calls=[Call("return_to_parent", {"result": "all quiet"})]),
        "All done.",
    )
    done = run("--yolo", "--compaction", "llm", "look")
    assert done.code == 0
    told = [line["type"] for line in done.lines if line["type"] in ("session", "branch", "return", "result")]
    assert told == ["session", "branch", "session", "return", "result"]
    (root, child), (opened,), (back,) = done.of("session"), done.of("branch"), done.of("return")
    assert opened == {
        "type": "branch",
        "session_id": child["id"],
        "parent_id": root["id"],
        "goal": "look round",
        "depth": 1,
    }
    assert (back["session_id"], back["parent_id"], back["chars"]) == (child["id"], root["id"], 9)
    assert back["interrupted"] is False and done.result["session_id"] == root["id"]
    tree = cli("sessions", "tree", root["id"]).stdout
    assert "look round  branch  returned" in tree
    assert child["id"] in cli("sessions", "search", "needle", "--all").stdout
    assert child["id"] in cli("sessions", "undo-compaction", root["id"]).stdout
    llm.script(Reply(calls=[Call("return_to_parent", {"result": "not so quiet"})]), "Done again.")
    again = run("--yolo", "-s", root["id"], "look again")
    assert again.code == 0 and next(line["id"] for line in again.of("session")) == child["id"]
    assert "not so quiet" in json.dumps(llm.requests[-1].body) and again.result["session_id"] != root["id"]


@both_databases
def test_a_branch_folds_is_undone_and_continued_by_other_processes(
    run: Run, llm: ScriptedLLM, cli: Cli
) -> None:
    back = Call("return_to_parent", {"result": "the cause is a.py"})
    llm.script(
        Reply(calls=[Call("branch", {"goal": "find the cause"})]),
        Reply("Looking.", calls=[Call("bash", {"command": "echo deep inside"})]),
        Reply(calls=[back]),
        "Done.",
    )
    done = run("--yolo", "--compaction", "llm", "go")
    (opened,), (returned,) = done.of("branch"), done.of("return")
    root, branch = done.result["root_id"], opened["session_id"]
    assert (opened["parent_id"], opened["depth"], opened["goal"]) == (root, 1, "find the cause")
    assert (returned["session_id"], returned["parent_id"], done.result["session_id"]) == (branch, root, root)
    assert "deep inside" not in json.dumps(llm.requests[-1].body["messages"])
    tree = {skill["id"]: skill for skill in json.loads(cli("sessions", "tree", root, "--json").stdout)}
    assert (tree[branch]["kind"], tree[branch]["parent_id"]) == ("branch", root)
    assert "deep inside" in cli("sessions", "search", "deep inside").stdout
    assert cli("sessions", "undo-compaction", root).returncode == 0
    llm.script(Reply(calls=[Call("return_to_parent", {"result": "it is b.py"})]), "Done again.")
    again = run("--yolo", "-s", root, "look again")
    sent = json.dumps(llm.requests[-2].body["messages"])
    assert again.code == 0 and "deep inside" in sent and "look again" in sent
    (returned,) = again.of("return")
    assert returned["session_id"] == branch and returned["parent_id"] not in (root, branch)
    assert "it is b.py" in json.dumps(llm.requests[-1].body["messages"])
    assert "the cause is a.py" not in json.dumps(llm.requests[-1].body["messages"])


@both_databases
def test_a_branch_left_open_by_a_kill_is_continued_by_another_process(
    start: Start, run: Run, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[Call("branch", {"goal": "find the cause"})]), Stall(Reply("never"), after=0))
    live = start("--yolo", "--compaction", "llm", "go")
    until(lambda: len(llm.requests) == 2, "the branch asks the model")
    live.process.kill()
    live.process.wait()
    llm.release()
    llm.script(Reply(calls=[Call("return_to_parent", {"result": "the cause is a.py"})]), "Done.")
    done = run("--yolo", "-c", "go on")
    (returned,) = done.of("return")
    assert (done.code, returned["parent_id"]) == (0, done.result["root_id"])
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "the cause is a.py" in sent and "go on" in sent
