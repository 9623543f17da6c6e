"""Bad input and faults: what every wire makes of servers and networks that misbehave."""

import gzip
import json
import time
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conversing import Heard, hear
from providers_under_test import (
    SHORT,
    Under,
    anthropic,
    chat,
    every_provider,
    failure,
    own_wires,
    responses,
)
from scripted_llm import Call, Empty, Fail, KeepAlive, Raw, Reply, ScriptedLLM, Stall
from scripted_llm import anthropic as speaks_anthropic
from scripted_llm import gemini as speaks_gemini
from scripted_llm import openai as speaks_chat
from scripted_llm import responses as speaks_responses
from support.selection import ALL

from crushpy.core.messages import Message, Text, ToolCall, ToolResult, Usage
from crushpy.llm import errors
from crushpy.llm.error_reader import ErrorSource, classify, read_body
from crushpy.llm.errors import BadRequest, CutStream, ModelError, ReplyTooLarge, TimedOut, Unavailable
from crushpy.llm.protocol import Done, Piece

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

SPEAKS: dict[str, ModuleType] = {
    "chat": speaks_chat,
    "anthropic": speaks_anthropic,
    "gemini": speaks_gemini,
    "responses": speaks_responses,
}
LOOK = Reply(
    thinking="hm ü", text="I look. ✓", calls=[Call("ls", {"path": "a"}, "c1"), Call("ls", {}, "c2")], chunk=4
)


def frames(kind: str, reply: Reply) -> list[dict[str, Any]]:
    """The events of a reply as a server of this kind sends them."""
    ids = [call.id or f"c{number}" for number, call in enumerate(reply.calls)]
    usage = Usage(100, 20)
    speaks = SPEAKS[kind]
    return [*speaks.frames(reply, ids, usage, "m"), *speaks.ending(reply, usage, "m")]


def as_stream(kind: str, events: list[dict[str, Any]]) -> bytes:
    name = SPEAKS[kind].event_name
    written = [
        (f"event: {name(event)}\n" if name(event) else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    return "".join(written).encode()


@cache
def bomb() -> bytes:
    return gzip.compress(b'data: {"x":"' + b"0" * 100_000_000, 1)


# --- replies


@pytest.mark.sampled
@own_wires
@pytest.mark.parametrize("breaks", [True, False], ids=["socket closed", "ended by a proxy"])
async def test_a_reply_cut_at_any_byte_is_either_whole_or_an_error(
    under: Under, llm: ScriptedLLM, breaks: bool
) -> None:
    whole = as_stream(under.kind, frames(under.kind, LOOK))
    llm.script(Raw(whole))
    provider = under.provider()
    expected = await hear(provider, under.ask())
    assert len(expected.calls) == 2
    cut_off = 0
    distance = 3 if ALL else 13
    for end in range(0, len(whole), distance):
        llm.script(Raw(whole[:end], cut=breaks))
        pieces: list[Piece] = []
        try:
            async for piece in provider.stream(under.ask()):
                pieces.append(piece)
        except CutStream:
            cut_off += 1
            assert not any(isinstance(piece, Done) for piece in pieces)
            continue
        heard = Heard(pieces)
        assert (heard.calls, heard.text) == (expected.calls, expected.text), f"cut after {end} bytes"
    assert cut_off > len(whole) / distance * 0.5


@pytest.mark.parametrize("kind", [chat, anthropic, responses])
async def test_broken_arguments_are_passed_on_as_they_came(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("ls", '{"path": oops'), Call("ls", "[1]")]))
    heard = await hear(under.provider(), under.ask())
    assert [args for _, _, args in heard.calls] == ['{"path": oops', "[1]"]
    assert heard.done.finish == "tool_calls"


@pytest.mark.parametrize("kind", ["gemini"])
async def test_a_call_that_the_server_could_not_read_is_asked_for_again(
    under: Under, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[Call("ls", '{"path": oops')]))
    error = await failure(under)
    assert isinstance(error, CutStream)
    assert "MALFORMED_FUNCTION_CALL" in error.message
    assert error.retryable


@own_wires
async def test_a_stream_without_an_end_stops_at_a_bound_and_is_not_retried(
    under: Under, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.llm.http_provider.MAX_STREAM_BYTES", 100_000)
    llm.script(Raw(b": still here\n\n" * 50_000))
    with pytest.raises(ReplyTooLarge, match="sent more than 100,000 bytes") as caught:
        await hear(under.provider(), under.ask())
    assert not caught.value.retryable


@own_wires
async def test_unknown_events_and_fields_change_nothing(under: Under, llm: ScriptedLLM) -> None:
    events: list[dict[str, Any]] = []
    for event in frames(under.kind, LOOK):
        events.append({**event, "brand_new": {"deep": [1, None]}})
        events.append({"type": "brand.new", "index": 99, "delta": {"type": "x"}, "choices": [], "x": None})
    llm.script(Raw(as_stream(under.kind, frames(under.kind, LOOK))))
    llm.script(Raw(b": hello\nretry: 5\nid: 1\n\n" + b"".join(as_any_stream(events))))
    provider = under.provider()
    plain, strange = await hear(provider, under.ask()), await hear(provider, under.ask())
    assert (strange.text, strange.thinking, strange.calls) == (plain.text, plain.thinking, plain.calls)
    assert strange.done == plain.done


def as_any_stream(events: list[dict[str, Any]]) -> list[bytes]:
    """As `as_stream`, for events of which some are not of the format."""
    return [f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


@own_wires
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [None], [7], {"type": 5}])
async def test_values_of_another_type_than_expected_break_nothing(
    under: Under, llm: ScriptedLLM, value: Any
) -> None:
    """Whatever one value is replaced by, the reply is read or an error of ours is raised."""
    for event in range(len(frames(under.kind, LOOK))):
        events = frames(under.kind, LOOK)
        events[event] = {key: value if key != "type" else old for key, old in events[event].items()}
        llm.script(Raw(b"".join(as_any_stream(events))))
        try:
            await hear(under.provider(), under.ask())
        except ModelError:
            pass


