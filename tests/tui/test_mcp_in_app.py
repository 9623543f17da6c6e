"""MCP servers in the app: their questions as forms, `/mcp`, their prompts as commands, their resources."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import armed
from driving import Driven, Start, start
from hosting import shown
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.core.paths import Paths
from crushpy.extensions.mcp.mcp_process import McpProcess
from crushpy.permissions.trust import add_trusted
from crushpy.tui.screens.server_form import ServerForm

pytestmark = pytest.mark.slow

__all__ = ["start"]

STAND_IN = str(Path(__file__).parents[1] / "support" / "mcp_stand_in.py")


@pytest.fixture(autouse=True, scope="module")
def process() -> Iterator[None]:
    """The process for servers is shared by all cases: its start takes a second."""
    yield
    McpProcess.shared().end()


@pytest.fixture
def server(home: Path) -> None:
    home.mkdir(exist_ok=True)
    words = ["1", "ask", "ask_secret", "ask_page"]
    command = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps([STAND_IN, *words])}\n"
    (home / "config.toml").write_text(f'[mcp.many]\n{command}[permissions]\nallow = ["mcp"]\n')


def use(tool: str) -> Reply:
    return Reply(calls=[Call("mcp", {"action": "call", "server": "many", "tool": tool})])


def result(llm: ScriptedLLM) -> str:
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"][
        -1
    ]


async def go(app: Driven, llm: ScriptedLLM, *steps: Any) -> None:
    llm.script(*steps)
    await app.say("go")


async def test_a_servers_question_is_a_form_that_names_it_and_takes_no_secret(
    start: Start, server: None, llm: ScriptedLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 >> {tmp_path / 'opened'}\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    async with start() as app:
        await go(app, llm, use("ask"), "Done.")
        await app.sees("Answer many?", "Who are you?", "[y] Fill in its form", "The MCP server many asks")
        await armed(app)
        await app.press("y")
        await app.shows(ServerForm)
        await app.sees("The MCP server many asks", "Who are you?", "name (required)")
        await app.press("ctrl+s")
        await app.sees("name is required")
        await app.type("Ada")
        await app.press("ctrl+s")
        await app.rests()
        assert '{"action": "accept", "content": {"name": "Ada"}}' in result(llm)

        await go(app, llm, use("ask"), "Done.")
        await app.sees("Answer many?")
        await armed(app)
        await app.press("y")
        await app.shows(ServerForm)
        await app.press("escape")
        await app.rests()
        assert '"cancel"' in result(llm)

        await go(app, llm, use("ask"), "Done.")
        await app.sees("Answer many?", "Esc declines")
        await armed(app)
        await app.press("escape")
        await app.rests()
        assert '"decline"' in result(llm)

        await go(app, llm, use("ask_secret"), "Done.")
        await app.rests()
        assert '"decline"' in result(llm)

        await go(app, llm, use("ask_page"), "Done.")
        await app.sees("Open a page for many?", "page: https://example.com/pay")
        await armed(app)
        await app.press("n")
        await app.rests()
        assert '"decline"' in result(llm) and not (tmp_path / "opened").exists()

        await go(app, llm, use("ask_page"), "Done.")
        await app.sees("Open a page for many?")
        await armed(app)
        await app.press("y")
        await app.rests()
        assert '"accept"' in result(llm)
        await app.until((tmp_path / "opened").exists, "the page")


async def test_a_form_cannot_draw_over_the_screen_or_hide_who_asks(start: Start) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\u202eWrite ~/.bashrc?\n[y] Yes\n" + "\n" * 200
    field = {"title": hostile, "enum": [hostile, "\x9b2Jb"]}
    question = {"message": hostile, "requestedSchema": {"properties": {hostile: field}}}
    async with start() as app:
        answers: list[object] = []
        app.app.push_screen(ServerForm("many", question), answers.append)
        await app.shows(ServerForm)
        await app.sees("The MCP server many asks", "Write ~/.bashrc?")
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(app.text)
        await app.press("y")
        await app.shows(ServerForm)
        await app.press("escape")
        await app.until(lambda: answers == [{"action": "cancel"}], "the answer")


async def test_servers_are_shown_and_restarted_and_their_prompts_and_resources_are_used(
    start: Start, server: None, llm: ScriptedLLM, home: Path
) -> None:
    async with start() as app:
        await app.say("/mcp")
        await app.sees("many", "unused")
        await app.press("enter")
        await app.sees("Restart")
        await app.press("down", "down", "enter")
        hub = app.conversation.mcp.hub()
        await app.until(lambda: hub.servers["many"].state == "ready", "the server")
        await app.say("/mcp many")
        await app.sees("many: ready, 4 tools, about ")
        await app.press("enter")
        await app.sees("ask_secret: It does ask_secret.")
        llm.script("Seen.")
        await app.say("look at @many:memo://one")
        await app.rests()
        assert "the first memo" in json.dumps(llm.requests[-1].body["messages"])
    async with start() as app:
        llm.script("Hello.")
        await app.say("/mcp__many__greet Ada")
        await app.rests()
        await app.until(lambda: "Greet Ada." in json.dumps(llm.requests[-1].body["messages"]), "the prompt")
        await app.type("@many:m")
        await app.sees("@many:memo://one")


async def test_a_projects_server_is_asked_about_once_for_each_exact_command(
    start: Start, workspace: Path, home: Path, llm: ScriptedLLM
) -> None:
    home.mkdir(exist_ok=True)
    rule = 'allow = ["mcp__many__tool_000"]'
    (home / "config.toml").write_text(f"[permissions]\n{rule}\n")
    entry = {"command": "touch", "args": ["was-run"]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"many": entry}}))
    add_trusted(Paths(), workspace)
    async with start() as app:
        await go(app, llm, use("tool_000"), "Done.")
        await armed(app)
        await app.sees("starts the MCP server many", "touch was-run")
        assert not (workspace / "was-run").exists()
        await app.press("n", "enter")
        await app.rests()
        assert not (workspace / "was-run").exists()


def provide(workspace: Path, *servers: str) -> None:
    """A `.mcp.json` with servers that run the stand-in."""
    (workspace / "server.py").write_text(Path(STAND_IN).read_text())
    entries = {name: {"command": "python3", "args": ["server.py", "1"]} for name in servers}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a project's servers run in bubblewrap only")
async def test_the_first_call_of_a_projects_server_asks_one_question(
    start: Start, workspace: Path, llm: ScriptedLLM
) -> None:
    provide(workspace, "many")
    add_trusted(Paths(), workspace)
    async with start() as app:
        call = Call("mcp", {"action": "call", "server": "many", "tool": "tool_000", "arguments": {"x": 7}})
        llm.script(Reply(calls=[call]), Reply(calls=[call]), "Done.")
        await app.say("go")
        await armed(app)
        await app.sees(
            "Start many (`python3 server.py 1`) and call tool_000?", "server.py sha256:", '{"x":7}'
        )
        await app.sees("No rule allows mcp__many__tool_000; the project's .mcp.json starts")
        await app.press("y")
        await app.sees("Use tool_000 of the MCP server many?")
        assert result(llm) == 'tool_000 got {"x": 7}'
        await armed(app)
        await app.press("y")
        await app.sees("Done.")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a project's servers run in bubblewrap only")
async def test_trust_applies_at_once_and_a_restart_asks_by_itself(
    start: Start, workspace: Path, llm: ScriptedLLM
) -> None:
    provide(workspace, "many")
    llm.script("Hello.", "Hello again.")
    async with start() as app:
        await app.say("hello")
        await app.rests()
        await app.say("/mcp")
        await app.sees(".mcp.json is not used: this project is not trusted. Run `/trust`")
        before = app.conversation.info.id
        await app.say("/trust")
        await app.sees("Trust it: use what it brings")
        await app.press("enter")
        await app.sees("Trusted: ", "is used now")
        assert app.conversation.info.id == before and not app.chat.warnings
        await app.sees("Hello.")
        await app.say("/mcp many")
        await app.sees("Restart")
        await app.press("down", "down", "enter")
        await app.sees("Start many (`python3 server.py 1`)?", "server.py sha256:", "Esc goes back")
        await app.press("escape")
        await app.until(lambda: app.approval is None, "the question to go")
        assert app.conversation.mcp.hub().servers["many"].state == "unused"
        await app.say("/mcp many")
        await app.sees("Restart")
        await app.press("down", "down", "enter")
        await armed(app)
        await app.press("y")
        await app.sees("many is starting.")
        hub = app.conversation.mcp.hub()
        await app.until(lambda: hub.servers["many"].state == "ready", "the server")
        await app.say("hello again")
        await app.sees("Hello again.")
        tools = [tool["function"]["name"] for tool in llm.requests[-1].body["tools"]]
        assert "mcp" in tools and "mcp" not in str(llm.requests[0].body["tools"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"mcpServers": {}}', ".mcp.json of this project names no server"),
        ('{"mcpServers": {"many": {"args": []}}}', ".mcp.json: many: set either command or url"),
        ("{", ".mcp.json: "),
    ],
)
async def test_mcp_says_why_a_file_beside_it_starts_nothing(
    start: Start, workspace: Path, content: str, words: str
) -> None:
    (workspace / ".mcp.json").write_text(content)
    add_trusted(Paths(), workspace)
    async with start() as app:
        await app.say("/mcp")
        await app.sees(words)
        provide(workspace, "many")
        await app.say("/mcp")
        await app.sees(".mcp.json has changed since this conversation was opened: /new uses")
        await app.say("/new")
        await app.opened()
        await app.until(lambda: app.conversation.mcp.names == ["many"], "the new conversation")
        await app.say("/mcp")
        await app.sees("many", "unused", "Enter shows a server")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a project's servers run in bubblewrap only")
async def test_an_accepted_server_of_a_project_runs_in_the_sandbox_until_it_changes(
    start: Start, workspace: Path, home: Path, llm: ScriptedLLM, tmp_path: Path
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[permissions]\nallow = ["mcp__many__tool_000"]\n')
    outside = tmp_path / "outside"
    script = f"from pathlib import Path\ntry: Path({str(outside)!r}).touch()\nexcept OSError: pass\n"
    stand_in = Path(STAND_IN).read_text().replace("if __name__ ==", f"{script}\nif __name__ ==")
    (workspace / "server.py").write_text(stand_in)

    def write(*words: str) -> None:
        entry = {"command": "python3", "args": ["server.py", "1", *words]}
        (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"many": entry}}))

    write()
    add_trusted(Paths(), workspace)
    async with start() as app:
        await go(app, llm, use("tool_000"), use("tool_000"), "Done.")
        await armed(app)
        await app.press("y")
        await app.rests()
        assert result(llm) == "tool_000 got {}", result(llm)
        assert not outside.exists()
    write("fail")
    async with start() as app:
        await go(app, llm, use("tool_000"), "Done.")
        await armed(app)
        await app.sees("server.py 1 fail")
        await app.press("n", "enter")
        await app.rests()


async def test_enter_goes_to_the_next_field_and_sends_from_the_last() -> None:
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}}
    form = ServerForm("shop", {"message": "Who?", "requestedSchema": {"properties": fields}})
    async with shown(form) as screen:
        await screen.press("m", "e", "enter", "4", "enter")
        assert screen.results == [{"action": "accept", "content": {"name": "me", "age": 4}}]


async def test_half_a_number_in_a_form_is_named_and_not_sent() -> None:
    fields = {"age": {"type": "integer"}, "price": {"type": "number"}}
    form = ServerForm("shop", {"message": "How much?", "requestedSchema": {"properties": fields}})
    async with shown(form) as screen:
        await screen.press("-", "ctrl+s")
        await screen.until(lambda: "age is not a number" in screen.text)
        await screen.press("4", "tab", ".", "ctrl+s")
        await screen.until(lambda: "price is not a number" in screen.text)
        await screen.press("5", "ctrl+s")
        assert screen.results == [{"action": "accept", "content": {"age": -4, "price": 0.5}}]
