"""What is Anthropic's own: thinking and its signatures, paused turns, what a server refuses, addresses."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversing import ask, hear, user
from scripted_llm import Call, Fail, Raw, Reply, ScriptedLLM

from crushpy.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.llm.anthropic.provider import AnthropicProvider
from crushpy.llm.anthropic.reply import MessageReader
from crushpy.llm.anthropic.request import AnthropicQuirks, is_adaptive, messages_body
from crushpy.llm.errors import BadRequest, Refused
from crushpy.llm.protocol import Request, ThinkingOpaque
from crushpy.llm.vendors import Endpoint

CLAUDE = "anthropic/claude-sonnet-4-5"
NEWER = "anthropic/claude-opus-4-6"
SIGNED = {"type": "thinking", "thinking": "hm, let me see", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgB"}


@pytest.fixture
async def claude(llm: ScriptedLLM) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider(Endpoint("", "anthropic", llm.url, "key"))
    yield provider
    await provider.close()


def looked(model: str = CLAUDE, *opaque: dict[str, Any]) -> list[Message]:
    thoughts = Thinking("hm, let me see", opaque or (SIGNED,))
    parts = (thoughts, Text("I look."), ToolCall("call_1", "ls", {"path": "."}))
    return [
        user("look"),
        Message(id="a", role="assistant", model=model, parts=parts),
        Message(id="r", role="tool", parts=(ToolResult("call_1", "ls", "a.txt"),)),
    ]


def body(request: Request, model: str = "claude-sonnet-4-5") -> dict[str, Any]:
    return messages_body(request, model, AnthropicQuirks(), [])


# --- thinking


async def test_signed_thinking_comes_out_whole_and_goes_back_byte_for_byte(claude, llm) -> None:
    llm.script(Reply(thinking="hm, let me see", signature="c2lnbmVk", calls=[Call("ls", {})], chunk=5), "ok")
    heard = await hear(claude, ask(model=CLAUDE))
    assert (heard.thinking, heard.opaque) == ("hm, let me see", [SIGNED])
    await hear(claude, ask(model=CLAUDE, messages=looked(CLAUDE, SIGNED, HIDDEN)))
    blocks = llm.requests[1].messages[1]["content"]
    assert blocks[:2] == [SIGNED, HIDDEN]
    assert [block["type"] for block in blocks[2:]] == ["text", "tool_use"]


def test_thinking_between_text_and_calls_goes_back_to_its_place() -> None:
    reader, pieces = MessageReader(CLAUDE), []
    whole = [SIGNED, {"type": "text", "text": "One."}, {**SIGNED, "signature": "b"}]
    whole += [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"a": 1}}, HIDDEN]
    whole += [{"type": "tool_use", "id": "c2", "name": "ls", "input": {}}]
    pieces = reader.read_whole({"content": whole, "stop_reason": "tool_use"}) or []
    opaque = tuple(piece.data for piece in pieces if isinstance(piece, ThinkingOpaque))
    calls = (ToolCall("c1", "ls", {"a": 1}), ToolCall("c2", "ls"))
    reply = Message("a", "assistant", (Thinking("", opaque), Text("One."), *calls), model=CLAUDE)
    assert body(ask(model=CLAUDE, messages=[user("hi"), reply]))["messages"][1]["content"] == whole


def test_thinking_is_not_sent_to_another_model() -> None:
    sent = body(ask(model=CLAUDE, messages=looked(NEWER)))
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["text", "tool_use"]


def test_thoughts_alone_are_no_turn() -> None:
    alone = Message("a", "assistant", (Thinking("hm", (SIGNED,)),), model=CLAUDE)
    sent = body(ask(model=CLAUDE, messages=[user("a"), alone, user("b")]))
    assert [message["role"] for message in sent["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("model", "decides"),
    [
        ("claude-sonnet-4-5", False),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-6", True),
        ("claude-opus-4-6-20260205", True),
        ("claude-sonnet-5", True),
        ("claude-sonnet-5-5", True),
        ("claude-mythos-preview", True),
        ("kimi-k3", False),
    ],
)
def test_adaptive_thinking_is_known_by_model(model: str, decides: bool) -> None:
    assert is_adaptive(model) is decides


def test_effort_is_a_level_for_newer_models_and_a_budget_for_older_ones() -> None:
    newer = body(ask(model=NEWER, effort="low", max_output_tokens=64_000), "claude-opus-4-6")
    assert newer["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert newer["output_config"] == {"effort": "low"}
    older = body(ask(model=CLAUDE, effort="high", max_output_tokens=64_000))
    assert older["thinking"] == {"type": "enabled", "budget_tokens": 24_576}
    assert "output_config" not in older


def test_thinking_is_adaptive_only_for_newer_models_without_an_effort() -> None:
    working = body(ask(model=NEWER, max_output_tokens=64_000), "claude-opus-4-6")
    assert working["thinking"]["type"] == "adaptive"
    assert "output_config" not in working
    title = body(ask(model=NEWER, tools=(), max_output_tokens=40), "claude-opus-4-6")
    assert "thinking" not in title
    assert "thinking" not in body(ask(model=CLAUDE, max_output_tokens=64_000))


def test_a_budget_leaves_room_for_the_answer() -> None:
    sent = body(ask(model=CLAUDE, effort="high", max_output_tokens=4_096))
    assert sent["thinking"]["budget_tokens"] == 3_072
    assert "thinking" not in body(ask(model=CLAUDE, effort="high", max_output_tokens=1_500))
    assert "thinking" not in body(ask(model=CLAUDE, effort="high"), "claude-3-5-haiku-20241022")


def test_amid_a_turn_that_began_without_thoughts_no_budget_is_asked_for() -> None:
    request = ask(model=CLAUDE, effort="high", max_output_tokens=64_000, messages=looked(NEWER))
    assert "thinking" not in body(request)
    assert "thinking" in body(ask(model=CLAUDE, effort="high", max_output_tokens=64_000, messages=looked()))
    later = [*looked(NEWER), Message("d", "assistant", (Text("There."),), model=NEWER), user("and?")]
    assert "thinking" in body(ask(model=CLAUDE, effort="high", max_output_tokens=64_000, messages=later))


async def test_thinking_between_calls_is_enabled_with_a_budget(claude, llm) -> None:
    llm.always("ok")
    await hear(claude, ask(model=CLAUDE, effort="low", max_output_tokens=9_000))
    await hear(claude, ask(model=CLAUDE))
    assert "interleaved-thinking" in llm.requests[0].headers["anthropic-beta"]
    assert "anthropic-beta" not in llm.requests[1].headers


# --- what is written


def test_marks_stand_on_tools_system_and_the_last_two_turns_and_never_on_the_status() -> None:
    sent = body(ask(model=CLAUDE, messages=looked(), status="<s>50</s>", status_placement="append"))
    mark = {"type": "ephemeral"}
    assert sent["tools"][-1]["cache_control"] == sent["system"][-1]["cache_control"] == mark
    assert sent["messages"][0]["content"][-1]["cache_control"] == mark
    [result] = sent["messages"][-1]["content"]
    assert result["content"] == [
        {"type": "text", "text": "a.txt", "cache_control": mark},
        {"type": "text", "text": "<s>50</s>"},
    ]


def test_status_is_a_block_of_its_own_after_a_prompt() -> None:
    sent = body(ask("hi", model=CLAUDE, status="<s>50</s>"))
    assert [block["text"] for block in sent["messages"][-1]["content"]] == ["hi", "<s>50</s>"]


def test_parallel_results_and_what_the_user_says_next_are_one_message() -> None:
    calls = (ToolCall("functions.ls:0", "ls"), ToolCall("b", "no such tool"))
    messages = [
        user("look"),
        Message("a", "assistant", calls, model="moonshot/kimi"),
        Message("r", "tool", (ToolResult("functions.ls:0", "ls", "", images=(Image("image/png", "aGk="),)),)),
        Message("s", "tool", (ToolResult("b", "no such tool", "nope", is_error=True),)),
        user("and?", 2),
    ]
    _, assistant, results = body(ask(model=CLAUDE, messages=messages))["messages"]
    assert [block["id"] for block in assistant["content"]] == ["functions_ls_0", "b"]
    assert assistant["content"][1]["name"] == "no_such_tool"
    first, second, words = results["content"]
    assert first["tool_use_id"] == "functions_ls_0"
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert first["content"][0]["text"].strip()
    assert second["is_error"] is True
    assert words["text"] == "and?"


# --- the end of a turn


async def test_a_paused_turn_goes_on_where_it_was_and_is_one_reply(claude, llm) -> None:
    llm.script(
        Reply(thinking="hm", text="Half ", finish="pause_turn", usage=Usage(1_000_000, 10)),
        Reply(text="whole.", calls=[Call("ls", {})], usage=Usage(500, 30, cache_read_tokens=1_000_000)),
    )
    heard = await hear(claude, ask(model=CLAUDE))
    assert (heard.text, len(heard.calls), heard.done.finish) == ("Half whole.", 1, "tool_calls")
    sent_back = llm.requests[1].messages[-1]
    assert sent_back["role"] == "assistant"
    assert [block["type"] for block in sent_back["content"]] == ["thinking", "text"]
    assert llm.requests[1].messages[:-1] == llm.requests[0].messages
    used = heard.done.usage
    assert (used.input_tokens, used.cache_read_tokens, used.output_tokens) == (500, 1_000_000, 30)
    assert used.cost > 3.0, "the first request was paid for as well"


async def test_a_turn_that_pauses_for_ever_ends(claude, llm) -> None:
    llm.always(Reply(text="x", finish="pause_turn"))
    assert (await hear(claude, ask(model=CLAUDE))).done.finish == "stop"
    assert len(llm.requests) == 11


async def test_a_refusal_is_told_in_the_servers_words(claude, llm) -> None:
    details = '"stop_details":{"type":"refusal","category":"cyber","explanation":"It may harm."}'
    event = f'{{"type":"message_delta","delta":{{"stop_reason":"refusal",{details}}}}}'
    llm.script(Raw(f"data: {event}\n\n"))
    with pytest.raises(Refused, match="It may harm"):
        await hear(claude, ask(model=CLAUDE))


async def test_a_full_window_is_a_reply_that_was_too_long(claude, llm) -> None:
    llm.script(Reply(text="x", finish="model_context_window_exceeded"))
    assert (await hear(claude, ask(model=CLAUDE))).done.finish == "length"


# --- what it learns about a server


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        ("tools.0.custom.eager_input_streaming: Extra inputs are not permitted", "eager_input_streaming"),
        ("output_config: Extra inputs are not permitted", "output_config"),
        ("is_adaptive thinking is not supported on this model", "adaptive"),
    ],
)
async def test_a_server_that_refuses_something_is_asked_again_without_and_remembered(
    claude, llm, refusal: str, gone: str
) -> None:
    llm.script(Fail(400, message=refusal), "a", "b")
    request = ask(model=NEWER, effort="low", max_output_tokens=9_000, messages=looked(NEWER))
    assert (await hear(claude, request)).text == "a"
    await hear(claude, request)
    assert [gone.encode() in sent.raw for sent in llm.requests] == [True, False, False]


async def test_refused_signatures_are_left_out_of_that_request_only(claude, llm) -> None:
    refusal = "messages.1.content.0: Invalid `signature` in `thinking` block"
    llm.script(Fail(400, message=refusal), "a", "b")
    request = ask(model=NEWER, effort="low", max_output_tokens=9_000, messages=looked(NEWER))
    dropped = [(await hear(claude, request)).done.thinking_dropped for _ in range(2)]
    assert dropped == [True, False]
    assert [b"c2lnbmVk" in sent.raw for sent in llm.requests] == [True, False, True]
    assert all("thinking" in sent.body for sent in llm.requests), "the model still thinks"


async def test_a_refusal_that_names_a_signature_is_final_where_none_was_sent(claude, llm) -> None:
    llm.always(Fail(400, message="tools.0: unknown field `signature`"))
    with pytest.raises(BadRequest):
        await hear(claude, ask(model=CLAUDE))
    assert len(llm.requests) == 1


async def test_an_output_limit_that_is_too_high_is_learnt(claude, llm) -> None:
    words = "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-x"
    llm.script(Fail(400, message=words), "a", "b")
    for _ in range(2):
        await hear(claude, ask(model=CLAUDE, max_output_tokens=64_000))
    assert [sent.body["max_tokens"] for sent in llm.requests] == [64_000, 8_192, 8_192]


async def test_a_server_that_refuses_everything_is_not_asked_for_ever(claude, llm) -> None:
    llm.always(Fail(400, message="thinking signature output_config eager_input_streaming max_tokens: 9 > 8"))
    with pytest.raises(BadRequest):
        await hear(claude, ask(model=NEWER, effort="low"))
    assert len(llm.requests) <= 6


# --- addresses and keys


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_an_address_may_end_as_it_likes(llm: ScriptedLLM, end: str) -> None:
    llm.script("ok")
    await hear(AnthropicProvider(Endpoint("", "anthropic", f"{llm.url}{end}", "key")), ask(model=CLAUDE))
    assert llm.requests[0].path == "/v1/messages"
    assert llm.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_a_token_is_sent_as_one(llm: ScriptedLLM) -> None:
    llm.script("ok")
    await hear(
        AnthropicProvider(Endpoint("", "anthropic", llm.url, "key", "ANTHROPIC_AUTH_TOKEN")),
        ask(model=CLAUDE),
    )
    assert llm.requests[0].headers["authorization"] == "Bearer key"
    assert "x-api-key" not in llm.requests[0].headers