@every_provider
async def test_thinking_without_an_answer_is_a_complete_reply(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Reply(thinking="hm"))
    heard = await hear(under.provider(), under.ask())
    assert (heard.thinking, heard.text, heard.calls) == ("hm", "", [])


@every_provider
async def test_two_hundred_parallel_calls_stay_apart(under: Under, llm: ScriptedLLM) -> None:
    calls = [Call("ls", {"path": f"folder {number}"}) for number in range(200)]
    llm.script(Reply(calls=calls, chunk=9))
    heard = await hear(under.provider(), under.ask())
    assert [json.loads(args) for _, _, args in heard.calls] == [call.args for call in calls]
    assert len({call_id for call_id, _, _ in heard.calls}) == 200


@own_wires
async def test_a_tool_that_does_not_exist_is_passed_on_and_may_stay_in_the_history(
    under: Under, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[Call("no such tool!", {})]), "I see.")
    provider = under.provider()
    heard = await hear(provider, under.ask())
    [(call_id, name, _)] = heard.calls
    assert name == "no such tool!"
    history = [
        Message("1", "user", (Text("hi"),)),
        Message("2", "assistant", (ToolCall(call_id, name),), model=under.model),
        Message("3", "tool", (ToolResult(call_id, name, "There is no such tool.", is_error=True),)),
    ]
    assert (await hear(provider, under.ask(messages=history))).text == "I see."
    assert "There is no such tool." in json.dumps(llm.requests[-1].body)


@own_wires
@pytest.mark.parametrize("count", [-5, 10**40])
async def test_absurd_figures_are_taken_for_none(under: Under, llm: ScriptedLLM, count: int) -> None:
    llm.script(Reply(text="x", usage=Usage(count, count, cache_read_tokens=count)))
    used = (await hear(under.provider(), under.ask())).done.usage
    assert used is None or used.total == 0


# --- answers that are no replies


@own_wires
@pytest.mark.parametrize("form", ["application/json", "text/event-stream"])
async def test_a_200_with_an_error_inside_is_that_error(under: Under, llm: ScriptedLLM, form: str) -> None:
    error = json.dumps(SPEAKS[under.kind].error(503, "the engine is on fire", 503))
    llm.script(Raw(error if form == "application/json" else f"data: {error}\n\n", form))
    found = await failure(under)
    assert isinstance(found, Unavailable)
    assert "the engine is on fire" in found.message


@own_wires
async def test_a_web_page_from_a_proxy_is_named_as_one(under: Under, llm: ScriptedLLM) -> None:
    page = "<html><head><title>Please log in</title></head><body>x</body></html>"
    llm.script(Raw(page, "text/html"), Fail(502, body=page), Fail(407, body=page))
    login = await failure(under)
    assert isinstance(login, BadRequest)
    assert "web page" in login.message
    gateway = await failure(under)
    assert isinstance(gateway, Unavailable)
    assert "Please log in" in gateway.message
    assert isinstance(await failure(under), BadRequest)


@own_wires
async def test_an_answer_that_came_whole_is_read_as_well(under: Under, llm: ScriptedLLM) -> None:
    ids = [call.id or "" for call in LOOK.calls]
    whole = SPEAKS[under.kind].whole(LOOK, ids, Usage(100, 20), "m")
    llm.script(Raw(json.dumps(whole), "application/json"))
    heard = await hear(under.provider(), under.ask())
    assert (heard.thinking, heard.text) == (LOOK.thinking, LOOK.text)
    assert [json.loads(args or "{}") for _, _, args in heard.calls] == [call.args for call in LOOK.calls]
    assert (heard.done.finish, heard.done.usage) == ("tool_calls", Usage(100, 20))


@own_wires
async def test_json_that_is_no_reply_is_named(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Raw('{"hello": 1}', "application/json"))
    error = await failure(under)
    assert isinstance(error, CutStream)
    assert "hello" in error.message


