"""The lean wire's own: forms of streams, what it learns about a server, what it must not import."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from conversing import ask, hear
from hypothesis import given
from hypothesis import strategies as st
from scripted_llm import Call, Fail, NoFinish, Raw, Reply, ScriptedLLM

from crushpy.llm.errors import AuthenticationFailed, BadRequest, CutStream, Unavailable
from crushpy.llm.http_provider import EventReader
from crushpy.llm.openai.provider import ChatProvider
from crushpy.llm.vendors import Endpoint

HELLO = 'data: {"choices": [{"delta": {"content": "hello"}}]}\n\n'
FINISH = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = "data: [DONE]\n\n"


@pytest.fixture
async def provider(llm: ScriptedLLM) -> AsyncIterator[ChatProvider]:
    made = ChatProvider(Endpoint("", "openai", llm.api_base, "key"))
    yield made
    await made.close()


# --- streams


@pytest.mark.parametrize(
    "stream",
    [
        HELLO + FINISH + DONE,
        (HELLO + FINISH + DONE).replace("\n", "\r\n"),
        (HELLO + FINISH + DONE).replace("data: ", "data:"),
        ": a comment\n\n" + HELLO + ":\n\nevent: x\nid: 7\nretry: 10\n" + FINISH + DONE,
        HELLO + FINISH,
        HELLO + DONE,
        HELLO + FINISH.rstrip("\n"),
        HELLO.replace("{", "{\ndata: ", 1) + FINISH,
    ],
    ids=["plain", "crlf", "no space", "comments", "no mark", "no finish", "no last line", "two lines"],
)
async def test_every_form_of_a_stream_is_read(llm, provider, stream):
    llm.script(Raw(stream))
    heard = await hear(provider)
    assert (heard.text, heard.done.finish) == ("hello", "stop")


@given(data=st.data())
def test_events_come_out_whole_however_the_bytes_are_cut(data):
    stream = (": hi\r\n\r\n" + HELLO + 'data: {"ü":\ndata: 1}\n\n' + DONE).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    reader, events = EventReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += reader.feed(stream[start:end])
    assert events + reader.end() == [HELLO[6:-2].encode(), '{"ü":\n1}'.encode(), b"[DONE]"]


async def test_an_end_mark_without_a_finish_reason_is_the_end(llm, provider):
    llm.script(NoFinish(Reply(text="all of it"), done=True))
    assert (await hear(provider)).done.finish == "stop"
    llm.script(NoFinish(Reply(calls=[Call("ls", {})]), done=True))
    assert (await hear(provider)).done.finish == "tool_calls"


async def test_an_end_mark_after_half_a_call_is_a_cut_stream(llm, provider):
    llm.script(NoFinish(Reply(calls=[Call("ls", '{"path": "ha')]), done=True))
    with pytest.raises(CutStream):
        await hear(provider)


async def test_an_end_mark_after_nothing_has_no_finish(llm, provider):
    llm.script(Raw(DONE))
    assert (await hear(provider)).done.finish == ""


async def test_a_finished_reply_is_complete_though_the_server_never_ends_the_stream(llm, monkeypatch):
    monkeypatch.setattr("crushpy.llm.http_provider.AFTER_FINISH_TIMEOUT_S", 0.05)
    llm.script(Raw(HELLO + FINISH, hang=True), Raw(HELLO + FINISH + DONE, hang=True))
    provider = ChatProvider(Endpoint("", "openai", llm.api_base))
    for _ in range(2):
        assert (await hear(provider)).done.finish == "stop"
    await llm.wait_closed()


async def test_a_finish_reason_of_error_is_a_failure(llm, provider):
    llm.script(Raw(HELLO + FINISH.replace("stop", "error") + DONE))
    with pytest.raises(Unavailable):
        await hear(provider)


async def test_an_older_llama_cpp_reports_errors_in_a_field_of_their_own(llm, provider):
    llm.script(Raw('error: {"code": 400, "message": "no such grammar"}\n\n'))
    with pytest.raises(BadRequest, match="no such grammar"):
        await hear(provider)


async def test_a_server_that_does_not_stream_is_understood(llm, provider):
    message = {"role": "assistant", "content": "whole", "tool_calls": None}
    body = {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    llm.script(Raw(json.dumps(body), "application/json; charset=utf-8"))
    heard = await hear(provider)
    assert (heard.text, heard.done.finish, heard.done.usage.input_tokens) == ("whole", "stop", 3)


async def test_an_error_with_status_200_is_an_error(llm, provider):
    llm.script(Raw('{"error": {"message": "no such model", "code": 404}}', "application/json"))
    with pytest.raises(BadRequest, match="no such model"):
        await hear(provider)


async def test_an_answer_that_is_no_reply_at_all_is_named(llm, provider):
    llm.script(Raw('{"hello": 1}', "application/json"), Raw("<html>login</html>", "text/html"))
    with pytest.raises(CutStream, match="hello"):
        await hear(provider)
    with pytest.raises(BadRequest, match="web page") as page:
        await hear(provider)
    assert "/v1" in page.value.hint


# --- connections


async def test_a_failed_request_leaves_its_connection_usable(llm, provider):
    llm.script(Fail(500), "fine")
    with pytest.raises(Unavailable):
        await hear(provider)
    await hear(provider)
    assert [request.connection for request in llm.requests] == [1, 1]


# --- what it learns about a server


async def test_a_server_that_wants_the_other_output_limit_is_asked_again_and_remembered(llm, provider):
    llm.script(
        Fail(400, message="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        "a",
        "b",
    )
    assert (await hear(provider, ask(max_output_tokens=5))).text == "a"
    await hear(provider, ask(max_output_tokens=6))
    limits = [(r.body.get("max_tokens"), r.body.get("max_completion_tokens")) for r in llm.requests]
    assert limits == [(5, None), (None, 5), (None, 6)]


async def test_a_server_that_refuses_both_limits_is_not_asked_forever(llm, provider):
    llm.always(Fail(400, message="max_tokens and max_completion_tokens are both forbidden"))
    with pytest.raises(BadRequest):
        await hear(provider, ask(max_output_tokens=5))
    assert len(llm.requests) == 2


async def test_a_server_that_knows_no_stream_options_is_asked_again_without(llm, provider):
    llm.script(Fail(400, message="Unknown field: stream_options"), "a", "b")
    assert (await hear(provider)).done.usage is None
    await hear(provider)
    assert ["stream_options" in r.body for r in llm.requests] == [True, False, False]


async def test_sent_comes_once_though_the_request_went_twice(llm, provider):
    llm.script(Fail(422, message="stream_options: extra fields not permitted"), "a")
    assert (await hear(provider)).text == "a"  # `hear` counts


# --- names and keys


async def test_the_prefix_of_the_model_is_stripped_and_others_are_kept(llm):
    llm.always("ok")
    await hear(ChatProvider(Endpoint("", "lmstudio", llm.api_base)), ask(model="lmstudio/qwen/qwen3"))
    await hear(ChatProvider(Endpoint("", "openai", f"{llm.api_base}/")), ask(model="meta/llama"))
    assert [r.body["model"] for r in llm.requests] == ["qwen/qwen3", "meta/llama"]
    assert [r.path for r in llm.requests] == ["/v1/chat/completions"] * 2


async def test_refusal_names_the_key_variable_when_no_key_is_sent(llm):
    llm.script(Fail(401, message="key, please"))
    with pytest.raises(AuthenticationFailed) as refused:
        await hear(ChatProvider(Endpoint("", "openai", llm.api_base, key_variable="MY_KEY")))
    assert "authorization" not in llm.requests[0].headers
    assert refused.value.hint == "No key was sent. Set MY_KEY in the environment."


async def test_request_has_no_tools_key_without_tools(llm, provider):
    llm.script("ok")
    await hear(provider, ask(tools=()))
    assert "tools" not in llm.requests[0].body


# --- start-up

HEAVY = (
    "aiohttp anyio bs4 httpx jinja2 litellm markdownify mcp openai pathspec platformdirs pydantic requests "
    "rich sqlalchemy sqlmodel textual tiktoken tomlkit typer"
)


def test_importing_the_wire_imports_nothing_heavy():
    code = (
        "import sys, crushpy.llm.openai.provider; "
        f"print(*sorted(set({HEAVY.split()!r}) & set(sys.modules)), "
        "'crushpy.llm.error_reader' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
