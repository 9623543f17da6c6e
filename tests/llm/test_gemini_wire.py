"""What is Gemini's own: signatures of calls and texts, thinking, blocked replies, addresses."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversing import ask, hear, user
from scripted_llm import Call, Fail, Raw, Reply, ScriptedLLM

from crushpy.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.llm.errors import Refused
from crushpy.llm.gemini.provider import GeminiProvider
from crushpy.llm.gemini.reply import ContentReader
from crushpy.llm.gemini.request import UNSIGNED, GeminiQuirks, content_body, is_gemini_3, stored_signature
from crushpy.llm.protocol import CallPiece, Request, ThinkingOpaque
from crushpy.llm.vendors import Endpoint

OLDER = "gemini/gemini-2.5-pro"
NEWER = "gemini/gemini-3-flash-preview"


@pytest.fixture
async def gemini(llm: ScriptedLLM) -> AsyncIterator[GeminiProvider]:
    provider = GeminiProvider(Endpoint("", "gemini", llm.url, "key"))
    yield provider
    await provider.close()


def looked(model: str = NEWER, **more: Any) -> list[Message]:
    first = ToolCall("c1", "ls", {"path": "a"}, opaque=stored_signature("c2ln"))
    return [
        user("look"),
        Message("a", "assistant", (Text("I look."), first, ToolCall("c2", "ls")), model=model),
        Message("r", "tool", (ToolResult("c1", "ls", "a.txt"),)),
        Message("s", "tool", (ToolResult("c2", "ls", "nope", is_error=True, **more),)),
    ]


def body(request: Request, habits: GeminiQuirks | None = None) -> dict[str, Any]:
    return content_body(request, request.model.removeprefix("gemini/"), habits or GeminiQuirks())


# --- signatures


async def test_the_signature_of_a_call_is_kept_and_sent_back_with_it(gemini, llm) -> None:
    llm.script(Reply(calls=[Call("ls", {"path": "a"}), Call("ls", {})], signature="c2ln"), "ok")
    heard = await hear(gemini, ask(model=NEWER))
    calls = [piece for piece in heard.pieces if isinstance(piece, CallPiece)]
    assert [piece.opaque for piece in calls] == [stored_signature("c2ln"), None]
    await hear(gemini, ask(model=NEWER, messages=looked()))
    _, first, second = llm.requests[1].body["contents"][1]["parts"]
    assert first == {
        "functionCall": {"id": "c1", "name": "ls", "args": {"path": "a"}},
        "thoughtSignature": "c2ln",
    }
    assert "thoughtSignature" not in second


def test_a_signature_that_litellm_stored_is_understood() -> None:
    call = ToolCall("c", "ls", opaque={"provider_specific_fields": {"thought_signature": "b2xk"}})
    messages = [user("x"), Message("a", "assistant", (call,), model=NEWER)]
    messages.append(Message("r", "tool", (ToolResult("c", "ls", "y"),)))
    assert body(ask(model=NEWER, messages=messages))["contents"][1]["parts"][0]["thoughtSignature"] == "b2xk"


def test_calls_of_another_model_are_marked_as_such_where_signatures_are_wanted() -> None:
    parts = body(ask(model=NEWER, messages=looked("openai/x")))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, UNSIGNED, None]
    parts = body(ask(model=OLDER, messages=looked("openai/x")))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None, None]
    assert all("id" not in part.get("functionCall", {}) for part in parts)


@pytest.mark.parametrize("empty", [True, False])
def test_a_signed_piece_of_text_goes_back_apart_from_the_rest(empty: bool) -> None:
    signed = {"text": "" if empty else "end.", "thoughtSignature": "c2ln"}
    chunks = [{"text": "The "}, {"text": "very "}, signed]
    reader = ContentReader(NEWER)
    pieces = [
        piece for chunk in chunks for piece in reader.feed({"candidates": [{"content": {"parts": [chunk]}}]})
    ]
    opaque = tuple(piece.data for piece in pieces if isinstance(piece, ThinkingOpaque))
    text = "The very " + signed["text"]
    reply = Message("a", "assistant", (Thinking("", opaque), Text(text)), model=NEWER)
    parts = body(ask(model=NEWER, messages=[user("x"), reply, user("y")]))["contents"][1]["parts"]
    assert parts == [{"text": "The very "}, signed]
    other = body(ask(model=OLDER, messages=[user("x"), reply, user("y")]))["contents"][1]["parts"]
    assert other == [{"text": text}]


async def test_refused_signatures_are_left_out_of_that_request_only(gemini, llm) -> None:
    llm.script(Fail(400, message="Corrupted thought signature."), "a", "b")
    request = ask(model=NEWER, messages=looked())
    assert [(await hear(gemini, request)).done.thinking_dropped for _ in range(2)] == [True, False]
    assert [b"c2ln" in sent.raw for sent in llm.requests] == [True, False, True]


# --- thinking


@pytest.mark.parametrize(
    ("model", "effort", "wish"),
    [
        (NEWER, "", {"includeThoughts": True}),
        (NEWER, "low", {"includeThoughts": True, "thinkingLevel": "low"}),
        (OLDER, "high", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini/gemini-2.0-flash", "high", None),
        ("gemini/gemma-3-27b-it", "high", None),
    ],
)
def test_effort_is_a_level_for_newer_models_and_a_budget_for_older_ones(model, effort, wish) -> None:
    assert body(ask(model=model, effort=effort)).get("generationConfig", {}).get("thinkingConfig") == wish


def test_newer_gemini_models_are_recognised() -> None:
    assert all(map(is_gemini_3, ("gemini-3-flash-preview", "gemini-4-argon", "gemini-pro-latest")))
    assert not any(map(is_gemini_3, ("gemini-2.5-pro", "gemini-2.0-flash", "gemma-3", "gemini-exp-1206")))


async def test_a_model_that_cannot_think_is_not_asked_to(gemini, llm) -> None:
    llm.script(Fail(400, message="Thinking is not enabled for models/x"), "a", "b")
    for _ in range(2):
        await hear(gemini, ask(model=OLDER, effort="low"))
    assert [b"thinkingConfig" in sent.raw for sent in llm.requests] == [True, False, False]


# --- what is written


def test_results_of_one_reply_are_one_content_and_the_status_ends_the_last() -> None:
    picture = (Image("image/png", "aGk="),)
    request = ask(model=NEWER, messages=looked(images=picture), status="<s>50</s>")
    *_, results = body(request)["contents"]
    assert results["parts"] == [
        {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.txt"}}},
        {"functionResponse": {"id": "c2", "name": "ls", "response": {"error": "nope\n\n<s>50</s>"}}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
    ]


def test_status_is_appended_to_the_last_prompt() -> None:
    assert body(ask("hi", model=NEWER, status="<s>50</s>"))["contents"][-1]["parts"] == [
        {"text": "hi\n\n<s>50</s>"}
    ]


# --- the end of a reply


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST"])
async def test_a_stopped_reply_is_a_clear_refusal(gemini, llm, reason: str) -> None:
    llm.script(Reply(text="x", finish=reason))
    with pytest.raises(Refused, match="gave no answer"):
        await hear(gemini, ask(model=OLDER))


async def test_a_blocked_prompt_is_a_clear_refusal(gemini, llm) -> None:
    llm.script(Raw('data: {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}\n\n'))
    with pytest.raises(Refused, match="blocked as PROHIBITED_CONTENT"):
        await hear(gemini, ask(model=OLDER))


@pytest.mark.parametrize(("total", "output"), [(140, 40), (110, 10)])
def test_thoughts_count_as_output_once(total: int, output: int) -> None:
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 30}
    reader = ContentReader(OLDER)
    reader.feed({"usageMetadata": {**counts, "totalTokenCount": total, "cachedContentTokenCount": 60}})
    reader.feed({"candidates": [{"finishReason": "STOP"}]})
    done = reader.end()
    assert done is not None
    assert done.usage == Usage(40, output, cache_read_tokens=60)


# --- addresses


@pytest.mark.parametrize("end", ["", "/", "/v1beta", "/v1beta/", "/v1"])
async def test_an_address_may_end_as_it_likes(llm: ScriptedLLM, end: str) -> None:
    llm.script("ok")
    await hear(GeminiProvider(Endpoint("", "gemini", f"{llm.url}{end}", "key")), ask(model=OLDER))
    assert llm.requests[0].path == "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"


async def test_a_key_is_never_in_the_address(llm: ScriptedLLM) -> None:
    llm.script("ok")
    await hear(GeminiProvider(Endpoint("", "gemini", llm.url, "secret")), ask(model=OLDER))
    assert "secret" not in llm.requests[0].path
    assert llm.requests[0].headers["x-goog-api-key"] == "secret"
