"""The tasks for a real model, with a scripted one: what passes, and what the table says."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM

from benchmarks.local.__main__ import Bench, Run, table
from benchmarks.local.tasks import TASKS

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(llm: ScriptedLLM, tmp_path: Path) -> Bench:
    return Bench(llm.api_base, folder=tmp_path, requests=5, minutes=3)


def task(name: str) -> Any:
    return next(task for task in TASKS if name in task.name)


def in_text(name: str, **arguments: object) -> Reply:
    return Reply(f"```json\n{json.dumps({'name': name, 'arguments': arguments})}\n```")


@pytest.mark.parametrize(("variant", "passed"), [("with", True), ("without", False)])
def test_calls_in_text_pass_only_where_they_are_read(
    bench: Bench, llm: ScriptedLLM, variant: str, passed: bool
) -> None:
    llm.script(
        in_text("view", file_path="prices.py"),
        in_text(
            "edit", file_path="prices.py", old_string="- discount / 100", new_string="* (1 - discount / 100)"
        ),
        in_text("bash", command="python3 test_prices.py"),
        "The test passes.",
    )
    run = bench.run(task("fix"), variant)
    assert (run.passed, len(run.usages), run.ended) == (passed, 4 if passed else 1, "")
    offered = {tool["function"]["name"] for tool in llm.requests[0].body["tools"]}
    assert ("task" in offered) != (variant == "with")


def test_new_session_task_passes_if_one_was_opened(bench: Bench, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("write", {"file_path": "batch.txt", "content": "4711"})]),
        Reply(calls=[Call("new_session", {"summary": "batch.txt is written; write heron to host.txt"})]),
        Reply(calls=[Call("write", {"file_path": "host.txt", "content": "heron"})]),
        "Done.",
    )
    assert bench.run(task("new session"), "with").passed
    llm.script(
        Reply(calls=[Call("write", {"file_path": "batch.txt", "content": "4711"})]),
        Reply(calls=[Call("write", {"file_path": "host.txt", "content": "heron"})]),
        "Done.",
    )
    assert not bench.run(task("new session"), "with").passed


def test_rule_task_asks_six_prompts_in_one_conversation(bench: Bench, llm: ScriptedLLM) -> None:
    text = "# Copyright Heron Ltd\ndef area(width, height):\n    return width * height\n"
    write = Reply(calls=[Call("write", {"file_path": "area.py", "content": text})])
    llm.script("Understood.", "42", "Red.", "A protocol.", "Oslo", write, "Done.")
    run = bench.run(task("rule"), "with")
    assert (run.passed, len(run.usages)) == (True, 7)
    assert "Copyright Heron" in json.dumps(llm.requests[-1].messages)


def test_too_many_requests_end_a_run(bench: Bench, llm: ScriptedLLM) -> None:
    llm.always(Reply(calls=[Call("view", {"file_path": "settings.toml"})]))
    run = bench.run(task("read"), "with")
    assert (run.passed, run.ended) == (False, "requests")


def test_table_adds_up_the_runs_of_each_variant() -> None:
    usage = {"input_tokens": 100, "cache_read_tokens": 900, "output_tokens": 50}
    results = {
        ("read", "with"): [Run(True, [usage, usage], 1.5, ""), Run(False, [usage], 0.5, "time")],
        ("read", "without"): [Run(False, [], 3.0, "time")],
    }
    lines = list(table(results))
    assert lines[2] == "| read | 1/2, 3, 3,150, 2.0 | 0/1, 0, 0, 3.0 |"
    assert lines[3] == "| all | 1/2, 3, 3,150, 2.0 | 0/1, 0, 0, 3.0 |"
