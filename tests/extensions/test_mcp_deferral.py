"""Tools that are too many to be offered: the vendor's own tool search finds them where there is one."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Fail, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks

from crushpy.core.events import BoundaryCommitted, ToolFinished
from crushpy.extensions.mcp.mcp_process import McpProcess

pytestmark = pytest.mark.slow

STAND_IN = str(Path(__file__).parents[1] / "support" / "mcp_stand_in.py")
TOOL = "mcp__many__tool_057"
SEARCHING = {"anthropic": "lab/claude-sonnet-5-5", "responses": "lab/gpt-5.4"}
CALL = Reply(thinking="Which?", found=TOOL, calls=[Call(TOOL, {"x": 1})])


@pytest.fixture(autouse=True, scope="module")
def process() -> Iterator[None]:
    yield
    McpProcess.shared().end()


async def known(talks: Talks, llm: ScriptedLLM, protocol: str, model: str) -> Talk:
    """A conversation with a server of 100 tools that was used before."""
    flags: dict[str, object] = {
        "model": model,
        "mcp.many.command": sys.executable,
        "mcp.many.args": [STAND_IN, "100"],
        f'models."{model}".context_window': 40_000,
        "providers.lab.api_base": llm.url if protocol == "anthropic" else llm.api_base,
        "providers.lab.api_key_env": "LAB_KEY",
        "providers.lab.protocol": protocol,
    }
    first = await talks(flags=flags, yolo=True)
    llm.script(Reply(calls=[Call("mcp", {"action": "search", "query": "tool"})]), "Seen.")
    await first.ask("look")
    assert not deferred(llm.requests[-1].body)  # nothing changes in a session
    llm.requests.clear()
    return await talks(flags=flags, yolo=True)


def deferred(body: dict[str, Any]) -> list[str]:
    tools = [*body["tools"], *(tool for group in body["tools"] for tool in group.get("tools", ()))]
    return [tool["name"] for tool in tools if tool.get("defer_loading")]


def sent_back(body: dict[str, Any]) -> list[dict[str, Any]]:
    """What the request says of the vendor's search."""
    if "input" in body:
        return [item for item in body["input"] if item.get("type", "").startswith("tool_search")]
    blocks = [
        block
        for message in body["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    return [block for block in blocks if block["type"] in ("server_tool_use", "tool_search_tool_result")]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "test-key")


@pytest.mark.parametrize("protocol", SEARCHING)
async def test_deferred_tools_are_searched_called_and_sent_back(
    talks: Talks, llm: ScriptedLLM, protocol: str
) -> None:
    talk = await known(talks, llm, protocol, SEARCHING[protocol])
    llm.script(CALL, "Done.", "Again.")
    await talk.ask("go")
    await talk.ask("and now?")
    bodies = [request.body for request in llm.requests]
    for body in bodies:
        assert len(deferred(body)) == 100 and TOOL in deferred(body)
        assert body["tools"] == bodies[0]["tools"]
    [finished] = talk.of(ToolFinished)
    assert not finished.is_error and finished.name == TOOL
    assert not sent_back(bodies[0])
    assert [block["type"] for block in sent_back(bodies[1])] == (
        ["server_tool_use", "tool_search_tool_result"]
        if protocol == "anthropic"
        else ["tool_search_call", "tool_search_output"]
    )
    assert sent_back(bodies[2]) == sent_back(bodies[1])
    if protocol == "anthropic":
        assert sent_back(bodies[1])[0]["input"] == {"query": "x"}
        marked = [tool["name"] for tool in bodies[0]["tools"] if "cache_control" in tool]
        assert len(marked) == 1 and marked[0] not in deferred(bodies[0])
        assert any(block["type"] == "thinking" for block in bodies[2]["messages"][1]["content"])
    else:
        [call] = [item for item in bodies[1]["input"] if item.get("type") == "function_call"]
        assert call["namespace"] == "many" and call["name"] == TOOL


@pytest.mark.parametrize("protocol", SEARCHING)
async def test_they_are_not_counted_and_a_boundary_carries_the_name_of_the_tool(
    talks: Talks, llm: ScriptedLLM, protocol: str
) -> None:
    talk = await known(talks, llm, protocol, SEARCHING[protocol])
    llm.script(CALL, "Done.", "A summary.", "Again.")
    await talk.ask("go")
    rows = talk.conversation.context.inspect().rows
    assert not [row for row in rows if row.kind == "tool" and row.name.startswith("mcp__")]
    await talk.conversation.context.compact()
    assert talk.of(BoundaryCommitted)
    await talk.ask("and now?")
    last = llm.requests[-1].body
    assert TOOL in json.dumps(last["messages"] if "messages" in last else last["input"])
    assert not sent_back(last) and len(deferred(last)) == 100


@pytest.mark.parametrize("protocol", SEARCHING)
async def test_a_server_that_refuses_them_gets_the_one_tool_for_all(
    talks: Talks, llm: ScriptedLLM, protocol: str
) -> None:
    talk = await known(talks, llm, protocol, SEARCHING[protocol])
    call = {"action": "call", "server": "many", "tool": "tool_057", "arguments": {"x": 1}}
    refusal = Fail(400, message="tools.9: defer_loading is not supported")
    llm.script(refusal, Reply(calls=[Call("mcp", call)]), "Done.")
    await talk.ask("go")
    assert [len(deferred(request.body)) for request in llm.requests] == [100, 0, 0]
    assert not talk.of(ToolFinished)[0].is_error


@pytest.mark.parametrize(
    ("protocol", "model"),
    [("chat", "lab/test-model"), ("anthropic", "lab/claude-3-5-haiku"), ("responses", "lab/gpt-5.2")],
)
async def test_tool_search_is_offered_only_to_supporting_vendors(
    talks: Talks, llm: ScriptedLLM, protocol: str, model: str
) -> None:
    talk = await known(talks, llm, protocol, model)
    llm.script("Done.")
    await talk.ask("go")
    assert "defer_loading" not in json.dumps(llm.requests[0].body)
    assert "mcp__many" not in json.dumps(llm.requests[0].body)
