"""The scripted model server does what tests rely on; spoken to by Python's own blocking client."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_llm import Call, Cut, Fail, Garbage, NoFinish, RateLimit, Reply, ScriptedLLM, Stall

from crushpy.core.messages import Usage

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
def connection(llm: ScriptedLLM) -> Iterator[http.client.HTTPConnection]:
    link = http.client.HTTPConnection("127.0.0.1", llm.port, timeout=60)
    yield link
    link.close()


def post(link: http.client.HTTPConnection, body: dict[str, Any], path: str = "/v1/chat/completions"):
    link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return link.getresponse()


def events(raw: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in raw.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_replies_come_in_the_order_of_the_script_on_one_kept_connection(llm, connection):
    llm.script("one", "two")
    first = post(connection, {**ASK, "stream": False})
    assert json.loads(first.read())["choices"][0]["message"]["content"] == "one"
    second = post(connection, {**ASK, "stream": False})
    assert json.loads(second.read())["choices"][0]["message"]["content"] == "two"
    assert [r.connection for r in llm.requests] == [1, 1]
    assert llm.requests[0].messages == ASK["messages"]


def test_a_streamed_reply_is_split_as_asked_and_ends_with_usage_and_done(llm, connection):
    llm.script(Reply(text="abcdef", chunk=4, usage=Usage(5, 6, cache_read_tokens=7)))
    got = events(post(connection, {**ASK, "stream_options": {"include_usage": True}}).read())
    deltas = [e["choices"][0]["delta"].get("content") for e in got[:-1] if e["choices"]]
    assert deltas == ["", "abcd", "ef", None]
    assert got[-2]["usage"]["prompt_tokens"] == 12
    assert got[-1] == "[DONE]"


def test_tool_call_arguments_are_split_and_ids_are_unique(llm, connection):
    llm.script(Reply(calls=[Call("ls", {"path": "a"}), Call("ls", {"path": "b"})], chunk=3))
    got = events(post(connection, ASK).read())
    pieces = [c for e in got[:-1] for c in e["choices"][0]["delta"].get("tool_calls", [])]
    for index, path in enumerate("ab"):
        args = "".join(p["function"]["arguments"] for p in pieces if p["index"] == index)
        assert json.loads(args) == {"path": path}
    assert len({p["id"] for p in pieces if "id" in p}) == 2


def test_anthropic_events_carry_thinking_signature_tools_and_cache_usage(llm, connection):
    usage = Usage(3, 4, cache_read_tokens=5, cache_write_tokens=6)
    llm.script(Reply(thinking="hm", text="hi", calls=[Call("ls", {"path": "."})], usage=usage))
    got = events(post(connection, ASK, "/v1/messages").read())
    assert got[0]["message"]["usage"]["cache_creation_input_tokens"] == 6
    kinds = [e["delta"]["type"] for e in got if e["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta", "signature_delta", "text_delta", "input_json_delta"]
    assert got[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_exhausted_script_answers_500_and_says_so(llm, connection):
    response = post(connection, ASK)
    assert response.status == 500
    assert "script has no step left" in response.read().decode()


def test_a_function_answers_from_the_request_and_always_goes_on(llm, connection):
    llm.always(lambda body: body["messages"][-1]["content"].upper())
    for _ in range(2):
        answer = json.loads(post(connection, {**ASK, "stream": False}).read())
        assert answer["choices"][0]["message"]["content"] == "HI"


def test_failures_carry_status_headers_and_body(llm, connection):
    llm.script(RateLimit(retry_after=7), Fail(503, "busy"))
    limited = post(connection, ASK)
    assert (limited.status, limited.getheader("Retry-After")) == (429, "7")
    limited.read()
    down = post(connection, ASK)
    assert (down.status, down.read()) == (503, b"busy")


def test_a_cut_closes_the_socket_in_the_middle(llm, connection):
    llm.script(Cut(Reply(text="abcdefgh", chunk=2)))
    with pytest.raises(http.client.IncompleteRead) as cut:
        post(connection, ASK).read()
    assert b"cd" in cut.value.partial
    assert b"ef" not in cut.value.partial


def test_garbage_and_a_missing_finish_are_sent_as_told(llm, connection):
    llm.script(Garbage(), NoFinish(Reply(text="x")))
    assert b"oops" in post(connection, ASK).read()
    unfinished = post(connection, ASK).read()
    assert b'"finish_reason": "' not in unfinished
    assert b"[DONE]" not in unfinished


def test_a_stalled_reply_goes_on_when_released(llm, connection):
    llm.script(Stall(Reply(text="abcd", chunk=2)))
    response = post(connection, ASK)
    before = b""
    while b"ab" not in before:
        before += response.read1()
    llm.release()
    assert b"[DONE]" in response.read()


def test_a_client_that_hangs_up_is_noticed(llm):
    llm.script(Stall())
    with socket.create_connection(("127.0.0.1", llm.port)) as link:
        body = json.dumps(ASK).encode()
        link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        llm.wait_requests_blocking()
    llm.wait_closed_blocking()
    assert llm.requests[0].closed_early


def test_scripted_server_serves_many_clients(llm):
    llm.always(Stall(Reply(text="ok")))
    answers: list[bytes] = []

    def client() -> None:
        link = http.client.HTTPConnection("127.0.0.1", llm.port, timeout=60)
        answers.append(post(link, ASK).read())
        link.close()

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    llm.wait_requests_blocking(8)
    llm.release()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 8
    assert all(b"ok" in answer for answer in answers)


def test_models_are_listed(llm, connection):
    llm.models = ["a", "b"]
    connection.request("GET", "/v1/models")
    assert [m["id"] for m in json.loads(connection.getresponse().read())["data"]] == ["a", "b"]
