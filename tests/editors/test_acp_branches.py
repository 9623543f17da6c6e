"""Branches and forks in an editor: recognisable while they run, folded afterwards, listed and reloaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Fail, Reply
from scripted_llm.server import ScriptedLLM
from support.acp_client import AcpClient, Connect

pytestmark = pytest.mark.slow

BACK = Reply(calls=[Call("return_to_parent", {"result": "the cause is in a.py"})])


def branch(goal: str) -> Reply:
    return Reply("I step aside.", calls=[Call("branch", {"goal": goal})])


def place(update: dict[str, Any]) -> tuple[int, str]:
    found = update.get("_meta", {}).get("crushpy", {}).get("branch", {})
    return found.get("depth", 0), found.get("goal", "")


def said(client: AcpClient, text: str) -> dict[str, Any]:
    return next(chunk for chunk in client.of("agent_message_chunk") if text in chunk["content"]["text"])


def opened(connect: Connect, workspace: Path, session: str) -> AcpClient:
    client = connect()
    client.call("initialize", protocolVersion=1)
    client.call("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
    return client


def start(client: AcpClient, workspace: Path) -> str:
    session = client.open(workspace)
    client.call("session/set_config_option", sessionId=session, configId="compaction", value="llm")
    client.call("session/set_mode", sessionId=session, modeId="edits")
    return session


def test_acp_marks_updates_of_a_branch_and_ends_its_call_with_the_result(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    view = Reply("Looking inside.", calls=[Call("ls", {"path": "."})])
    llm.script(branch("outer"), branch("inner"), view, BACK, BACK, Reply("All is well."))
    client = connect()
    session = start(client, workspace)
    assert client.prompt(session, "go") == "end_turn"
    first, second = [call for call in client.of("tool_call") if call["name"] == "branch"]
    assert (place(first), place(second)) == ((0, ""), (1, "outer"))
    assert place(said(client, "Looking inside.")) == (2, "inner")
    assert place(next(call for call in client.of("tool_call") if call["name"] == "ls")) == (2, "inner")
    assert place(said(client, "All is well.")) == (0, "")
    for call in (first, second):
        own = [
            update for update in client.of("tool_call_update") if update["toolCallId"] == call["toolCallId"]
        ]
        assert [update["status"] for update in own] == ["in_progress", "in_progress", "completed"]
        assert "folded to" in own[-1]["title"] and "the cause is in a.py" in json.dumps(own[-1]["content"])
        assert own[-1]["_meta"]["crushpy"]["returned"]["calls"] > 0
    client.close()
    again = opened(connect, workspace, session)
    [call] = again.of("tool_call")
    [update] = again.of("tool_call_update")
    assert (call["kind"], place(call)) == ("other", (0, ""))
    assert "folded to" in update["title"] and "the cause is in a.py" in json.dumps(update["content"])


def test_an_open_branch_is_recognisable_after_a_reload_with_compactions(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    def compact(name: str) -> Reply:
        return Reply(calls=[Call("new_session", {"summary": name})])

    look = Reply(calls=[Call("ls", {"path": "."})])
    llm.script(compact("before"), look, branch("outer"), look, compact("inside"), Fail(401))
    client = connect()
    session = start(client, workspace)
    client.fail("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    client.close()
    again = opened(connect, workspace, session)
    [before, inside] = [
        call for call in again.of("tool_call") if call["toolCallId"].startswith("compaction-")
    ]
    assert (place(before), place(inside)) == ((0, ""), (1, "outer"))
    for shown in (before, inside):
        assert shown["_meta"]["crushpy"]["trigger"] == "agent"
    call = next(call for call in again.of("tool_call") if call.get("name") == "branch")
    assert again.of("tool_call_update")[-1]["toolCallId"] != call["toolCallId"]
    llm.script(BACK, Reply("All is well."))
    assert again.prompt(session, "go on") == "end_turn"
    last = [update for update in again.of("tool_call_update") if update["toolCallId"] == call["toolCallId"]][
        -1
    ]
    assert last["status"] == "completed" and place(said(again, "All is well.")) == (0, "")


def test_the_user_branches_and_returns_in_the_editor(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hello.", "Inside.", "Outside.")
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "/branch x") == "end_turn" and "nothing to branch from" in client.text
    assert client.prompt(session, "hi") == "end_turn"
    assert client.prompt(session, "/return") == "end_turn" and "not a branch" in client.text
    assert client.prompt(session, "/branch") == "end_turn" and "The goal is empty" in client.text
    assert client.prompt(session, "/branch look aside") == "end_turn"
    assert place(said(client, "Inside.")) == (1, "look aside")
    client.close()
    again = opened(connect, workspace, session)
    [call] = again.of("tool_call")
    assert (call["status"], call["kind"], place(call)) == ("in_progress", "other", (0, ""))
    assert place(said(again, "Inside.")) == (1, "look aside")
    assert again.prompt(session, "/return it was nothing") == "end_turn"
    [done] = again.of("tool_call_update")
    assert (done["toolCallId"], done["status"]) == (call["toolCallId"], "completed")
    assert again.prompt(session, "/undo-compaction") == "end_turn"
    assert place(again.of("agent_message_chunk")[-1]) == (1, "look aside")
    assert again.prompt(session, "/return") == "end_turn"
    assert again.prompt(session, "and now") == "end_turn"
    assert place(said(again, "Outside.")) == (0, "")
    again.close()
    last = opened(connect, workspace, session)
    folded = [call for call in last.of("tool_call") if call["status"] == "completed"]
    assert folded and all("folded to" in call["title"] for call in folded)


def test_forks_are_listed_loaded_and_not_deleted_alone(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.always(lambda body: Reply("Goal: go on." if not body.get("tools") else "Fine."))
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "hello " + "words " * 300) == "end_turn"
    assert client.prompt(session, "/compact") == "end_turn"
    assert client.prompt(session, "/undo-compaction") == "end_turn"
    fork = client.call("session/fork", sessionId=session, cwd=str(workspace), mcpServers=[])["sessionId"]
    assert client.prompt(fork, "in the fork") == "end_turn"
    assert client.prompt(fork, "/compact") == "end_turn"
    client.close()
    again = connect()
    again.call("initialize", protocolVersion=1)
    listed = again.call("session/list", cwd=str(workspace))["sessions"]
    assert [entry["sessionId"] for entry in listed].count(session) == 1
    assert {entry["sessionId"] for entry in listed} == {session, fork}
    of_fork = next(entry for entry in listed if entry["sessionId"] == fork)
    assert of_fork["_meta"]["crushpy"] == {"fork_of": session} and of_fork["title"].endswith("(fork)")
    assert again.call("session/list", cwd="/elsewhere")["sessions"] == []
    again.call("session/load", sessionId=fork, cwd=str(workspace), mcpServers=[])
    prompts = [chunk["content"]["text"] for chunk in again.of("user_message_chunk")]
    assert prompts[-1] == "in the fork" and prompts[0].startswith("hello")
    assert "is a fork" in again.fail("session/delete", sessionId=fork)["message"]
    assert len(again.call("session/list", cwd=str(workspace))["sessions"]) == 2
    again.call("session/close", sessionId=fork)
    assert again.call("session/delete", sessionId=session) == {}
    assert again.call("session/list", cwd=str(workspace))["sessions"] == []
