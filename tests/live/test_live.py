"""Both providers against a real llama.cpp server with a real (tiny) model: what no script can show."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from crushpy.core.messages import Json, Message, Text, ToolCall, ToolResult
from crushpy.http.client import Client
from crushpy.llm.errors import BadRequest, ContextOverflow
from crushpy.llm.litellm.provider import LiteLLMProvider, ProviderAccess
from crushpy.llm.openai.provider import ChatProvider
from crushpy.llm.protocol import CallPiece, Done, Piece, Provider, Request, TextPiece, ToolSpec

WINDOW = 1024
MODEL = "openai/smollm2"
LS = ToolSpec(
    "ls",
    "Lists a folder.",
    {"type": "object", "properties": {"path": {"type": "string", "maxLength": 12}}, "required": ["path"]},
)
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
Make = Callable[..., Provider]


@pytest.fixture(params=["wire", "litellm"])
async def make(request: pytest.FixtureRequest, model_server: str) -> AsyncIterator[Make]:
    """Makes a provider for the live server; what is given goes into every request."""
    made: list[Provider] = []

    def provider(**extra: object) -> Provider:
        base, more = f"{model_server}/v1", {"temperature": 0.0, **extra}
        if request.param == "wire":
            made.append(ChatProvider(base, extra=more))
        else:
            made.append(LiteLLMProvider(ProviderAccess(base, extra=more)))
        return made[-1]

    yield provider
    for boundary in made:
        await boundary.close()


def user(text: str, number: int = 0) -> Message:
    return Message(id=f"u{number}", role="user", parts=(Text(text),))


def ask(*messages: Message, tokens: int = 16, tools: tuple[ToolSpec, ...] = (), status: str = "") -> Request:
    return Request(
        model=MODEL,
        system="You are a helpful assistant.",
        messages=messages,
        tools=tools,
        max_output_tokens=tokens,
        status=status,
    )


async def hear(provider: Provider, request: Request) -> tuple[list[Piece], Done]:
    pieces = [piece async for piece in provider.stream(request)]
    done = pieces[-1]
    assert isinstance(done, Done)
    return pieces, done


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


async def test_text_streams_token_by_token_and_stops_at_the_limit(make: Make):
    pieces, done = await hear(make(), ask(user("Tell me about the sea."), tokens=12))
    assert sum(isinstance(piece, TextPiece) for piece in pieces) > 5
    assert done.finish == "length"


async def test_usage_is_exact_and_a_repeated_prompt_comes_from_the_cache(make: Make):
    provider, request = make(), ask(user("Count from one to ten, please."), tokens=5)
    _, first = await hear(provider, request)
    _, second = await hear(provider, request)
    assert first.usage and second.usage
    assert first.usage.output_tokens == second.usage.output_tokens == 5
    assert second.usage.cache_read_tokens > 0
    everything = [u.input_tokens + u.cache_read_tokens for u in (first.usage, second.usage)]
    assert everything[0] == everything[1] > 10


async def test_a_reply_follows_a_json_schema(make: Make):
    schema: Json = {
        "type": "object",
        "properties": {"size": {"enum": ["small", "large"]}},
        "required": ["size"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    pieces, done = await hear(make(response_format=form), ask(user("How large is a mouse?"), tokens=60))
    assert json.loads(text(pieces))["size"] in ("small", "large")
    assert done.finish == "stop"


def shown_how(path: str, number: int) -> list[Message]:
    """One round of what is wanted: a model this small learns it from examples only."""
    call = ToolCall(f"call{number}", "ls", {"path": path})
    return [
        user(f"ls {path}", number),
        Message(id=f"a{number}", role="assistant", parts=(call,), model=MODEL),
        Message(id=f"r{number}", role="tool", parts=(ToolResult(call.id, "ls", "x"),)),
        Message(id=f"b{number}", role="assistant", parts=(Text("x"),), model=MODEL),
    ]


async def test_the_model_calls_a_tool_with_arguments_that_stream(make: Make):
    history = [message for n, path in enumerate(("/a", "/b", "/c")) for message in shown_how(path, n)]
    request = ask(*history, user("ls /tmp", 9), tokens=60, tools=(LS,))
    pieces, done = await hear(make(), request)
    slices = [piece for piece in pieces if isinstance(piece, CallPiece)]
    assert done.finish == "tool_calls"
    assert {piece.index for piece in slices} == {0}
    assert [piece.name for piece in slices if piece.name] == ["ls"]
    assert len(slices) > 2
    assert json.loads("".join(piece.args for piece in slices)) == {"path": "/tmp"}


async def test_a_request_larger_than_the_window_is_an_overflow_that_names_it(make: Make):
    with pytest.raises(ContextOverflow) as overflow:
        await hear(make(), ask(user("word " * 3000)))
    assert overflow.value.limit == WINDOW


async def test_a_bad_request_has_the_servers_words(make: Make):
    with pytest.raises(BadRequest, match=r"grammar|schema|response_format|JSON"):
        await hear(make(response_format={"type": "nonsense"}), ask(user("hi")))


async def test_cancelling_stops_the_server_from_working_on(make: Make, model_server: str):
    client, seen = Client(), asyncio.Event()
    provider = make()

    async def read() -> None:
        async for piece in provider.stream(ask(user("Write a very long story about the sea."), tokens=900)):
            if isinstance(piece, TextPiece):
                seen.set()

    async def busy() -> bool:
        response = await client.request("GET", f"{model_server}/slots")
        return any(slot["is_processing"] for slot in json.loads(await response.read()))

    task = asyncio.create_task(read())
    await asyncio.wait_for(seen.wait(), 120)
    assert await busy()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while await busy():
            await asyncio.sleep(0.05)
    await client.close()


async def test_a_status_after_the_last_message_is_read(make: Make):
    status = '<context_status>{"used_pct":50}</context_status>'
    provider = make()
    _, without = await hear(provider, ask(user("Hello there, friend."), tokens=3))
    _, with_status = await hear(provider, ask(user("Hello there, friend."), tokens=3, status=status))
    assert without.usage and with_status.usage
    assert with_status.usage.total > without.usage.total + 10
