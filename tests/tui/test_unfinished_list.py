"""A conversation whose list of tasks is not done says so where it is opened, and where it is listed."""

import json
from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm import Fail, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run
from support.task_model import TaskModel

pytestmark = pytest.mark.slow

__all__ = ["start"]
NAMES = ("survey", "parser", "docs")


@pytest.fixture
def unfinished(run: Run, llm: ScriptedLLM, workspace: Path) -> str:
    """A list of which one task is done; the conversation's id."""
    tasks = [{"prompt": name, "name": name} for name in NAMES] + [
        {"prompt": "last", "name": "last", "needs": ["parser"]}
    ]
    (workspace / "list.json").write_text(json.dumps(tasks))
    llm.always(TaskModel({"survey": "Seen.", "parser": Fail(401, message="no key"), "docs": Fail(401)}))
    done = run("--tasks", "list.json")
    assert done.code == 1
    return done.result["root_id"]


async def test_the_app_says_how_far_it_is_and_how_to_go_on_and_shows_the_table(
    start: Start, run: Run, llm: ScriptedLLM, unfinished: str
) -> None:
    async with start(size=(110, 40), resume_latest=True) as app:
        await app.sees("1 of 4 tasks of its list are done", f"crushpy run --resume {unfinished}")
        rows = [line.split() for line in app.text.splitlines()]
        assert any(row[:3] == ["✓", "survey", "done"] for row in rows), app.text
        assert any(row[:3] == ["✗", "parser", "failed"] for row in rows), app.text
        assert any(row[:3] == ["-", "last", "skipped"] for row in rows), app.text
        assert not any(row and row[0].startswith("http") for row in rows), "a row of the table is one line"
        await app.press("ctrl+r")
        await app.sees("1 of 4 tasks done")
    llm.always(lambda body: Reply("Done."))
    assert run("--resume", unfinished).code == 0
    async with start(resume_latest=True) as app:
        await app.rests()
        assert "tasks of its list" not in app.text


def test_lists_of_conversations_mark_it_until_it_is_done(
    cli: Cli, run: Run, llm: ScriptedLLM, unfinished: str
) -> None:
    assert "[1 of 4 tasks done]" in cli("sessions", "list").stdout
    listed = json.loads(cli("sessions", "list", "--json").stdout)
    assert [entry["unfinished_tasks"] for entry in listed] == [{"done": 1, "tasks": 4}]
    llm.always(lambda body: Reply("Done."))
    assert run("--resume", unfinished).code == 0
    assert "tasks done" not in cli("sessions", "list").stdout
    assert json.loads(cli("sessions", "list", "--json").stdout)[0]["unfinished_tasks"] is None
