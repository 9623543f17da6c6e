"""What every provider must do, held against each of them, with the same scripted server."""

import asyncio
import json
import re

import pytest
from conversing import LS, hear, user
from providers_under_test import (
    KEYS,
    SHORT,
    WIRES,
    anthropic,
    chat,
    claude,
    every_provider,
    failure,
    gemini,
    litellm,
    openai_providers,
    responses,
)
from scripted_llm import (
    Call,
    Cut,
    Empty,
    Fail,
    Garbage,
    NoFinish,
    Overflow,
    RateLimit,
    Reply,
    Stall,
    StreamError,
)

from crushpy.core.messages import Message, Text, Usage
from crushpy.llm.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    CutStream,
    ModelError,
    RateLimited,
    Refused,
    TimedOut,
    Unavailable,
)
from crushpy.llm.protocol import CallPiece, Sent, TextPiece

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

# --- replies


@pytest.mark.slow
@every_provider
async def test_text_comes_in_pieces_as_it_is_sent(under, llm):
    llm.script(Stall(Reply(text="Hello, wörld ✓ 你好", chunk=3), after=2))
    text, before = "", ""
    async for piece in under.provider().stream(under.ask()):
        if isinstance(piece, TextPiece):
            text += piece.text
            if text == "Hello,":
                before = text
                llm.release()
    assert before, "what was sent is heard before the rest is"
    assert text == "Hello, wörld ✓ 你好"


@every_provider
async def test_events_before_a_failure_are_delivered(under, llm):
    llm.script(StreamError(Reply(text="Hello, world", chunk=3), after=2))
    heard: list[str] = []
    with pytest.raises(ModelError):
        async for piece in under.provider().stream(under.ask()):
            if isinstance(piece, TextPiece):
                heard.append(piece.text)
    assert "".join(heard) == "Hello,"


@every_provider
async def test_the_request_carries_system_history_and_tools(under, llm):
    llm.script("ok")
    await hear(under.provider(), under.ask(max_output_tokens=77))
    body, headers = llm.requests[0].body, llm.requests[0].headers
    assert llm.requests[0].tool_names == ["ls"]
    if under.kind == "gemini":
        assert llm.requests[0].path == "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
        assert headers["x-goog-api-key"] == "key"
        assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
        assert body["systemInstruction"] == {"parts": [{"text": "You are terse."}]}
        assert body["generationConfig"]["maxOutputTokens"] == 77
        return
    assert body["stream"] is True
    if under.kind == "responses":
        assert headers["authorization"] == "Bearer key"
        assert (body["model"], body["instructions"], body["store"]) == ("gpt-5", "You are terse.", False)
        words = [{"type": "input_text", "text": "hi"}]
        assert body["input"] == [{"type": "message", "role": "user", "content": words}]
        assert body["max_output_tokens"] == 77
        return
    assert body["max_tokens"] == 77
    if under.kind in ("claude", "anthropic"):
        assert body["model"] == "claude-sonnet-4-5"
        assert body["system"][0]["text"] == "You are terse."
        assert headers["x-api-key"] == "key"
    else:
        assert body["model"] == "test"
        assert body["messages"] == [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": "hi"},
        ]
        assert body["stream_options"] == {"include_usage": True}
        assert llm.requests[0].headers["authorization"] == "Bearer key"


@every_provider
async def test_thinking_is_told_apart_from_text(under, llm):
    llm.script(Reply(thinking="hm, let me see", text="42", chunk=4))
    heard = await hear(under.provider(), under.ask())
    assert (heard.thinking, heard.text) == ("hm, let me see", "42")


@every_provider
@pytest.mark.parametrize("size", range(1, 9))
async def test_parallel_calls_survive_arguments_split_anywhere(under, llm, size):
    first, second = {"path": 'a "quoted" ü\n'}, {"path": "b", "deep": {"list": [1, 2.5, None]}}
    llm.script(Reply(text="I look.", calls=[Call("ls", first), Call("ls", second)], chunk=size))
    heard = await hear(under.provider(), under.ask())
    assert [(name, json.loads(args)) for _, name, args in heard.calls] == [("ls", first), ("ls", second)]
    assert len({call_id for call_id, _, _ in heard.calls}) == 2
    assert heard.text == "I look."
    assert heard.done.finish == "tool_calls"


