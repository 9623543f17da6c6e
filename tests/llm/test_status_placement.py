"""Where the context status ends up in what providers really receive: through our wire and through litellm's
own request transformations."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Fail
from scripted_llm.server import ScriptedLLM
from support.talk import Talks

from crushpy.core.messages import Message, Text, ToolCall, ToolResult
from crushpy.llm.openai.chat_request import chat_messages, chat_tools, litellm_dialect
from crushpy.llm.protocol import Request, ToolSpec
from crushpy.llm.provider_factory import chosen_placement, usual_placement
from crushpy.settings.schema import Compaction, ModelSettings, ProviderSettings, Settings

STATUS = '<context_status>{"used_pct":50,"remaining_tokens":100000,"context_window":200000}</context_status>'
MODELS = [
    "openai/gpt-4o",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
]


def request(model: str, *, after_tool: bool) -> Request:
    call = ToolCall("c1", "ls", {})
    messages = [Message("1", "user", (Text("hi"),))]
    if after_tool:
        messages += [
            Message("2", "assistant", (call,), model=model),
            Message("3", "tool", (ToolResult("c1", "ls", "RESULT"),)),
        ]
    return Request(
        model=model,
        system="SYSTEM",
        messages=tuple(messages),
        tools=(ToolSpec("ls", "lists", {"type": "object", "properties": {}}),),
        status=STATUS,
        status_placement=usual_placement(model, Settings()),
    )


def received(sent: Request, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The body that litellm would post to the provider."""
    for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "test")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION_NAME"):
        monkeypatch.setenv(name, "us-east-1")
    from crushpy.llm.litellm.helper import import_litellm

    import_litellm()
    from litellm.types.utils import CallTypes
    from litellm.utils import return_raw_request

    dialect = litellm_dialect(sent.model)
    given = {
        "model": sent.model,
        "messages": chat_messages(sent, dialect),
        "tools": chat_tools(sent, dialect),
    }
    return return_raw_request(CallTypes.completion, given)["raw_request_body"]


@pytest.mark.xdist_group("litellm")
@pytest.mark.parametrize("after_tool", [False, True], ids=["after a prompt", "after a tool"])
@pytest.mark.parametrize("model", MODELS)
def test_each_provider_gets_the_status_once_and_last(
    model: str, after_tool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = received(request(model, after_tool=after_tool), monkeypatch)
    text = json.dumps(body, ensure_ascii=False).replace('\\"', '"')
    assert text.count("<context_status>") == 1
    before = "RESULT" if after_tool else "hi"
    if "prompt" in body:
        assert body["prompt"].rstrip().endswith(STATUS)
        return
    last = body.get("contents", body.get("messages"))[-1]
    shown = json.dumps(last).replace('\\"', '"')
    if model.startswith("openai/"):
        assert last == {"role": "system", "content": STATUS}
    else:
        assert before in shown and shown.index(before) < shown.index(STATUS), (
            "in the text of the last message"
        )
        assert "Operator note" not in text


@pytest.mark.xdist_group("litellm")
def test_status_for_claude_is_inside_the_last_tool_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = received(request("anthropic/claude-sonnet-4-5", after_tool=True), monkeypatch)
    (result,) = body["messages"][-1]["content"]
    assert result["type"] == "tool_result"
    assert STATUS in json.dumps(result).replace('\\"', '"')
    assert "cache_control" not in json.dumps(body["messages"][-1])
    assert "cache_control" in json.dumps(body["system"])


def test_status_placement_prefers_setting_then_learnt() -> None:
    assert chosen_placement("openai/x", Settings()) == ""
    assert usual_placement("openai/x", Settings()) == "message"
    assert usual_placement("anthropic/x", Settings()) == "append"
    assert usual_placement("openrouter/anthropic/x", Settings()) == "append"
    assert usual_placement("openrouter/qwen/x", Settings()) == "message"
    chosen = Settings(compaction=Compaction(status_placement="message"))
    assert chosen_placement("anthropic/x", chosen) == "message"
    learnt = Settings(models={"openai/x": ModelSettings(status_placement="append")})
    assert chosen_placement("openai/x", learnt) == "append"
    own = Settings(providers={"mine": ProviderSettings(api_base="http://127.0.0.1:1/v1")})
    assert usual_placement("mine/x", own) == "message"


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        *((name, "message") for name in ("auto", "chat", "responses", "litellm")),
        *((name, "append") for name in ("anthropic", "gemini")),
    ],
)
def test_the_protocol_decides_about_the_form_and_the_address_does_not(protocol: Any, expected: str) -> None:
    gateway = ProviderSettings(api_base="http://127.0.0.1:1/v1", protocol=protocol)
    assert usual_placement("mine/x", Settings(providers={"mine": gateway})) == expected


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
def test_a_gateway_gets_the_form_of_the_vendor_it_stands_for(vendor: str) -> None:
    gateway = Settings(providers={vendor: ProviderSettings(api_base="http://127.0.0.1:1")})
    assert usual_placement(f"{vendor}/x", gateway) == "append"
    plain = Settings(providers={vendor: ProviderSettings(api_base="http://127.0.0.1:1", protocol="chat")})
    assert usual_placement(f"{vendor}/x", plain) == "message"


@pytest.mark.parametrize(
    "refusal",
    [
        Fail(400, message="System message must be at the beginning."),
        Fail(500, message="Jinja Exception: Conversation roles must alternate"),
    ],
)
async def test_a_server_that_refuses_a_trailing_system_message_is_remembered_for_good(
    talks: Talks, llm: ScriptedLLM, home: Path, refusal: Fail
) -> None:
    llm.script(refusal, "fine", "again")
    talk = await talks(flags={"compaction.method": "llm"})
    assert await talk.ask("hi") == "done"
    first, second = llm.requests
    assert first.body["messages"][-1]["role"] == "system"
    assert second.body["messages"][-1]["role"] == "user"
    assert second.body["messages"][-1]["content"].startswith("hi")
    assert second.body["messages"][-1]["content"].endswith("</context_status>")
    await talk.close()  # what was learnt is on disk
    assert '"status_placement": "append"' in (home / "learnt.json").read_text()
    fresh = await talks(flags={"compaction.method": "llm"})
    await fresh.ask("hello")
    assert llm.requests[-1].body["messages"][-1]["role"] == "user"
