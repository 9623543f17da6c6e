"""`crushpy acp`: an editor opens, asks, decides, cancels, compacts and comes back."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support import foreign_files as foreign
from support.acp_client import AcpClient, Connect
from support.command import Cli

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow

MCP_SERVER = Path(__file__).parents[1] / "support" / "mcp_stand_in.py"
COMPACTION = {"session": {"compaction": {}}}
WRITE = Reply(calls=[Call("write", {"file_path": "a.txt", "content": "hello"})])


def test_a_turn_with_a_permission(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(WRITE, "It is written.")
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "write it") == "end_turn"
    assert (workspace / "a.txt").read_text() == "hello" and client.text == "It is written."
    [call] = client.of("tool_call")
    assert (call["kind"], call["locations"]) == ("edit", [{"path": str(workspace / "a.txt")}])
    assert call["content"] == [{"type": "diff", "path": str(workspace / "a.txt"), "newText": "hello"}]
    [question] = client.questions
    assert [(option["optionId"], option["kind"], option["name"]) for option in question["options"]] == [
        ("once:y", "allow_once", "Yes"),
        ("conversation:a", "allow_always", "Yes, and all edits in this conversation"),
        ("deny:n", "reject_once", "No, and tell the agent what to do"),
        ("conversation:c", "allow_always", "In this conversation: write(./a.txt)"),
        ("always:p", "allow_always", "In this project: write(./a.txt)"),
        ("always:g", "allow_always", "In all projects: write(./a.txt)"),
    ]
    statuses = [update["status"] for update in client.of("tool_call_update")]
    assert statuses == ["in_progress", "completed"]
    assert client.of("usage_update")[-1]["size"] > 0 and client.of("available_commands_update")
    assert client.close() == (0, "")


def test_a_refusal_and_a_command_with_what_it_needs(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "touch 'a b'"})]), "Refused.")
    client = connect()
    client.decide = lambda question: next(
        option["optionId"] for option in question["options"] if option["kind"] == "reject_once"
    )
    session = client.open(workspace)
    assert client.prompt(session, "touch it") == "end_turn"
    assert "touch 'a b'" in json.dumps(client.questions[0]["toolCall"]["content"])
    assert client.of("tool_call_update")[-1]["status"] == "failed" and not (workspace / "a b").exists()


def test_a_turn_pauses_at_the_end_of_its_budget(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(*(Reply(calls=[Call("ls", {})], usage=Usage(60)) for _ in range(4)))
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "/budget 100") == "end_turn" and "100 tokens" in client.text
    client.decide = lambda question: question["options"][-(len(client.questions) > 1)]["optionId"]
    assert client.prompt(session, "look around") == "max_turn_requests"
    assert len(client.questions) == 2 and len(llm.requests) == 4
    assert "go on with 100 tokens" in [option["name"] for option in client.questions[0]["options"]]


@pytest.mark.nightly
def test_a_turn_pauses_after_200_steps(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    llm.always(
        lambda _: Reply(calls=[Call("grep", {"pattern": f"word{len(llm.requests)}"})], usage=Usage(60))
    )
    client = connect()
    session = client.open(workspace)
    client.decide = lambda question: question["options"][-1]["optionId"]
    assert client.prompt(session, "look around") == "max_turn_requests"
    [question] = client.questions
    assert [option["name"] for option in question["options"]] == ["go on", "stop"]
    assert len(llm.requests) == 200 and "200" in json.dumps(question["toolCall"])


def test_cancelling_ends_the_turn_and_its_question(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(WRITE, "Going on.")
    client = connect()
    client.decide = lambda _: None
    session = client.open(workspace)
    turn = client.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "write it"}])
    client.until_question()
    client.send({"method": "session/cancel", "params": {"sessionId": session}})
    assert client.wait(turn)["result"]["stopReason"] == "cancelled"
    assert not (workspace / "a.txt").exists()
    assert client.prompt(session, "and now?") == "end_turn" and "Going on." in client.text


@pytest.mark.parametrize("native", [True, False])
def test_boundaries_never_change_the_session_and_are_replayed(
    native: bool, connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return Reply("Goal: go on." if not body.get("tools") else "Fine.")

    llm.always(answer)
    client = connect()
    session = client.open(workspace, **(COMPACTION if native else {}))
    for number in range(8):
        assert client.prompt(session, f"step {number} " + "words " * 300) == "end_turn"
        assert client.prompt(session, "/compact") == "end_turn"
    assert client.prompt(session, "/tree") == "end_turn" and client.text.count("- ") >= 9
    client.close()
    again = connect()
    again.call("initialize", protocolVersion=1, clientCapabilities=COMPACTION if native else {})
    [listed] = again.call("session/list", cwd=str(workspace))["sessions"]
    assert listed["sessionId"] == session
    again.call("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
    said = [update["content"]["text"] for update in again.of("user_message_chunk")]
    assert [text.split(" words")[0] for text in said] == [f"step {number}" for number in range(8)]
    for editor in (client, again):
        made = boundaries(editor, native)
        assert len(made) == 8 and all("Goal: go on." in json.dumps(update) for update in made)
        assert all(update["_meta"]["crushpy"]["tokens_after"] > 0 for update in made)
        assert native or all("recorded facts carried" in update["title"] for update in made)
    assert again.prompt(session, "/undo-compaction") == "end_turn" and "Undone: " in again.text
    assert again.prompt(session, "go on") == "end_turn"


def boundaries(client: AcpClient, native: bool) -> list[dict[str, Any]]:
    if native:
        return [update for update in client.of("compaction_update") if update["status"] == "completed"]
    assert client.of("compaction_update") == []
    return [call for call in client.of("tool_call") if call["toolCallId"].startswith("compaction-")]


def test_modes_options_and_todos(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    todos = [{"text": "write", "status": "in_progress"}]
    llm.script(WRITE, Reply(calls=[Call("todos", {"todos": todos})]), "Done.")
    client = connect()
    session = client.open(workspace)
    client.call("session/set_mode", sessionId=session, modeId="edits")
    found = client.call("session/set_config_option", sessionId=session, configId="compaction", value="llm")
    values = {option["id"]: option["currentValue"] for option in found["configOptions"]}
    assert (values["mode"], values["compaction"]) == ("edits", "llm") and "effort" in values
    assert client.prompt(session, "write it") == "end_turn"
    assert client.questions == [] and client.of("plan")[-1]["entries"][0]["content"] == "write"
    assert client.fail("session/set_mode", sessionId=session, modeId="fly")["code"] == -32602
    assert (
        client.fail("session/set_config_option", sessionId=session, configId="x", value="y")["code"] == -32602
    )


def test_bad_messages_are_answered_with_errors(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    client = connect()
    assert client.fail("session/new", cwd=str(workspace), mcpServers=[])["code"] == -32600
    session = client.open(workspace)
    client.send(b'{"jsonrpc": "2.0", "id": 7, "meth')
    assert client.wait(None)["error"]["code"] == -32700
    client.send(b"[]")
    assert client.wait(None)["error"]["code"] == -32600
    assert client.fail("session/fly")["code"] == -32601
    assert client.fail("session/prompt", sessionId=session, prompt="text")["code"] == -32602
    assert client.fail("session/prompt", sessionId=session, prompt=[{"type": "audio"}])["code"] == -32602
    assert client.fail("session/prompt", sessionId="nope", prompt=[])["code"] == -32002
    assert client.fail("session/new", cwd="relative", mcpServers=[])["code"] == -32602
    assert client.fail("session/load", sessionId="zzzzzz", cwd=str(workspace))["code"] == -32002
    assert client.fail("session/list", cursor="x")["code"] == -32602
    llm.script("Still here.")
    assert client.prompt(session, "hello") == "end_turn"
    assert client.call("session/delete", sessionId=session) == {}
    assert client.call("session/list", cwd=str(workspace))["sessions"] == []


def test_a_second_prompt_waits_for_no_one_and_closing_ends_everything(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(WRITE)
    client = connect()
    client.decide = lambda _: None
    session = client.open(workspace)
    blocks = [{"type": "text", "text": "write it"}]
    client.start("session/prompt", sessionId=session, prompt=blocks)
    client.until_question()
    assert "is running" in client.fail("session/prompt", sessionId=session, prompt=blocks)["message"]
    code, _ = client.close()
    assert code == 0 and not (workspace / "a.txt").exists()
    again = connect()
    again.call("initialize", protocolVersion=1)
    again.call("session/resume", sessionId=session, cwd=str(workspace))
    llm.script("Here again.")
    assert again.prompt(session, "go on") == "end_turn"


def test_acp_client_is_told_to_log_in_without_a_key(
    workspace: Path, llm_env: dict[str, str], connect: Connect
) -> None:
    client = AcpClient({"CRUSHPY_MODEL": "anthropic/claude-sonnet-5-5"}, workspace)
    started = client.call("initialize", protocolVersion=1)
    assert started["authMethods"]
    error = client.fail("session/new", cwd=str(workspace), mcpServers=[])
    assert error["code"] == -32000 and "ANTHROPIC_API_KEY" in error["message"]
    assert client.close()[0] == 0


def test_images_and_resources_are_part_of_the_prompt(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("I see.")
    client = connect()
    session = client.open(workspace)
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Look at these:"},
        {"type": "resource", "resource": {"uri": "file:///x/notes.md", "text": "the port is 7071"}},
        {"type": "resource_link", "uri": (workspace / "b.py").as_uri(), "name": "b.py"},
    ]
    answer = client.call("session/prompt", sessionId=session, prompt=blocks)
    assert answer["stopReason"] == "end_turn"
    sent = json.dumps(llm.requests[0].body["messages"][-1])
    assert "the port is 7071" in sent and f"@{workspace / 'b.py'}" in sent


def test_the_clients_servers_are_asked_about_once(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    server = {"name": "many", "command": sys.executable, "args": [str(MCP_SERVER)], "env": []}
    call = Reply(
        calls=[Call("mcp", {"action": "call", "server": "many", "tool": "tool_000", "arguments": {}})]
    )
    for first in (True, False):
        llm.script(call, "Done.")
        client = connect()
        client.call("initialize", protocolVersion=1)
        session = client.call("session/new", cwd=str(workspace), mcpServers=[server])["sessionId"]
        assert client.prompt(session, "use it") == "end_turn"
        asked = [question["toolCall"]["content"][0]["content"]["text"] for question in client.questions]
        assert [text.startswith("Start many (`") for text in asked] == [first], asked
        assert asked[0].endswith("and call tool_000?") or not first
        assert client.of("tool_call_update")[-1]["status"] == "completed"
        client.close()


def test_commands_of_the_thread_are_rows_of_the_command_table(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("A walrus.")
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "what is it?") == "end_turn"
    offered = {
        command["name"]: command
        for command in client.of("available_commands_update")[-1]["availableCommands"]
    }
    assert set(offered) >= {command.slash for command in APP_COMMANDS if command.in_editor}
    assert (offered["tree"]["description"], offered["pin"]["input"]["hint"]) == (
        "All sessions of this conversation.",
        "TEXT|@FILE",
    )
    assert client.prompt(session, "/pin never touch it") == "end_turn"
    assert client.prompt(session, "/pins") == "end_turn" and "1. never touch it" in client.text
    assert client.prompt(session, "/search walrus") == "end_turn" and "- assistant: " in client.text
    assert len(llm.requests) == 1


def test_the_context_is_edited_by_a_command_of_the_thread(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("A walrus named hush-4711.", "Yes.", "And so on.")
    client = connect()
    session = client.open(workspace)
    assert client.prompt(session, "what is it?") == "end_turn"
    assert client.prompt(session, "/context") == "end_turn"
    named = re.search(r"A walrus named hush-4711\. (\w{12})", client.text)
    assert named is not None, client.text
    assert client.prompt(session, f"/context drop {named[1]}") == "end_turn"
    assert "1 message dropped" in client.text
    assert client.prompt(session, "/context") == "end_turn"
    assert re.search(rf"hush-4711\. {named[1]} dropped", client.text)
    assert client.prompt(session, "go on") == "end_turn"
    assert "walrus" not in str(llm.requests[-1].body["messages"])
    assert client.prompt(session, f"/context restore {named[1]} --also") == "end_turn"
    assert client.prompt(session, "go on") == "end_turn"
    assert "walrus" in str(llm.requests[-1].body["messages"])
    assert client.prompt(session, "/context forget it") == "end_turn"
    assert "'forget it' is no edit of the context" in client.text
    assert client.prompt(session, "/context drop nosuch") == "end_turn"
    assert "there is no message 'nosuch'" in client.text


def test_rules_are_ended_and_dropped_messages_marked_by_commands_of_the_thread(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.always("A walrus.")
    client = connect()
    session = client.open(workspace)

    def answer(prompt: str) -> str:
        before = len(client.text)
        assert client.prompt(session, prompt) == "end_turn"
        return client.text[before:]

    answer("Use port 8443. Look at the walrus.")
    answer("Use port 9000.")
    assert answer("/rules") == "1. Use port 8443.\n2. Use port 9000. (replaces 1?)"
    assert answer("/rules drop 1").endswith("Withdrew: Use port 8443.")
    assert answer("/rules") == "2. Use port 9000."
    assert "there is no standing rule 1; there are: 2" in answer("/rules drop 1")
    named = re.search(r"Look at the walrus\. (\w{12})", answer("/context"))
    assert named is not None
    answer(f"/context drop {named[1]}")
    [found] = [line for line in answer("/search walrus").splitlines() if line.startswith("- user: ")]
    assert found.endswith(" (dropped)")


def test_rules_in_an_editor_lists_the_sentences_of_an_imported_session(
    connect: Connect, cli: Cli, tmp_path: Path, workspace: Path
) -> None:
    file = foreign.write_claude(tmp_path / "user")
    text = file.read_text().replace(foreign.PROMPT, f"Never push to main. {foreign.PROMPT}")
    file.write_text(text.replace("/work/app", str(workspace)))
    [told] = json.loads(cli("sessions", "import", "claude", "--json").stdout)["conversations"]
    client = connect()
    client.call("initialize", protocolVersion=1, clientCapabilities={})
    client.call("session/load", sessionId=told["tip"], cwd=str(workspace), mcpServers=[])
    assert client.prompt(told["tip"], "/rules") == "end_turn"
    offer = "1 sentence of the imported session looks like a rule; /rules TEXT adds one:"
    assert client.text.endswith(f"{offer}\n- Never push to main.")


def test_a_rule_that_is_found_is_told_as_a_notice_and_as_data(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Fine.")
    client = connect()
    session = client.open(workspace, session={"notices": {}})
    assert client.prompt(session, "Never push to main.") == "end_turn"
    [told] = [update["_meta"]["crushpy"] for update in client.of("session_info_update") if "_meta" in update]
    assert told["rule"]["text"] == "Never push to main." and told["rule"]["action"] == "found"
    assert "Taken as a rule: Never push to main." in [notice["title"] for notice in client.of("notice")]


def test_hindsight_of_a_compaction_is_told_as_data(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("I know compute_tax.", "Fine.", "Goal: go on.")
    client = connect()
    session = client.open(workspace)
    for prompt in ("begin " + "words " * 300, "more " + "words " * 300, "/compact"):
        assert client.prompt(session, prompt) == "end_turn"
    steps = (Reply(calls=[Call("ls", {"path": f"folder{number}"})]) for number in range(20))
    llm.script(*steps, "Done with compute_tax.")
    assert client.prompt(session, "go on") == "end_turn"
    [told] = [update["_meta"]["crushpy"] for update in client.of("session_info_update") if "_meta" in update]
    assert told["hindsight"]["final"] is False and "needed" in told["hindsight"]