@own_wires
@pytest.mark.parametrize("form", ["text/event-stream", "application/json"])
async def test_a_small_answer_that_unfolds_without_end_is_given_up(
    under: Under, llm: ScriptedLLM, form: str
) -> None:
    llm.script(Raw(bomb(), form, headers={"Content-Encoding": "gzip"}))
    error = await failure(under)
    assert isinstance(error, CutStream)
    assert "67,108,864 bytes" in error.message


@own_wires
async def test_json_without_a_bottom_is_no_reply(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Raw(b'data: {"x":' + b"[" * 200_000 + b"\n\n"), Raw(b"[" * 200_000, "application/json"))
    for _ in range(2):
        error = await failure(under)
        assert isinstance(error, CutStream)


# --- the network


@every_provider
async def test_a_slow_first_byte_is_waited_for(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply(text="at last"), headers=False))
    stream = under.provider().stream(under.ask())
    pieces = [await anext(stream)]
    await llm.wait_requests()
    llm.release()
    pieces += [piece async for piece in stream]
    assert Heard(pieces).text == "at last"


@own_wires
@pytest.mark.parametrize("comment", [": keep-alive", 'event: ping\ndata: {"type": "ping"}'])
async def test_signs_of_life_alone_are_not_listened_to_for_ever(
    under: Under, llm: ScriptedLLM, comment: str
) -> None:
    llm.script(KeepAlive(comment=comment))
    error = await failure(under, SHORT)
    assert isinstance(error, TimedOut)
    await llm.wait_closed()


@own_wires
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_with_a_key(under: Under, llm: ScriptedLLM, status: int) -> None:
    with ScriptedLLM() as elsewhere:
        llm.script(Fail(status, body="moved", headers={"Location": elsewhere.url}))
        error = await failure(under)
        assert isinstance(error, BadRequest)
        assert elsewhere.url in error.message
        assert not error.retryable
        assert elsewhere.requests == []


@own_wires
async def test_a_certificate_nobody_vouches_for_is_refused_before_the_key_is_sent(
    under: Under, server_tls: Any
) -> None:
    with ScriptedLLM(server_tls) as secure:
        error = await failure(under, api_base=secure.url)
        assert isinstance(error, Unavailable)
        assert "certificate" in error.message
        assert "SSL_CERT_FILE" in error.hint
        assert secure.requests == []


@every_provider
async def test_a_connection_closed_between_turns_is_opened_again(under: Under, llm: ScriptedLLM) -> None:
    llm.script("first", "second")
    provider = under.provider()
    assert (await hear(provider, under.ask())).text == "first"
    llm.hang_up()
    assert (await hear(provider, under.ask())).text == "second"
    assert len(llm.requests) == 2


@own_wires
async def test_connection_is_reused_for_a_conversation(
    under: Under, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "crushpy.llm.http_provider.AFTER_DONE_TIMEOUT_S", 20.0
    )  # a busy machine may be slow to end a reply
    llm.always(Reply(text="some text", chunk=2))
    provider = under.provider()
    for _ in range(6):
        await hear(provider, under.ask())
    assert {request.connection for request in llm.requests} == {1}


@own_wires
async def test_an_empty_stream_is_a_cut_one(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Raw(b""), Empty())
    assert isinstance(await failure(under), CutStream)
    assert (await hear(under.provider(), under.ask())).text == ""


# --- what vendors say

TABLE = tomllib.loads(Path(__file__).with_name("vendor_errors.toml").read_text())["error"]
NOW = 1_700_000_000.0


@pytest.mark.parametrize("said", TABLE, ids=[said["who"] for said in TABLE])
async def test_each_vendors_errors_become_ours(said: dict[str, Any], llm: ScriptedLLM) -> None:
    under = Under(said["vendor"], llm)
    if said.get("in_stream"):
        llm.script(Raw(f"data: {said['body']}\n\n"))
    else:
        headers = {"Content-Type": "application/json", **said.get("headers", {})}
        llm.script(Fail(said["status"], body=said["body"], headers=headers))
    with pytest.raises(ModelError) as raised:
        await hear(under.provider(), under.ask())
    error = raised.value
    assert type(error) is getattr(errors, said["becomes"])
    assert getattr(error, "limit", None) == said.get("limit")
    assert said.get("hint", "") in error.hint
    assert len(llm.requests) == 1


@pytest.mark.parametrize("said", TABLE, ids=[said["who"] for said in TABLE])
def test_the_wait_that_a_vendor_names_is_read(said: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    body = json.loads(said["body"])
    inner = body["response"] if isinstance(body, dict) and "response" in body else body
    source = ErrorSource("model", "there", "KEY")
    error = classify(said.get("status"), read_body(json.dumps(inner)), source, said.get("headers"))
    expected = said.get("wait")
    assert getattr(error, "retry_after", None) == (None if expected is None else pytest.approx(expected))


async def test_the_table_has_every_kind_of_failure_for_every_vendor() -> None:
    kinds = {"ContextOverflow", "RateLimited", "Unavailable", "AuthenticationFailed", "BadRequest"}
    for vendor in ("anthropic", "gemini", "responses"):
        assert kinds <= {said["becomes"] for said in TABLE if said["vendor"] == vendor}
