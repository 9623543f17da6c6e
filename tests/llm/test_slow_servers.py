"""Slow servers: nothing is given up on this machine, and progress is reported where the server tells it."""

import asyncio
import json
import math
from contextlib import aclosing

import pytest
from conversing import ask, hear
from scripted_llm import Fail, Raw, Reply, ScriptedLLM, Stall

from crushpy.http.common import Timeouts
from crushpy.llm.errors import TimedOut
from crushpy.llm.http_provider import reply_timeouts
from crushpy.llm.openai.provider import ChatProvider
from crushpy.llm.protocol import PromptRead, Sent, TextPiece
from crushpy.llm.provider_factory import create_provider
from crushpy.llm.vendors import Endpoint
from crushpy.settings.schema import ProviderSettings, Settings


def reading(done: int, total: int) -> str:
    progress = {"total": total, "cache": 0, "processed": done, "time_ms": 1}
    delta = {"choices": [{"delta": {"role": "assistant", "content": None}}], "prompt_progress": progress}
    return f"data: {json.dumps(delta)}\n\n"


HELLO = 'data: {"choices": [{"delta": {"content": "hello"}}]}\n\n'
FINISH = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("address", "chosen", "limits"),
    [
        ("http://127.0.0.1:8080/v1", None, (math.inf, math.inf)),
        ("http://localhost:8080", None, (math.inf, math.inf)),
        ("http://127.0.0.1:8080/v1", 20.0, (20.0, 20.0)),
        ("https://api.example.org/v1", None, (Timeouts().response, Timeouts().idle)),
        ("http://192.0.2.7:8000/v1", 1_800.0, (1_800.0, 1_800.0)),
    ],
)
def test_only_servers_on_this_machine_are_waited_for_without_a_limit(address, chosen, limits):
    timeouts = reply_timeouts(address, chosen)
    assert (timeouts.response, timeouts.idle) == limits
    assert timeouts.connect == Timeouts().connect


async def test_timeout_of_the_settings_ends_a_silent_request(llm: ScriptedLLM):
    chosen = ProviderSettings(api_base=llm.api_base, timeout_s=0.05)
    provider = create_provider("openai/test", Settings(providers={"openai": chosen}))
    llm.script(Stall(headers=False))
    with pytest.raises(TimedOut):
        await hear(provider)
    await provider.close()


@pytest.fixture
async def provider(llm: ScriptedLLM):
    made = ChatProvider(Endpoint("", "openai", llm.api_base, "key"))
    yield made
    await made.close()


async def test_prompt_progress_is_read_from_the_stream(llm, provider):
    llm.script(Raw(reading(0, 2_200) + reading(1_400, 2_200) + reading(2_200, 2_200) + HELLO + FINISH))
    heard = await hear(provider)
    assert llm.requests[0].body["return_progress"] is True
    progress = [(piece.done, piece.total) for piece in heard.pieces if isinstance(piece, PromptRead)]
    assert progress == [(0, 2_200), (1_400, 2_200), (2_200, 2_200)]
    assert (heard.text, heard.done.finish) == ("hello", "stop")


async def test_server_that_refuses_to_report_progress_is_not_asked_again(llm, provider):
    llm.script(Fail(400, message="Unrecognized field: return_progress"), "one", "two")
    assert (await hear(provider)).text == "one"
    assert (await hear(provider)).text == "two"
    assert ["return_progress" in request.body for request in llm.requests] == [True, False, False]


async def test_second_request_waits_while_the_server_is_busy_with_the_first(llm, provider):
    llm.script(Stall(Reply("one"), headers=False), Stall(Reply("two"), headers=False))
    asked = [asyncio.create_task(hear(provider)) for _ in range(2)]
    await llm.wait_requests(2)
    llm.release()
    assert sorted(heard.text for heard in await asyncio.gather(*asked)) == ["one", "two"]


async def test_cancelling_while_the_prompt_is_read_closes_the_connection(llm, provider):
    llm.script(Raw(reading(512, 2_200), hang=True))
    async with aclosing(provider.stream(ask())) as pieces:
        assert [await anext(pieces), await anext(pieces)] == [Sent(), PromptRead(512, 2_200)]
    await llm.wait_closed()


async def test_text_that_may_become_a_call_tells_that_the_prompt_was_read(llm, provider):
    begun = 'data: {"choices": [{"delta": {"content": "{\\"name\\": \\"ls\\", "}}]}\n\n'
    llm.script(Raw(reading(2_200, 2_200) + begun, hang=True))
    async with aclosing(provider.stream(ask())) as pieces:
        told = [await anext(pieces) for _ in range(3)]
    assert told == [Sent(), PromptRead(2_200, 2_200), TextPiece("")]
