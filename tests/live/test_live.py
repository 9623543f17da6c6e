"""Both providers against a real llama.cpp server with a real (tiny) model: what no script can show.

With `bin/live --server URL` against any server of the protocol: what it cannot do is skipped, and what its
model says is not assumed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from conftest import LiveServer

from crushpy.core.messages import Json, Message, Text, ToolCall, ToolResult
from crushpy.http.client import Client
from crushpy.http.common import Timeouts
from crushpy.llm.errors import BadRequest, ContextOverflow, Unavailable
from crushpy.llm.litellm.provider import LiteLLMProvider, ProviderAccess
from crushpy.llm.openai.provider import ChatProvider
from crushpy.llm.protocol import CallPiece, Done, Piece, Provider, Request, TextPiece, ThinkingPiece, ToolSpec
from crushpy.llm.vendors import Endpoint

MAX_OVERFLOW_WINDOW = 4_096
"""A larger window takes long to overflow."""
LS = ToolSpec(
    "ls",
    "Lists a folder.",
    {"type": "object", "properties": {"path": {"type": "string", "maxLength": 12}}, "required": ["path"]},
)
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(3_000),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
SLOW = Timeouts(response=2_000, idle=2_000)


@pytest.fixture(params=["wire", "litellm"])
async def provider(request: pytest.FixtureRequest, model_server: LiveServer) -> AsyncIterator[Provider]:
    base = f"{model_server.url}/v1"
    made: Provider = (
        ChatProvider(Endpoint(model_server.model, "openai", base, "none"))
        if request.param == "wire"
        else LiteLLMProvider(ProviderAccess(base, "none", timeouts=SLOW))
    )
    yield made
    await made.close()


@pytest.fixture
def ask(model_server: LiveServer) -> Callable[..., Request]:
    def make(
        *messages: Message, tokens: int = 16, tools: tuple[ToolSpec, ...] = (), status: str = ""
    ) -> Request:
        return Request(
            model=model_server.model,
            system="You are a helpful assistant.",
            messages=messages,
            tools=tools,
            max_output_tokens=tokens,
            status=status,
        )

    return make


def user(text: str, number: int = 0) -> Message:
    return Message(id=f"u{number}", role="user", parts=(Text(text),))


async def hear(provider: Provider, request: Request) -> tuple[list[Piece], Done]:
    pieces = [piece async for piece in provider.stream(request)]
    done = pieces[-1]
    assert isinstance(done, Done)
    return pieces, done


def spoken(pieces: list[Piece]) -> int:
    return sum(isinstance(piece, TextPiece | ThinkingPiece) for piece in pieces)


Ask = Callable[..., Request]


async def test_text_streams_token_by_token_and_stops_at_the_limit(provider: Provider, ask: Ask):
    pieces, done = await hear(provider, ask(user("Tell me a long story about the sea."), tokens=12))
    assert spoken(pieces) > 5
    assert done.finish == "length"


async def test_usage_is_exact_and_a_repeated_prompt_comes_from_the_cache(
    provider: Provider, ask: Ask, model_server: LiveServer
):
    request = ask(user("Count from one to twenty in words, please."), tokens=5)
    _, first = await hear(provider, request)
    _, second = await hear(provider, request)
    assert first.usage and second.usage
    assert first.usage.output_tokens == second.usage.output_tokens == 5
    everything = [u.input_tokens + u.cache_read_tokens for u in (first.usage, second.usage)]
    assert everything[0] == everything[1] > 10
    if not (second.usage.cache_read_tokens or model_server.is_ours):
        pytest.skip("the server does not report cached tokens")
    assert second.usage.cache_read_tokens > 0


def shown_how(path: str, number: int, model: str) -> list[Message]:
    """One round of what is wanted: a model this small learns it from examples only."""
    call = ToolCall(f"call{number}", "ls", {"path": path})
    return [
        user(f"ls {path}", number),
        Message(id=f"a{number}", role="assistant", parts=(call,), model=model),
        Message(id=f"r{number}", role="tool", parts=(ToolResult(call.id, "ls", "x"),)),
        Message(id=f"b{number}", role="assistant", parts=(Text("x"),), model=model),
    ]


async def test_the_model_calls_a_tool_with_arguments_that_stream(
    provider: Provider, ask: Ask, model_server: LiveServer
):
    shown = [shown_how(path, n, model_server.model) for n, path in enumerate(("/a", "/b", "/c"))]
    history = [message for messages in shown for message in messages]
    pieces, done = await hear(provider, ask(*history, user("ls /tmp", 9), tokens=60, tools=(LS,)))
    slices = [piece for piece in pieces if isinstance(piece, CallPiece)]
    if not (slices or model_server.is_ours):
        pytest.skip("the model answered without a call")
    assert done.finish == "tool_calls"
    assert [piece.name for piece in slices if piece.name] == ["ls"] * len({piece.index for piece in slices})
    if model_server.is_ours:
        assert len(slices) > 2
        assert json.loads("".join(piece.args for piece in slices)) == {"path": "/tmp"}


async def test_a_request_larger_than_the_window_is_an_overflow_that_names_it(
    provider: Provider, ask: Ask, model_server: LiveServer
):
    window = model_server.window
    if window is None or window > MAX_OVERFLOW_WINDOW:
        pytest.skip(f"the window is not known to be small: {window}")
    with pytest.raises(ContextOverflow) as overflow:
        await hear(provider, ask(user("word " * window * 3)))
    assert overflow.value.limit in (window, None)


async def test_a_refused_request_has_the_servers_words(
    provider: Provider, ask: Ask, model_server: LiveServer
):
    parameters: Json = {"type": "object", "properties": {"path": {"type": "nonsense"}}}
    try:
        await hear(provider, ask(user("hi"), tools=(ToolSpec("ls", "Lists a folder.", parameters),)))
    except (BadRequest, Unavailable) as refusal:
        assert any(word in str(refusal) for word in ("nonsense", "grammar", "schema", "type"))
    else:
        if model_server.is_ours:
            pytest.fail("the server accepted a schema that has no meaning")
        pytest.skip("the server accepts any schema")


async def test_cancelling_stops_the_server_from_working_on(
    provider: Provider, ask: Ask, model_server: LiveServer
):
    try:
        urlopen(f"{model_server.url}/slots", timeout=60).close()
    except URLError as error:
        pytest.skip(f"the server does not show what it is doing: {error}")
    client, seen = Client(), asyncio.Event()

    async def read() -> None:
        async for piece in provider.stream(ask(user("Write a very long story about the sea."), tokens=900)):
            if isinstance(piece, TextPiece | ThinkingPiece):
                seen.set()

    async def busy() -> bool:
        response = await client.request("GET", f"{model_server.url}/slots")
        return any(slot["is_processing"] for slot in json.loads(await response.read()))

    task = asyncio.create_task(read())
    await asyncio.wait_for(seen.wait(), 1_000)
    assert await busy()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(120):
        while await busy():
            await asyncio.sleep(0.05)
    await client.close()


async def test_a_status_after_the_last_message_is_read(provider: Provider, ask: Ask):
    status = '<context_status>{"used_pct":50}</context_status>'
    _, without = await hear(provider, ask(user("Hello there, friend."), tokens=3))
    _, with_status = await hear(provider, ask(user("Hello there, friend."), tokens=3, status=status))
    assert without.usage and with_status.usage
    assert with_status.usage.total > without.usage.total + 10
