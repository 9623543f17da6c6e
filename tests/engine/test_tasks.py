"""Sub-agents through the real engine: their own session, tools, permissions, and what comes back of them."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Fail, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import ApprovalNeeded, BoundaryCommitted, ToolCalled, ToolFinished, ToolOutput
from crushpy.core.messages import Seed, TaskReport, Usage
from crushpy.core.paths import Paths
from crushpy.engine.approvals import Answer
from crushpy.storage.records import SessionInfo, TaskResult
from crushpy.storage.store import Store
from crushpy.tools.registry import all_tools

LONG = "The parser lives in src/parse.py. " * 100
"""Long enough to be summarised."""


def task(prompt: str = "look around", **args: Any) -> Call:
    return Call("task", {"prompt": prompt, **args})


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


def of_task(body: dict[str, Any]) -> bool:
    return "# You are a sub-agent" in body["messages"][0]["content"]


def tools(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


def results(talk: Talk) -> list[ToolFinished]:
    return [event for event in talk.of(ToolFinished) if event.name == "task"]


async def until_asked(llm: ScriptedLLM, times: int) -> None:
    async with asyncio.timeout(30):
        while len(llm.requests) < times:
            await asyncio.sleep(0.01)


async def stored(talk: Talk) -> tuple[list[SessionInfo], list[TaskResult]]:
    """All sessions of the conversation, and what its tasks gave back."""
    store = Store(Paths().database)
    root = talk.conversation.info.root_id
    try:
        sessions = await store.sessions.load_conversation(root)
    finally:
        await store.close()
    with closing(sqlite3.connect(Paths().database)) as connection:
        connection.row_factory = sqlite3.Row
        own = {info.id for info in sessions}
        rows = connection.execute("SELECT * FROM task_result ORDER BY created_at").fetchall()
        return sessions, [TaskResult(**dict(row)) for row in rows if row["session_id"] in own]


async def test_a_task_works_in_a_session_of_its_own_and_its_report_comes_back(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.py").write_text("print('a')\n")
    llm.script(
        Reply(calls=[task("What does a.py print?")], usage=Usage(100, 10, cost=0.5)),
        Reply(calls=[Call("view", {"file_path": "a.py"})], usage=Usage(50, 5, cost=0.25)),
        Reply("It prints a.", usage=Usage(60, 5, cost=0.25)),
        Reply("The sub-agent says: a.", usage=Usage(200, 10, cost=0.5)),
    )
    talk = await talks(flags={"compaction.method": "llm"})
    assert await talk.ask("Find out") == "done"

    first, *inner, last = [request.body for request in llm.requests]
    assert [of_task(body) for body in (first, *inner, last)] == [False, True, True, False]
    assert inner[0]["messages"][1] == {"role": "user", "content": "What does a.py print?"}
    assert "task" in tools(first) and "new_session" in tools(first)
    only_main = {"task", "new_session", "branch", "return_to_parent"}
    assert tools(inner[0]) == tools(first) - only_main
    assert "context_status" in json.dumps(first) and "context_status" not in json.dumps(inner)
    assert "It prints a." in json.dumps(last) and "print('a')" not in json.dumps(last)

    (result,) = results(talk)
    assert isinstance(result.display, TaskReport) and result.display.steps == 2
    assert [event.text for event in talk.of(ToolOutput)] == ["Read a.py\n"]
    sessions, (kept,) = await stored(talk)
    root, child = sessions
    assert (child.kind, child.parent_id, child.root_id) == ("task", root.id, root.id)
    assert child.end_reason == "done" and child.title == "What does a.py print?"
    with closing(sqlite3.connect(Paths().database)) as connection:
        said = connection.execute(
            "SELECT parts FROM message WHERE session_id = ? AND role = 'user'", (child.id,)
        )
        assert '"origin":"agent"' in next(said)[0]
    assert kept.raw == "It prints a." and kept.context_summary is None
    assert talk.conversation.usage.output_tokens == 30


async def test_the_conversation_stays_the_tip_and_counts_its_tasks_when_resumed(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[task()], usage=Usage(100, 10)),
        Reply("Nothing there.", usage=Usage(50, 5)),
        Reply("Done.", usage=Usage(100, 10)),
    )
    talk = await talks()
    await talk.ask("go")
    assert talk.conversation.usage.total == 275
    await talk.conversation.close()
    again = await talks(resume_latest=True)
    assert again.conversation.info.id == talk.conversation.info.id
    assert again.conversation.usage.total == 275


async def test_a_read_only_task_has_no_tool_that_changes_anything(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task(read_only=True)]), bash("touch made"), "No shell here.", "Fine.")
    talk = await talks(yolo=True)
    await talk.ask("go")
    offered = tools(llm.requests[1].body)
    assert {"view", "ls", "glob", "grep", "fetch", "todos", "recall"} <= offered
    assert offered & {tool.name for tool in all_tools() if tool.access.writes} == {"fetch"}
    assert offered.isdisjoint({"task", "job_output", "job_kill", "new_session", "branch"})
    assert "There is no tool named 'bash'" in json.dumps(llm.requests[2].body)


async def test_read_only_tasks_run_side_by_side_and_others_one_after_the_other(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[task("one", read_only=True), task("two", read_only=True)]))
    llm.always(lambda body: Stall(Reply("report", chunk=2)) if of_task(body) else Reply("Both back."))
    talk = await talks()
    asked = asyncio.create_task(talk.ask("go"))
    await until_asked(llm, 3)  # both have asked, and neither was answered
    assert not results(talk)
    llm.release()
    assert await asked == "done"
    assert [result.text for result in results(talk)] == ["report", "report"]


async def test_every_deny_holds_for_a_task_too(talks: Talks, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(Reply(calls=[task()]), bash("touch made"), "I may not.", "So be it.")
    talk = await talks(flags={"permissions.deny": ["bash(touch)"]}, yolo=True)
    await talk.ask("go")
    assert "Denied" in json.dumps(llm.requests[2].body)
    assert not (workspace / "made").exists()


async def test_grant_given_to_a_task_holds_for_all_agents(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    same = Call("bash", {"command": "touch made"}, id="same")
    llm.script(Reply(calls=[task()]), Reply(calls=[same]), "Made it.", Reply(calls=[same]), "Again.")
    talk = await talks(interactive=True)
    asked = asyncio.create_task(talk.ask("go"))
    question: ApprovalNeeded = await talk.until_event(ApprovalNeeded)
    assert question.task == task_call(talk) and question.name == "bash"
    talk.conversation.answer(question.id, Answer("conversation"))
    assert await asked == "done"
    assert (workspace / "made").exists()
    assert len(talk.of(ApprovalNeeded)) == 1, "the main agent need not ask again"


def task_call(talk: Talk) -> str:
    return next(event.id for event in talk.of(ToolCalled) if event.name == "task")


async def test_a_permission_nobody_could_give_a_task_is_told(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task()]), bash("touch made"), "I may not.", "So be it.")
    talk = await talks()
    await talk.ask("go")
    assert talk.conversation.approvals.denied_noninteractive


async def test_new_session_in_a_task_is_an_error_and_changes_nothing(talks: Talks, llm: ScriptedLLM) -> None:
    fresh = Reply(calls=[Call("new_session", {"summary": "I am done here."})])
    llm.script(Reply(calls=[task()]), fresh, "Then I go on.", "Good.")
    talk = await talks(flags={"compaction.method": "llm"})
    await talk.ask("go")
    assert "new_session is not available" in json.dumps(llm.requests[2].body)
    assert not talk.of(BoundaryCommitted)
    sessions, _ = await stored(talk)
    assert [session.kind for session in sessions] == ["root", "task"]


async def test_a_task_has_no_tasks(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task()]), Reply(calls=[task("deeper")]), "Alone, then.", "Good.")
    talk = await talks()
    await talk.ask("go")
    assert "There is no tool named 'task'" in json.dumps(llm.requests[2].body)


# --- what comes back ----------------------------------------------------------------------------------------


async def test_a_long_report_is_summarised_where_that_is_wanted_and_stays_readable(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[task(context_strategy="summarized")]), LONG, "It is in src/parse.py.", "Good.")
    talk = await talks(flags={"small_model": "openai/small"})
    await talk.ask("go")
    summary = llm.requests[2].body
    assert summary["model"] == "small" and not summary.get("tools")
    assert "<report>" in summary["messages"][-1]["content"]
    (result,) = results(talk)
    assert result.text.startswith("It is in src/parse.py.") and len(result.text) < 200
    _, (kept,) = await stored(talk)
    assert kept.raw == LONG.strip() and kept.context_summary == "It is in src/parse.py."
    assert kept.summary_model == "openai/small"
    assert f"recall(message_id='{kept.id}')" in result.text
    llm.script(Reply(calls=[Call("recall", {"message_id": kept.id})]), "Read.")
    await talk.ask("the whole report, please")
    assert LONG.strip() in json.dumps(llm.requests[-1].body)


@pytest.mark.parametrize(
    ("report", "step"),
    [
        ("Short.", None),
        (LONG, Fail(401)),
        (LONG, Reply("")),
        (LONG, Reply(LONG + LONG)),
        (LONG, Reply(calls=[Call("ls", {})])),
    ],
    ids=["short", "failure", "nothing", "longer", "a call"],
)
async def test_task_report_is_used_whole_without_a_summary(
    talks: Talks, llm: ScriptedLLM, report: str, step: Any
) -> None:
    llm.script(Reply(calls=[task()]), report)
    llm.always(lambda body: step if "<report>" in json.dumps(body["messages"][-1]) else Reply("Good."))
    talk = await talks(flags={"tasks.context_strategy": "summarized"})
    assert await talk.ask("go") == "done"
    (result,) = results(talk)
    assert result.text == report.strip()


async def test_the_call_has_a_say_before_the_settings(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task(context_strategy="full")]), LONG, "Good.")
    talk = await talks(flags={"tasks.context_strategy": "summarized"})
    await talk.ask("go")
    assert results(talk)[0].text == LONG.strip()


async def test_files_a_task_changed_are_named_and_reach_the_evidence(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(
        Reply(calls=[task()]),
        Reply(calls=[Call("write", {"file_path": "deep/new.py", "content": "x = 1\n"})]),
        "Written.",
        bash("echo looked"),
        "Good.",
    )
    talk = await talks(yolo=True)
    await talk.ask("go")
    (result,) = results(talk)
    assert result.text == "Written.\n\nFiles changed: deep/new.py"
    assert await talk.conversation.context.compact(summary="We go on.")
    (seed,) = [part for part in talk.conversation.history[0].parts if isinstance(part, Seed)]
    assert "new.py" in seed.evidence


async def test_a_file_that_a_task_changed_must_be_read_again(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.py").write_text("one\n")
    change = {"file_path": "a.py", "old_string": "one", "new_string": "two"}
    llm.script(
        Reply(calls=[Call("view", {"file_path": "a.py"})]),
        Reply(calls=[task()]),
        Reply(calls=[Call("edit", change)]),
        Reply(calls=[Call("view", {"file_path": "a.py"})]),
        Reply(calls=[Call("edit", change)]),
        "Changed.",
        Reply(calls=[Call("edit", {**change, "old_string": "two", "new_string": "three"})]),
        "Good.",
    )
    talk = await talks(yolo=True)
    await talk.ask("go")
    edits = [event.is_error for event in talk.of(ToolFinished) if event.name == "edit"]
    assert edits == [True], "the main agent has not read what the task wrote"
    assert (workspace / "a.py").read_text() == "two\n"


# --- faults -------------------------------------------------------------------------------------------------


async def test_a_task_that_fails_tells_why(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task()]), Fail(401), "I do it myself.")
    talk = await talks()
    assert await talk.ask("go") == "done"
    (result,) = results(talk)
    assert result.is_error and result.text.startswith("The sub-agent failed: ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"prompt": "  "}, "The prompt is empty"),
        ({}, "Invalid arguments for task"),
        ({"prompt": "x", "context_strategy": "short"}, "Invalid arguments for task"),
        ({"prompt": "x", "model": "nobody/knows"}, "There is no model nobody/knows"),
    ],
)
async def test_a_task_that_cannot_be_is_explained(
    talks: Talks, llm: ScriptedLLM, args: dict[str, Any], said: str
) -> None:
    llm.script(Reply(calls=[Call("task", args)]), "I see.")
    talk = await talks()
    await talk.ask("go")
    (result,) = results(talk)
    assert result.is_error and said in result.text
    assert len(llm.requests) == 2


async def test_an_interrupt_stops_the_task_and_leaves_a_valid_history(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task()]), Stall(Reply("Half a report", chunk=4), after=2), "Back again.")
    talk = await talks()
    asked = asyncio.create_task(talk.ask("go"))
    await until_asked(llm, 2)
    talk.conversation.interrupt()
    assert await asked == "interrupted"
    (result,) = results(talk)
    assert result.is_error and result.text.startswith("Interrupted")
    sessions, kept = await stored(talk)
    assert [session.end_reason for session in sessions if session.kind == "task"] == ["interrupted"]
    assert kept == []
    assert await talk.ask("and now?") == "done"


async def test_the_steps_of_a_task_count(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[task()])).always(lambda body: bash(f"echo {len(llm.requests)}"))
    talk = await talks(max_steps=4, yolo=True)
    assert await talk.ask("go") == "limit"
    assert len(llm.requests) == 4
    (result,) = results(talk)
    assert result.is_error and "stopped at a limit" in result.text


async def test_a_task_whose_window_fills_starts_afresh_and_knows_nothing_of_its_caller(
    talks: Talks, llm: ScriptedLLM
) -> None:
    used = iter([3_000, 7_600])
    llm.script(Reply(calls=[task("the errand")], usage=Usage(900, 10)))
    llm.always(full_task(used))
    talk = await talks(flags={f'models."{MODEL}".context_window': 10_000}, yolo=True)
    assert await talk.ask("the treasure of the main agent") == "done"
    assert not talk.of(BoundaryCommitted), "a boundary of a task is none of the conversation's"
    assert any("context compacted (auto)" in event.text for event in talk.of(ToolOutput))
    sessions, (kept,) = await stored(talk)
    assert [session.kind for session in sessions] == ["root", "task", "continuation"]
    assert sessions[2].parent_id == sessions[1].id
    assert kept.session_id == sessions[2].id
    child = json.dumps([r.body for r in llm.requests if of_task(r.body)][-1])
    assert "the errand" in child and "treasure" not in child
    assert talk.conversation.info.id == sessions[0].id


def full_task(used: Any) -> Callable[[dict[str, Any]], Reply]:
    def answer(body: dict[str, Any]) -> Reply:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("## Goal\nNotes.", usage=Usage(1_000, 50))
        if not of_task(body):
            return Reply("Good.", usage=Usage(900, 10))
        tokens = next(used, None)
        if tokens is None:
            return Reply("Reported.", usage=Usage(900, 10))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 10))

    return answer