@every_provider
async def test_usage_tells_cached_from_fresh_input(under, llm):
    writes = under.kind in ("claude", "anthropic")
    given = Usage(100, 20, cache_read_tokens=30, cache_write_tokens=5 if writes else 0)
    llm.script(Reply(text="x", usage=given))
    used = (await hear(under.provider(), under.ask())).done.usage
    assert (used.input_tokens, used.output_tokens) == (100, 20)
    assert (used.cache_read_tokens, used.cache_write_tokens) == (30, given.cache_write_tokens)


@pytest.mark.parametrize("kind", [chat, anthropic, gemini, responses, litellm])
async def test_usage_that_was_not_reported_is_not_made_up(under, llm):
    llm.script(Reply(text="some words", usage=None))
    assert (await hear(under.provider(), under.ask())).done.usage is None


@every_provider
@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_the_finish_reason_is_passed_on(under, llm, finish):
    llm.script(Reply(text="x", finish=finish))
    assert (await hear(under.provider(), under.ask())).done.finish == finish


@openai_providers
async def test_a_filtered_reply_says_so(under, llm):
    llm.script(Reply(text="x", finish="content_filter"))
    assert (await hear(under.provider(), under.ask())).done.finish == "content_filter"


@pytest.mark.parametrize("kind", [anthropic, gemini, responses])
async def test_a_refusal_is_an_error_that_names_the_model_and_is_not_tried_again(under, llm):
    llm.script(Reply(text="x", finish="content_filter"))
    error = await failure(under)
    assert isinstance(error, Refused)
    assert under.model in error.message
    assert not error.retryable


@pytest.mark.parametrize("kind", [chat, anthropic, responses, litellm, claude])
async def test_length_inside_tool_arguments_is_not_called_a_tool_call(under, llm):
    llm.script(Reply(calls=[Call("ls", '{"path": "half')], finish="length"))
    heard = await hear(under.provider(), under.ask())
    assert heard.done.finish == "length"
    assert heard.calls[0][2] == '{"path": "half'


@openai_providers
async def test_calls_that_end_with_stop_are_calls_all_the_same(under, llm):
    llm.script(Reply(calls=[Call("ls", {})], finish="stop"))
    assert (await hear(under.provider(), under.ask())).done.finish == "tool_calls"


@every_provider
async def test_an_empty_reply_is_complete_and_empty(under, llm):
    llm.script(Empty())
    heard = await hear(under.provider(), under.ask())
    assert (heard.text, heard.calls) == ("", [])


@every_provider
async def test_a_long_history_is_sent_whole_and_in_order_each_time(under, llm):
    """Much that is new is written beside the event loop; of the next request only the end is."""
    history = [user("begin", 0)]
    for number in range(1, 701):
        said = Message(id=f"a{number}", role="assistant", parts=(Text(f"said-{number}. "),))
        history += [said, user(f"asked-{number}. ", number)]
    expected = [f"{word}-{number}" for number in range(1, 701) for word in ("said", "asked")]
    llm.script("ok", "ok", "ok")
    provider = under.provider()
    await asyncio.gather(*(hear(provider, under.ask(messages=history[:1_001])) for _ in range(2)))
    await hear(provider, under.ask(messages=history))
    sent = [re.findall(r"(?:said|asked)-\d+", json.dumps(request.body)) for request in llm.requests]
    assert sent == [expected[:1_000], expected[:1_000], expected]


@every_provider
async def test_the_same_piece_two_hundred_times_is_no_error(under, llm):
    llm.script(Reply(text="----" * 200, chunk=4))
    assert (await hear(under.provider(), under.ask())).text == "----" * 200


@every_provider
async def test_requests_run_concurrently(under, llm):
    llm.always(lambda body: "echo " + json.dumps(body))
    provider = under.provider()
    heard = await asyncio.gather(*(hear(provider, under.ask(text=f"number {n}")) for n in range(5)))
    assert [f"number {n}" in each.text for n, each in enumerate(heard)] == [True] * 5


