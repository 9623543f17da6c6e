"""Branches through the real engine: what is sent, what is stored, and every way a branch ends."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Fail, Overflow, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import (
    BoundaryCommitted,
    BranchOpened,
    BranchReturned,
    Notice,
    SessionOpened,
    SideAnswer,
    ToolFinished,
    TurnEnded,
)
from crushpy.core.messages import BranchReport, Usage

LLM: dict[str, object] = {"compaction.method": "llm"}


def branch(goal: str = "find the cause") -> Call:
    return Call("branch", {"goal": goal})


def back(result: str = "it is in a.py") -> Call:
    return Call("return_to_parent", {"result": result})


def bash(command: str = "echo one") -> Call:
    return Call("bash", {"command": command})


def rows(home: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        return database.execute(query).fetchall()


def results(body: dict[str, Any]) -> dict[str, list[str]]:
    """The results of a request by the name of the tool, in order."""
    calls = {
        call["id"]: call["function"]["name"]
        for message in body["messages"]
        for call in message.get("tool_calls", ())
    }
    found: dict[str, list[str]] = {}
    for message in body["messages"]:
        if message["role"] == "tool":
            found.setdefault(calls[message["tool_call_id"]], []).append(message["content"])
    return found


def assert_paired(requests: Sequence[Any]) -> None:
    """In every request each call has exactly one result."""
    for request in requests:
        messages = request.body["messages"]
        calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert sorted(calls) == sorted(answered)


async def idle(talk: Talk) -> None:
    """Returns once the running turn has ended."""
    async with asyncio.timeout(60):
        while talk.conversation.busy:
            await asyncio.sleep(0)


def without_status(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body["messages"]
    last = messages[-1]
    return messages[:-1] if last["role"] == "system" and "context_status" in last["content"] else messages


async def test_a_digression_folds_to_its_result(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    llm.script(
        Reply("Let me look.", calls=[branch()]),
        Reply(calls=[bash("echo deep digression")]),
        Reply(calls=[back()]),
        Reply("All done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("Fix the bug") == "done"
    (opened,), (returned,) = talk.of(BranchOpened), talk.of(BranchReturned)
    root = talk.of(SessionOpened)[0].id
    assert (opened.parent_id, opened.goal, opened.depth) == (root, "find the cause", 1)
    assert (returned.session_id, returned.parent_id) == (opened.session_id, root)
    assert (returned.chars, returned.interrupted) == (len("it is in a.py"), False)
    assert (returned.report.calls, returned.report.steps) == (2, 2)
    assert talk.conversation.info.id == root
    assert_paired(llm.requests)
    last = llm.requests[-1].body
    assert results(last) == {"branch": ["it is in a.py"]}
    assert "deep digression" not in json.dumps(last)
    # The requests of the branch begin with all that its parent sent.
    for before, after in zip(llm.requests[:2], llm.requests[1:3], strict=True):
        assert after.body["tools"] == before.body["tools"]
        sent = without_status(before.body)
        assert after.body["messages"][: len(sent)] == sent
    inside = results(llm.requests[1].body)["branch"][0]
    assert "find the cause" in inside and "return_to_parent" in inside
    assert '"branch_depth":1' in json.dumps(llm.requests[1].body).replace("\\", "")
    assert "branch_depth" not in json.dumps(last["messages"])
    await talk.close()
    assert rows(home, "SELECT kind, parent_id, end_reason FROM session ORDER BY created_at") == [
        ("root", None, ""),
        ("branch", root, "return"),
    ]
    assert rows(home, "SELECT trigger, parent_id, child_id FROM boundary ORDER BY created_at") == [
        ("branch", root, opened.session_id),
        ("return", opened.session_id, root),
    ]


async def test_branch_call_stores_both_results(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Reply(calls=[back("found")]), Reply("Done."))
    talk = await talks(flags=LLM, yolo=True)
    await talk.ask("go")
    store, opened = talk.conversation.sessions.store, talk.of(BranchOpened)[0]
    stored = [
        [message.result for message in await store.messages.load(session_id) if message.result is not None]
        for session_id in (opened.session_id, opened.parent_id)
    ]
    (opening, returning), (returned,) = stored
    assert opening.call_id == returned.call_id and opening.name == returned.name == "branch"
    assert returned.text == "found" and isinstance(returned.display, BranchReport)
    assert returning.text == f"returned to {opened.parent_id}"


async def test_a_turn_that_ends_in_a_branch_returns_its_last_text(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Reply("The cause is b.py."), Reply("Fixed."))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    assert results(llm.requests[-1].body) == {"branch": ["The cause is b.py."]}
    assert talk.conversation.history[-1].text == "Fixed."


async def test_branches_nest_three_deep(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        *(Reply(calls=[branch(f"level {depth}")]) for depth in (1, 2, 3, 4)),
        *(Reply(calls=[back(f"from {depth}")]) for depth in (3, 2, 1)),
        Reply("Done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    assert [event.depth for event in talk.of(BranchOpened)] == [1, 2, 3]
    errors = [event for event in talk.of(ToolFinished) if event.is_error]
    assert len(errors) == 1 and errors[0].name == "branch" and "3 deep" in errors[0].text
    opened = [event.session_id for event in talk.of(BranchOpened)]
    assert [event.session_id for event in talk.of(BranchReturned)] == opened[::-1]
    assert results(llm.requests[-1].body) == {"branch": ["from 1"]}
    assert_paired(llm.requests)


async def test_a_return_outside_a_branch_is_a_tool_error(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[back()]),
        Reply(calls=[branch()]),
        Reply(calls=[back()]),
        Reply(calls=[back()]),
        Reply("Ok."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    assert [event.is_error for event in talk.of(ToolFinished)] == [True, False, False, True]
    assert len(talk.of(BranchReturned)) == 1


@pytest.mark.parametrize("bad", [{"goal": "  "}, {}, {"goal": 7}, {"goal": ["x"]}, "{broken"])
async def test_a_bad_goal_changes_nothing(bad: Any, talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("branch", bad)]), Reply("Ok."))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    assert not talk.of(BranchOpened) and talk.of(ToolFinished)[0].is_error


async def test_only_the_first_branch_of_a_reply_is_opened(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[bash(), *(branch(f"goal {number}") for number in range(50)), back(), bash("echo two")]),
        Reply(calls=[back("one"), back("two"), bash("echo three")]),
        Reply("Done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    (opened,) = talk.of(BranchOpened)
    assert opened.goal == "goal 0" and len(talk.of(BranchReturned)) == 1
    assert_paired(llm.requests)
    found = results(llm.requests[-1].body)
    assert len(found["branch"]) == 50 and found["branch"][0] == "one"
    assert all("Only one" in text for text in found["branch"][1:])
    assert "one" in found["bash"][0] and "three" not in json.dumps(llm.requests[-1].body["messages"][1:])


@pytest.mark.slow
async def test_a_result_of_a_megabyte_is_truncated_and_can_be_recalled(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[branch()]),
        Reply(calls=[bash("true"), back("haystack " + "x" * 1_000_000 + " needle")]),
        Reply("Done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    (text,) = results(llm.requests[-1].body)["branch"]
    assert len(text) < 40_000 and text.count("needle") == 1
    llm.script(Reply(calls=[Call("recall", {"message_id": text.split()[-1].rstrip("]")})]), Reply("Done."))
    assert await talk.ask("again") == "done"
    assert "haystack" in results(llm.requests[-1].body)["recall"][0]
    found = await talk.conversation.sessions.search("haystack", within=talk.conversation.info.id)
    assert any(hit.session_id == talk.of(BranchOpened)[0].session_id for group in found for hit in group.hits)


async def test_esc_returns_with_what_was_said(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[branch("outer")]),
        Reply("Half way.", calls=[bash()]),
        Reply(calls=[branch("inner")]),
        Stall(Reply("I was just"), after=1),
        Reply("Carrying on."),
    )
    talk = await talks(flags=LLM, yolo=True)
    talk.conversation.submit("go")
    await talk.until_event(BranchOpened, 2)
    await llm.wait_requests(4)
    talk.conversation.interrupt()
    assert (await talk.until_event(TurnEnded)).status == "interrupted"
    assert [event.interrupted for event in talk.of(BranchReturned)] == [True, True]
    root = talk.of(SessionOpened)[0].id
    assert talk.conversation.info.id == root
    last = talk.conversation.history[-1].result
    assert last is not None and last.ended == "interrupted" and "interrupted" in last.text
    assert "Half way." in last.text
    assert await talk.ask("and now?") == "done"
    assert_paired(llm.requests)


async def test_overflow_in_a_branch_returns_its_last_text(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[branch()]), Reply("So far: c.py.", calls=[bash()]), Overflow(limit=9_000), Reply("Done.")
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    (returned,) = talk.of(BranchReturned)
    assert not returned.interrupted and not talk.of(BoundaryCommitted)
    (text,) = results(llm.requests[-1].body)["branch"]
    assert "full" in text and "So far: c.py." in text


async def test_a_boundary_inside_continues_the_branch(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[branch()]),
        Reply(calls=[bash("echo inside")]),
        Reply(calls=[Call("new_session", {"summary": "Goal: find the cause. Done: one step."})]),
        Reply(calls=[back("after the summary")]),
        Reply("Done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    (boundary,), (opened,), (returned,) = (
        talk.of(BoundaryCommitted),
        talk.of(BranchOpened),
        talk.of(BranchReturned),
    )
    assert boundary.parent_id == opened.session_id and returned.session_id == opened.session_id
    assert returned.parent_id == opened.parent_id == talk.conversation.info.id
    assert '"branch_depth":1' in json.dumps(llm.requests[3].body).replace("\\", "")
    assert results(llm.requests[-1].body) == {"branch": ["after the summary"]}
    assert returned.report.calls == 3


@pytest.mark.slow
async def test_a_limit_in_a_branch_ends_the_turn_in_the_parent(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(lambda body: Reply("Step.", calls=[branch() if len(body["messages"]) < 5 else bash()]))
    talk = await talks(flags=LLM, yolo=True, max_steps=3)
    assert await talk.ask("go") == "limit"
    assert talk.conversation.info.kind == "root"
    last = talk.conversation.history[-1].result
    assert last is not None and "limit" in last.text and "Step." in last.text


@pytest.mark.slow
async def test_prompts_given_in_a_branch_reach_the_parent(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[branch()]), Stall(Reply(calls=[bash()]), after=1), Reply(calls=[back()]), Reply("Done.")
    )
    talk = await talks(flags=LLM, yolo=True)
    talk.conversation.submit("go")
    await talk.until_event(BranchOpened)
    await llm.wait_requests(2)
    talk.conversation.submit("Never touch setup.py.")
    llm.release()
    await talk.until_event(TurnEnded)
    (text,) = results(llm.requests[-1].body)["branch"]
    assert "Never touch setup.py." in text
    assert [rule.text for rule in (await talk.conversation.rules.listed()).valid] == ["Never touch setup.py."]


@pytest.mark.slow
async def test_the_facts_of_a_branch_are_carried_over_a_later_boundary(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(
        Reply(calls=[branch()]),
        Reply(calls=[Call("write", {"file_path": "made_inside.py", "content": "x = 1\n"})]),
        Reply(calls=[bash("false --for-the-record")]),
        Reply(calls=[back("made a file")]),
        Reply(calls=[Call("new_session", {"summary": "Goal: go on."})]),
        Reply("Done."),
    )
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    seed = json.dumps(llm.requests[-1].body["messages"])
    assert "made_inside.py" in seed and "false --for-the-record" in seed
    planned = await talk.conversation.files.rewinder.plan_undo(talk.conversation.info.id)
    assert planned is not None and "made_inside.py" in str(planned.views)


@pytest.mark.slow
async def test_undoing_a_return_makes_the_branch_the_place_to_continue(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    llm.script(
        Reply(calls=[branch()]),
        Reply(calls=[back("first result")]),
        Reply("Done."),
        Reply(calls=[back("second result")]),
        Reply("Done again."),
    )
    talk = await talks(flags=LLM, yolo=True)
    await talk.ask("go")
    opened = talk.of(BranchOpened)[0]
    assert await talk.conversation.context.undo_compaction()
    assert talk.conversation.info.id == opened.session_id
    await talk.close()
    talk = await talks(flags=LLM, yolo=True, session=opened.parent_id)  # by the root: the tip is found
    assert talk.conversation.info.id == opened.session_id
    assert await talk.ask("look again") == "done"
    assert_paired(llm.requests)
    (text,) = results(llm.requests[-1].body)["branch"]
    assert text.startswith("second result") and "first result" not in json.dumps(llm.requests[-1].body)
    kinds = dict(rows(home, "SELECT id, kind FROM session"))
    assert kinds[talk.conversation.info.id] == "fork" and kinds[opened.parent_id] == "root"
    await talk.close()
    talk = await talks(flags=LLM, yolo=True, resume_latest=True)
    assert kinds[talk.conversation.info.id] == "fork"
    llm.script(Reply("Still here."))
    assert await talk.ask("more") == "done"
    assert results(llm.requests[-1].body)["branch"][0].startswith("second result")


async def test_undoing_a_branch_continues_the_parent(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Fail(401), Reply("Without it."))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "error"
    opened = talk.of(BranchOpened)[0]
    assert talk.conversation.info.id == opened.session_id  # an error leaves it open
    assert await talk.conversation.context.undo_compaction()
    assert talk.conversation.info.id == opened.parent_id
    assert await talk.ask("go on") == "done"
    assert_paired(llm.requests)
    assert "undid" in results(llm.requests[-1].body)["branch"][0]
    tree = {row.session.id: row.relation for row in await talk.conversation.sessions.tree(opened.parent_id)}
    assert tree == {opened.parent_id: "first", opened.session_id: "undone"}


async def test_auto_offers_neither_tool_and_refuses_a_stale_call(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Reply("Ok."))
    talk = await talks(yolo=True)
    assert await talk.ask("go") == "done"
    names = {tool["function"]["name"] for tool in llm.requests[0].body["tools"]}
    assert names.isdisjoint({"branch", "return_to_parent", "new_session"})
    (result,) = talk.of(ToolFinished)
    assert result.is_error and "auto" in result.text


@pytest.mark.slow
async def test_the_tools_are_the_same_inside_and_outside(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Reply(calls=[back()]), Reply("Ok."))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    offered = {json.dumps(request.body["tools"]) for request in llm.requests}
    assert len(offered) == 1
    names = [tool["function"]["name"] for tool in llm.requests[0].body["tools"]]
    assert names[-3:] == ["branch", "return_to_parent", "new_session"]


@pytest.mark.slow
async def test_todos_and_the_model_of_a_branch_stay(talks: Talks, llm: ScriptedLLM) -> None:
    todos = Call("todos", {"todos": [{"text": "write tests", "status": "pending"}]})
    llm.script(Reply(calls=[branch()]), Reply(calls=[todos]), Reply(calls=[back()]), Reply("Ok."))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "done"
    assert [todo.text for todo in talk.conversation.info.todos] == ["write tests"]


@pytest.mark.slow
async def test_the_gauge_is_that_of_the_parent_after_a_return(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[branch()], usage=Usage(2_000, 20)),
        Reply(calls=[bash()], usage=Usage(6_000, 20)),
        Reply(calls=[back("short")], usage=Usage(9_000, 20)),
        Reply("Ok.", usage=Usage(2_100, 10)),
    )
    talk = await talks(flags={**LLM, f'models."{MODEL}".context_window': 100_000}, yolo=True)
    assert await talk.ask("go") == "done"
    assert '"used_pct":2,' in json.dumps(llm.requests[-1].body).replace("\\", "")
    assert talk.conversation.context.budget().used == 2_110


@pytest.mark.slow
async def test_a_killed_branch_is_continued_by_the_next_process(talks: Talks, llm: ScriptedLLM) -> None:
    """A network error leaves it open, as a kill does."""
    llm.script(Reply(calls=[branch("a")]), Reply(calls=[branch("b")]), Reply(calls=[branch("c")]), Fail(401))
    talk = await talks(flags=LLM, yolo=True)
    assert await talk.ask("go") == "error"
    root = talk.of(SessionOpened)[0].id
    await talk.close()
    llm.script(Reply("c done"), Reply("b done"), Reply("a done"), Reply("All done."))
    talk = await talks(flags=LLM, yolo=True, session=root)
    assert talk.conversation.info.id != root
    before = without_status(llm.requests[-1].body)
    assert await talk.ask("go on") == "done"
    resumed = llm.requests[4].body
    assert resumed["messages"][: len(before)] == before
    assert talk.conversation.info.id == root and len(talk.of(BranchReturned)) == 3
    assert_paired(llm.requests)
    assert results(llm.requests[-1].body)["branch"] == ["a done"]


@pytest.mark.slow
async def test_the_latest_branch_is_continued_although_the_clock_went_back_a_day(
    talks: Talks, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("the first request")
    parent, context = talk.conversation.info.id, talk.conversation.context
    assert await context.open_branch("look aside")
    assert await context.return_to_parent("nothing")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)
    assert await context.open_branch("look again")
    await talk.ask("inside")
    second = talk.conversation.info.id
    await talk.close()
    talk = await talks(session=parent)
    assert talk.conversation.info.id == second
    assert [message.text for message in talk.conversation.history[-2:]] == ["inside", "Yes."]


async def test_a_fork_inside_a_branch_returns_to_a_copy_of_the_parent(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[branch()]), Reply(calls=[back("one")]), Reply("Done."))
    talk = await talks(flags=LLM, yolo=True)
    await talk.ask("go")
    opened = talk.of(BranchOpened)[0]
    await talk.close()
    llm.script(Reply(calls=[back("two")]), Reply("From the fork."))
    talk = await talks(flags=LLM, yolo=True, session=opened.session_id, fork=True)
    assert [branch.session_id for branch in talk.conversation.session.branches] == [opened.session_id]
    assert await talk.ask("once more") == "done"
    assert_paired(llm.requests)
    info = talk.conversation.info
    assert (info.kind, info.parent_id) == ("fork", opened.parent_id)
    assert results(llm.requests[-1].body)["branch"][0].startswith("two")
    await talk.close()
    talk = await talks(flags=LLM, yolo=True, session=opened.parent_id)
    assert talk.conversation.info.id == opened.parent_id  # it went on by itself, and is as it was
    assert talk.conversation.history[-1].text == "Done."


# --- the user's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [LLM, {}])
async def test_the_user_branches_and_returns_in_both_methods(
    flags: dict[str, object], talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply("Hello."), Reply("The answer is 42."), Reply("As I said."), Reply("Back."))
    talk = await talks(flags=flags, yolo=True)
    await talk.ask("hi")
    await talk.conversation.context.open_branch("what is the answer?")
    talk.conversation.submit("what is the answer?")
    await idle(talk)
    assert [open_branch.goal for open_branch in talk.conversation.session.branches] == ["what is the answer?"]
    assert await talk.ask("sure?") == "done"  # it stays open until the user returns
    assert await talk.conversation.context.return_to_parent()
    assert not talk.conversation.session.branches and talk.conversation.info.kind == "root"
    assert await talk.ask("go on") == "done"
    sent = json.dumps(llm.requests[-1].body["messages"], ensure_ascii=False)
    assert "As I said." in sent and "The answer is 42." not in sent and "sure?" not in sent


async def test_the_user_returns_with_a_text_of_their_own(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hello."), Reply("Long story."), Reply("Back."))
    talk = await talks(yolo=True)
    await talk.ask("hi")
    await talk.conversation.context.open_branch("tell me")
    talk.conversation.submit("tell me")
    await idle(talk)
    assert await talk.conversation.context.return_to_parent("it is settled")
    await talk.ask("go on")
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "it is settled" in sent and "Long story." not in sent


async def test_a_return_while_a_turn_runs_or_outside_a_branch_changes_nothing(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("Hello."), after=0))
    talk = await talks(yolo=True)
    await talk.conversation.context.open_branch("too early")
    talk.conversation.submit("hi")
    await llm.wait_requests(1)
    assert not await talk.conversation.context.return_to_parent()
    await talk.conversation.context.open_branch("not now")
    llm.release()
    await idle(talk)
    assert not await talk.conversation.context.return_to_parent()
    told = [event.text for event in talk.of(Notice)]
    assert "nothing to branch from" in told[0] and "not a branch" in told[-1]
    assert sum("while the agent is working" in text for text in told) == 2
    assert not talk.of(BranchOpened)


async def test_the_agent_may_return_from_the_users_branch(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hello."), Reply(calls=[back("seen")]))
    talk = await talks(flags=LLM, yolo=True)
    await talk.ask("hi")
    await talk.conversation.context.open_branch("look")
    talk.conversation.submit("look")
    await idle(talk)
    assert not talk.conversation.session.branches and len(llm.requests) == 2


async def test_a_side_question_works_during_a_turn_and_enters_nothing(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if "btw" in json.dumps(body["messages"][-1]):
            return Reply("Because of the tests.", calls=[bash("touch must_not_run")], usage=Usage(900, 12))
        return Reply("Hello.") if "hi" in str(body["messages"][-1]) else Stall(Reply("Working."), after=0)

    llm.always(answer)
    talk = await talks(yolo=True)
    await talk.ask("hi")
    talk.conversation.submit("work")
    await llm.wait_requests(2)
    await talk.conversation.context.ask_aside("btw, a zebra crossing?")
    assert talk.conversation.busy
    (said,) = talk.of(SideAnswer)
    assert (said.question, said.text) == ("btw, a zebra crossing?", "Because of the tests.")
    assert said.usage.total == 912
    assert not llm.requests[-1].body.get("tools") and "Hello." in json.dumps(llm.requests[-1].body)
    llm.release()
    await talk.until_event(TurnEnded, 2)
    assert "zebra crossing" not in json.dumps([str(message) for message in talk.conversation.history])
    assert talk.conversation.usage.total >= 912
    assert [note.kind for note in talk.conversation.session.notes].count("aside") == 1
    await talk.close()
    assert "zebra crossing" not in str(rows(home, "SELECT parts FROM message"))


async def test_a_side_question_that_fails_is_a_notice(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hello."), Fail(401))
    talk = await talks(yolo=True)
    await talk.ask("hi")
    await talk.conversation.context.ask_aside("why?")
    assert "side question" in talk.of(Notice)[-1].text and not talk.conversation.busy
