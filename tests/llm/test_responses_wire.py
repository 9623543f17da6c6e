"""What is the Responses API's own: reasoning that survives tool calls, phases, addresses, Azure."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversing import ask, hear, user
from scripted_llm import Call, Fail, Reply, ScriptedLLM
from support.variables import variables

from crushpy.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.llm.errors import BadRequest
from crushpy.llm.openai.provider import ApiUrl, ResponsesProvider, azure_base
from crushpy.llm.openai.responses_reply import ResponseReader
from crushpy.llm.openai.responses_request import ResponsesQuirks, responses_body
from crushpy.llm.protocol import Request, ThinkingOpaque
from crushpy.llm.provider_factory import create_provider
from crushpy.llm.vendors import Endpoint
from crushpy.settings.schema import Settings

MODEL = "openai/gpt-5"
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "c2VjcmV0",
}


@pytest.fixture
async def provider(llm: ScriptedLLM) -> AsyncIterator[ResponsesProvider]:
    made = ResponsesProvider(Endpoint("", "openai", llm.api_base, "key"))
    yield made
    await made.close()


def looked(model: str = MODEL, opaque: tuple[dict[str, Any], ...] = (REASONING,)) -> list[Message]:
    parts = (Thinking("hm", opaque), Text("I look."), ToolCall("c1", "ls", {"path": "."}))
    return [
        user("look"),
        Message("a", "assistant", parts, model=model),
        Message("r", "tool", (ToolResult("c1", "ls", "a.txt"),)),
    ]


def body(request: Request) -> dict[str, Any]:
    return responses_body(request, request.model.removeprefix("openai/"), ResponsesQuirks())


def kinds(sent: dict[str, Any]) -> list[str]:
    return [item.get("role") or item["type"] for item in sent["input"]]


# --- reasoning


async def test_encrypted_reasoning_is_asked_for_kept_whole_and_sent_back(provider, llm) -> None:
    llm.script(Reply(thinking="hm", signature="c2VjcmV0", calls=[Call("ls", {})]), "ok")
    heard = await hear(provider, ask(model=MODEL))
    assert (heard.thinking, heard.opaque) == ("hm", [REASONING])
    assert llm.requests[0].body["include"] == ["reasoning.encrypted_content"]
    assert llm.requests[0].body["store"] is False
    await hear(provider, ask(model=MODEL, messages=looked()))
    sent = llm.requests[1].body
    assert kinds(sent) == ["user", "reasoning", "assistant", "function_call", "function_call_output"]
    assert sent["input"][1] == REASONING


def test_reasoning_is_not_sent_to_another_model() -> None:
    sent = body(ask(model=MODEL, messages=looked("openai/gpt-5.6")))
    assert kinds(sent) == ["user", "assistant", "function_call", "function_call_output"]


def test_reasoning_between_calls_and_the_phase_of_a_text_go_back_to_their_place() -> None:
    second = {**REASONING, "id": "rs_2"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
    output = [REASONING, {**said, "phase": "commentary"}, call, second, {**call, "call_id": "c2"}]
    pieces = ResponseReader(MODEL).read_whole({"status": "completed", "output": output}) or []
    opaque = tuple(piece.data for piece in pieces if isinstance(piece, ThinkingOpaque))
    parts = (Thinking("hm", opaque), Text("I look."), ToolCall("c1", "ls"), ToolCall("c2", "ls"))
    reply = Message("a", "assistant", parts, model=MODEL)
    assert body(ask(model=MODEL, messages=[user("x"), reply]))["input"][1:] == output


def test_reasoning_that_led_to_nothing_is_dropped_whole() -> None:
    alone = Message("a", "assistant", (Thinking("hm", (REASONING,)),), model=MODEL)
    assert kinds(body(ask(model=MODEL, messages=[user("x"), alone, user("y")]))) == ["user", "user"]


def test_reasoning_without_its_content_is_not_kept() -> None:
    output = [{**REASONING, "encrypted_content": None}]
    pieces = ResponseReader(MODEL).read_whole({"status": "completed", "output": output}) or []
    assert not any(isinstance(piece, ThinkingOpaque) for piece in pieces)


def test_effort_and_summaries_are_asked_of_models_that_reason() -> None:
    assert body(ask(model=MODEL, effort="high"))["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body(ask(model=MODEL))["reasoning"] == {"summary": "auto"}
    plain = body(ask(model="openai/gpt-4o", effort="high"))
    assert "reasoning" not in plain
    assert "include" not in plain


def test_parts_of_a_summary_are_paragraphs() -> None:
    reader = ResponseReader(MODEL)
    text = ""
    for number, part in enumerate(("One.", "Two.")):
        where = {"output_index": 0, "summary_index": number}
        for event in (
            {"type": "response.reasoning_summary_part.added", **where},
            {"type": "response.reasoning_summary_text.delta", "delta": part, **where},
        ):
            text += "".join(piece.text for piece in reader.feed(event))
    assert text == "One.\n\nTwo."


# --- what is written


def test_every_request_of_a_session_has_the_same_cache_key() -> None:
    first, later = body(ask(model=MODEL, messages=looked()[:1])), body(ask(model=MODEL, messages=looked()))
    assert first["prompt_cache_key"] == later["prompt_cache_key"] == "crushpy-u1"


@pytest.mark.parametrize("placement", ["message", "append"])
def test_the_status_is_the_last_thing(placement: str) -> None:
    request = ask(model=MODEL, messages=looked(), status="<s>50</s>", status_placement=placement)
    last = body(request)["input"][-1]
    if placement == "message":
        assert (last["role"], last["content"][0]["text"]) == ("developer", "<s>50</s>")
    else:
        assert last["output"] == "a.txt\n\n<s>50</s>"


def test_images_stand_inside_the_result() -> None:
    messages = looked()
    picture = ToolResult("c1", "ls", "a picture", images=(Image("image/png", "aGk="),))
    messages[-1] = Message("r", "tool", (picture,))
    output = body(ask(model=MODEL, messages=messages))["input"][-1]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"] == "data:image/png;base64,aGk="


def test_the_least_output_a_server_allows_is_asked_for() -> None:
    assert body(ask(model=MODEL, max_output_tokens=1))["max_output_tokens"] == 16


# --- what it learns


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        ("Encrypted content is not supported with this model.", b'"include"'),
        ("Your organization must be verified to generate reasoning summaries.", b'"summary":"auto"'),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", b'"reasoning":{'),
        ("Unknown parameter: 'prompt_cache_key'.", b"prompt_cache_key"),
    ],
)
async def test_a_server_that_refuses_something_is_asked_again_without_and_remembered(
    provider, llm, refusal: str, gone: bytes
) -> None:
    llm.script(Fail(400, message=refusal), "a", "b")
    for text in ("a", "b"):
        assert (await hear(provider, ask(model=MODEL, effort="low", messages=looked()))).text == text
    assert [gone in sent.raw for sent in llm.requests] == [True, False, False]


async def test_refused_reasoning_is_left_out_of_that_request_only(provider, llm) -> None:
    llm.script(Fail(400, message="The encrypted content gAAA could not be verified."), "a", "b")
    request = ask(model=MODEL, effort="low", messages=looked())
    assert [(await hear(provider, request)).done.thinking_dropped for _ in range(2)] == [True, False]
    assert [b"c2VjcmV0" in sent.raw for sent in llm.requests] == [True, False, True]
    assert all("include" in sent.body for sent in llm.requests)


async def test_a_server_that_wants_no_late_developer_message_gets_the_status_in_the_last_item(
    provider, llm
) -> None:
    llm.script(Fail(400, message="System message must be at the beginning."), "fine")
    heard = await hear(provider, ask(model=MODEL, status="<s>50</s>"))
    assert heard.done.status_moved
    assert [part["text"] for part in llm.requests[1].body["input"][-1]["content"]] == ["hi", "<s>50</s>"]


def test_cached_and_written_tokens_are_told_apart() -> None:
    reader = ResponseReader(MODEL)
    details = {"cached_tokens": 60, "cache_write_tokens": 10}
    usage = {"input_tokens": 100, "input_tokens_details": details, "output_tokens": 30}
    reader.feed({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
    done = reader.end()
    assert done is not None
    assert done.usage == Usage(30, 30, cache_read_tokens=60, cache_write_tokens=10)


# --- addresses


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/responses"])
async def test_an_address_may_end_as_it_likes(llm: ScriptedLLM, end: str) -> None:
    llm.script("ok")
    await hear(ResponsesProvider(Endpoint("", "openai", f"{llm.url}{end}", "key")), ask(model=MODEL))
    assert llm.requests[0].path == "/v1/responses"


def test_a_bare_host_is_tried_without_v1_too_where_it_knows_no_v1() -> None:
    address = ApiUrl("https://host.example", "chat/completions")
    assert address.url == "https://host.example/v1/chat/completions"
    assert not address.switch(404, "The model `x` does not exist")
    assert address.switch(404, "Not Found")
    assert address.url == "https://host.example/chat/completions"
    assert not address.switch(404, "Not Found")
    assert not ApiUrl("https://host.example/api", "responses").switch(404, "Not Found")


async def test_a_host_without_v1_is_found_by_its_refusal(llm: ScriptedLLM) -> None:
    llm.script(Fail(404, body="404 page not found"), "ok", "again")
    provider = ResponsesProvider(Endpoint("", "openai", llm.url, "key"))
    assert (await hear(provider, ask(model=MODEL))).text == "ok"
    await hear(provider, ask(model=MODEL))
    assert [sent.path for sent in llm.requests] == ["/v1/responses", "/responses", "/responses"]


@pytest.mark.parametrize(
    ("base", "version", "expected"),
    [
        ("https://x.openai.azure.com", "", "https://x.openai.azure.com/openai/v1"),
        ("https://x.openai.azure.com/openai/v1/", "preview", "https://x.openai.azure.com/openai/v1"),
        ("https://x/openai", "2024-10-21", "https://x/openai/deployments/mine?api-version=2024-10-21"),
    ],
)
def test_azure_is_asked_at_its_own_addresses(base: str, version: str, expected: str) -> None:
    assert azure_base(base, "mine", version) == expected


async def test_azure_gets_its_key_in_its_own_header(llm: ScriptedLLM) -> None:
    environ = {"AZURE_API_KEY": "secret", "AZURE_API_BASE": llm.url, "AZURE_API_VERSION": "2024-10-21"}
    with variables(environ):
        provider = create_provider("azure/mine", Settings())
    with pytest.raises(BadRequest) as refused:
        await hear(provider, ask(model="azure/mine"))
    path = "/openai/deployments/mine/chat/completions?api-version=2024-10-21"
    assert f"{llm.url}{path}" in refused.value.message
    assert json.dumps(provider._headers).count("secret") == 1
    assert provider._headers["api-key"] == "secret"
    with variables({"AZURE_AD_TOKEN": "t", "AZURE_API_BASE": llm.url}):
        token = create_provider("azure/mine", Settings())
    assert token._headers["authorization"] == "Bearer t"