@openai_providers
async def test_effort_is_passed_on_only_where_it_is_set(under, llm):
    llm.script("a", "b")
    provider = under.provider()
    await hear(provider, under.ask(effort="high"))
    await hear(provider, under.ask())
    assert llm.requests[0].body["reasoning_effort"] == "high"
    assert "reasoning_effort" not in llm.requests[1].body


# --- interruption


@every_provider
@pytest.mark.parametrize("headers", [True, False], ids=["mid-reply", "before-reply"])
async def test_cancelling_the_reader_closes_the_socket(under, llm, headers):
    llm.script(Stall(Reply(text="abcdef", chunk=2), headers=headers))
    provider, seen = under.provider(), asyncio.Event()

    async def read() -> None:
        async for piece in provider.stream(under.ask()):
            if isinstance(piece, TextPiece):
                seen.set()

    task = asyncio.create_task(read())
    await llm.wait_requests()
    if headers:
        await asyncio.wait_for(seen.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await llm.wait_closed()


@every_provider
@pytest.mark.parametrize(
    ("last", "headers"),
    [(Sent, False), (Sent, True), (TextPiece, True)],
    ids=["before-reply", "unread-reply", "mid-reply"],
)
async def test_closing_the_stream_closes_the_socket(under, llm, last, headers):
    llm.script(Stall(Reply(text="abcdef", chunk=2), headers=headers))
    stream = under.provider().stream(under.ask())
    async for piece in stream:
        if isinstance(piece, last):
            break
    await llm.wait_requests()
    await stream.aclose()
    await llm.wait_closed()


# --- failures, each mapped to one of our own


@every_provider
@pytest.mark.parametrize("given", [None, 7, 0.25])
async def test_429_is_rate_limited_with_the_wait_it_names(under, llm, given):
    llm.script(RateLimit(retry_after=given))
    error = await failure(under)
    assert isinstance(error, RateLimited)
    assert error.retry_after == given
    assert "Rate limit reached." in error.message


@every_provider
@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_5xx_is_unavailable(under, llm, status):
    llm.script(Fail(status, message="gone fishing"))
    error = await failure(under)
    assert isinstance(error, Unavailable)
    assert error.status == status
    assert "gone fishing" in error.message


@every_provider
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_an_authentication_failure_that_names_the_variable(under, llm, status):
    llm.script(Fail(status, message="who are you"))
    error = await failure(under)
    assert isinstance(error, AuthenticationFailed)
    assert "who are you" in error.message
    assert KEYS.get(under.kind, "OPENAI_API_KEY") in error.hint


@every_provider
async def test_an_unknown_model_is_a_bad_request_that_names_it(under, llm):
    llm.script(Fail(404, message="no such model"))
    error = await failure(under)
    assert isinstance(error, BadRequest)
    assert under.model in error.message
    assert "crushpy models" in error.hint


@every_provider
async def test_400_is_a_bad_request_with_the_servers_words(under, llm):
    llm.script(Fail(400, message="temperature must be cold"))
    error = await failure(under)
    assert isinstance(error, BadRequest)
    assert "temperature must be cold" in error.message


@every_provider
async def test_an_overflow_names_the_window(under, llm):
    llm.script(Overflow(limit=8192))
    error = await failure(under)
    assert isinstance(error, ContextOverflow)
    assert error.limit == 8192


@every_provider
async def test_an_account_without_credit_is_not_retried(under, llm):
    out_of_quota = Fail(429, message="You exceeded your current quota.", code="insufficient_quota")
    out_of_credit = Fail(400, message="Your credit balance is too low to access the API.")
    openai = under.kind in ("chat", "responses", "litellm")
    llm.script(out_of_quota if openai else out_of_credit)
    error = await failure(under)
    assert isinstance(error, AuthenticationFailed)
    assert not error.retryable
    assert "credit" in error.hint


@every_provider
async def test_408_is_a_timeout(under, llm):
    llm.script(Fail(408))
    assert isinstance(await failure(under), TimedOut)


@every_provider
async def test_a_refused_connection_is_unavailable_and_names_the_address(under, llm):
    error = await failure(under, api_base="http://127.0.0.1:1/v1")
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:1" in error.message


@every_provider
async def test_silence_before_the_reply_times_out_and_closes_the_socket(under, llm):
    llm.script(Stall(headers=False))
    assert isinstance(await failure(under, SHORT), TimedOut)
    await llm.wait_closed()


@every_provider
async def test_silence_in_the_middle_times_out_and_closes_the_socket(under, llm):
    llm.script(Stall())
    assert isinstance(await failure(under, SHORT), TimedOut)
    await llm.wait_closed()


@every_provider
async def test_a_stream_cut_in_the_middle_of_arguments_never_ends_well(under, llm):
    calls = [Call("ls", {"path": "abcdefghijkl"}), Call("ls", {"path": "b"})]
    llm.script(Cut(Reply(calls=calls, chunk=3)))
    pieces = []
    with pytest.raises(CutStream) as cut:
        async for piece in under.provider().stream(under.ask()):
            pieces.append(piece)
    assert cut.value.retryable
    if under.kind in WIRES:  # below litellm, aiohttp may drop what came right before the cut
        assert any(isinstance(piece, CallPiece) and piece.args for piece in pieces)
    assert not any(type(piece).__name__ == "Done" for piece in pieces)


@every_provider
@pytest.mark.parametrize("after", [0, 1])
async def test_a_stream_cut_in_the_middle_of_text_is_a_cut_stream(under, llm, after):
    llm.script(Cut(Reply(text="abcdef", chunk=2), after=after))
    assert isinstance(await failure(under), CutStream)


@every_provider
async def test_a_piece_that_is_no_json_is_a_cut_stream(under, llm):
    llm.script(Garbage(Reply(text="abcdef", chunk=2)))
    assert isinstance(await failure(under), CutStream)


@every_provider
async def test_an_end_without_a_finish_is_a_cut_stream(under, llm):
    llm.script(NoFinish(Reply(calls=[Call("ls", {"path": "."})])))
    assert isinstance(await failure(under), CutStream)


@every_provider
async def test_an_error_inside_the_stream_is_reported_in_its_own_words(under, llm):
    llm.script(StreamError(message="the engine is on fire"))
    error = await failure(under)
    assert isinstance(error, Unavailable)
    assert "the engine is on fire" in error.message


@openai_providers
async def test_an_overflow_inside_the_stream_is_an_overflow(under, llm):
    words = "request (900 tokens) exceeds the available context size (512 tokens), try increasing it"
    llm.script(StreamError(after=0, message=words, code=400))
    error = await failure(under)
    assert isinstance(error, ContextOverflow)
    assert error.limit == 512


@openai_providers
async def test_a_server_that_wants_no_late_system_message_gets_the_status_in_the_last_message(under, llm):
    refusal = Fail(500, message="Jinja Exception: System message must be at the beginning.")
    llm.script(refusal, "fine", "again")
    provider = under.provider()
    heard = await hear(provider, under.ask(status="<s>50</s>"))
    assert heard.text == "fine"
    assert [m["content"] for m in llm.requests[0].messages][1:] == ["hi", "<s>50</s>"]
    assert [m["content"] for m in llm.requests[1].messages][1:] == ["hi\n\n<s>50</s>"]
    await hear(provider, under.ask(status="<s>60</s>"))
    assert [m["content"] for m in llm.requests[2].messages][1:] == ["hi\n\n<s>60</s>"]


@every_provider
async def test_a_failed_request_is_sent_once(under, llm):
    """Retries are the engine's; a provider that retries by itself would hide them."""
    llm.script(Fail(500), "second")
    await failure(under)
    assert len(llm.requests) == 1


@openai_providers
async def test_tools_are_offered_in_the_openai_form(under, llm):
    llm.script(Reply(calls=[Call("ls", {"path": "."})]))
    heard = await hear(under.provider(), under.ask())
    function = llm.requests[0].body["tools"][0]["function"]
    assert function == {"name": "ls", "description": LS.description, "parameters": LS.parameters}
    assert heard.calls[0][1] == "ls"


@every_provider
async def test_sent_comes_while_the_server_is_still_thinking(under, llm):
    llm.script(Stall(Reply(text="x"), headers=False))
    stream = under.provider().stream(under.ask())
    assert isinstance(await anext(stream), Sent)  # with litellm only once that is loaded
    await llm.wait_requests()
    llm.release()
    rest = [piece async for piece in stream]
    assert isinstance(rest[0], TextPiece)
