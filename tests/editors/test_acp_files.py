"""Files that an editor serves: what is not saved yet, and what it refuses; and forks of a session."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.acp_client import AcpClient, Connect, Json

BOTH = {"fs": {"readTextFile": True, "writeTextFile": True}}
VIEW = Reply(calls=[Call("view", {"file_path": "a.txt"})])
EDIT = Reply(calls=[Call("edit", {"file_path": "a.txt", "old_string": "draft", "new_string": "final"})])


def results(llm: ScriptedLLM) -> list[str]:
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"]


def serve(client: AcpClient, buffers: dict[str, str]) -> None:
    """An editor with these texts, which saves what it is given."""

    def answer(method: str, params: Json) -> Json:
        path = params["path"]
        if method == "fs/write_text_file":
            buffers[path] = params["content"]
            Path(path).write_text(params["content"])
            return {"result": {}}
        text = buffers[path] if path in buffers else Path(path).read_text()
        return {"result": {"content": text}}

    client.serve = answer


def test_unsaved_editor_buffer_is_read_edited_and_undone(
    connect: Connect, llm: ScriptedLLM, workspace: Path, cli: Any
) -> None:
    file = workspace / "a.txt"
    file.write_text("saved\n")
    buffers = {str(file): "saved\ndraft\n"}
    client = connect()
    serve(client, buffers)
    llm.script(VIEW, EDIT, "Done.")
    session = client.open(workspace, **BOTH)
    assert client.prompt(session, "edit it") == "end_turn"
    assert "2\tdraft" in results(llm)[0] and buffers[str(file)] == file.read_text() == "saved\nfinal\n"
    assert client.files[-1] == ("fs/write_text_file", str(file))
    client.close()
    shown = json.loads(cli("sessions", "show", "latest", "--json").stdout)
    asked = next(message["id"] for message in shown["messages"] if message["role"] == "user")
    assert cli("sessions", "rewind", "latest", "--to", asked, "--files", "--yes").returncode == 0
    assert file.read_text() == "saved\n"


@pytest.mark.parametrize("answer", [{"error": {"code": -32000, "message": "no such buffer"}}, {"result": 5}])
def test_an_error_of_the_editor_is_an_error(
    connect: Connect, llm: ScriptedLLM, workspace: Path, answer: Json
) -> None:
    (workspace / "a.txt").write_text("on disk\n")
    client = connect()
    client.serve = lambda _method, _params: answer
    llm.script(VIEW, "Done.")
    assert client.prompt(client.open(workspace, **BOTH), "look") == "end_turn"
    (text,) = results(llm)
    assert ("no such buffer" in text or "answer is invalid" in text) and "on disk" not in text


def test_an_editor_that_does_not_save_is_noticed(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.txt").write_text("draft\n")
    client = connect()
    client.serve = lambda method, _: {"result": {"content": "draft\n"} if "read" in method else {}}
    llm.script(VIEW, EDIT, "Done.")
    assert client.prompt(client.open(workspace, **BOTH), "edit it") == "end_turn"
    assert "has not saved it" in results(llm)[1] and (workspace / "a.txt").read_text() == "draft\n"


def test_an_editor_that_never_answers_can_be_cancelled(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("text\n")
    llm.script(VIEW, "Going on.")
    client = connect()
    session = client.open(workspace, **BOTH)
    turn = client.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "look"}])
    while not client.files:
        client.read()
    client.send({"method": "session/cancel", "params": {"sessionId": session}})
    assert client.wait(turn)["result"]["stopReason"] == "cancelled"
    assert client.prompt(session, "and now?") == "end_turn"


def test_links_other_folders_and_other_encodings_are_read_from_disk(
    connect: Connect, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text("outside\n")
    (workspace / "real.txt").write_text("real\n")
    (workspace / "link.txt").symlink_to("real.txt")
    (workspace / "wide.txt").write_bytes("wide\n".encode("utf-16"))
    names = ["link.txt", "wide.txt", str(tmp_path / "outside.txt")]
    client = connect()
    llm.script(Reply(calls=[Call("view", {"file_path": name}) for name in names]), "Done.")
    assert client.prompt(client.open(workspace, **BOTH), "look") == "end_turn"
    assert [word in text for word, text in zip(("real", "wide", "outside"), results(llm), strict=True)]
    assert not client.files


def test_editor_is_not_asked_for_files_without_the_capability(
    connect: Connect, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("on disk\n")
    client = connect()
    llm.script(VIEW, "Done.")
    assert client.prompt(client.open(workspace), "look") == "end_turn"
    assert "on disk" in results(llm)[0] and not client.files


def test_a_fork_goes_on_alone(connect: Connect, llm: ScriptedLLM, workspace: Path) -> None:
    client = connect()
    session = client.open(workspace)
    llm.script("One.", "Two of the fork.", "Two of the first.")
    assert client.prompt(session, "first") == "end_turn"
    fork = client.call("session/fork", sessionId=session, cwd=str(workspace), mcpServers=[])["sessionId"]
    assert fork != session
    assert client.prompt(fork, "in the fork") == "end_turn"
    assert client.prompt(session, "in the first") == "end_turn"
    assert "in the fork" not in str(llm.requests[-1].body["messages"])
    client.close()
    for opened, words in ((fork, "Two of the fork."), (session, "Two of the first.")):
        again = connect()
        again.call("initialize", protocolVersion=1, clientCapabilities={})
        again.call("session/load", sessionId=opened, cwd=str(workspace), mcpServers=[])
        assert again.text.endswith(words) and "One." in again.text
        again.close()


def test_hostile_editor_reaches_nothing_and_ends_nothing(
    connect: Connect, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    """Answers that were not asked for, a buffer of 30 MB, and messages out of order."""
    (workspace / "a.txt").write_text("on disk\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    client = connect()
    client.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "none yet"}}')
    session = client.open(workspace, **BOTH)
    buffer = "first\n" + "x" * 30_000_000
    client.serve = lambda method, params: {"result": {"content": buffer}}
    for number in (0, -1, 9_999, "x"):
        client.send(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"outcome": "selected"}}).encode())
    asked = [Call("view", {"file_path": "a.txt"}), Call("view", {"file_path": str(tmp_path / "outside.txt")})]
    llm.script(Reply(calls=asked), "Done.", "Still here.")
    client.decide = lambda question: next(
        each["optionId"] for each in question["options"] if each["kind"].startswith("reject")
    )
    assert client.prompt(session, "look") == "end_turn"
    inside, outside = results(llm)
    assert len(inside) < 100_000 and "outside\n" not in outside
    assert client.prompt(session, "and now?") == "end_turn"
