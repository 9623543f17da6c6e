"""Model servers on this machine: found at their ports; no other server is contacted or trusted."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM
from support.list_server import ListServer

from crushpy.core.errors import UsageError
from crushpy.llm import model_listing
from crushpy.llm.model_listing import choose_default, list_local_models, local_ports, open_provider
from crushpy.settings.schema import ProviderSettings, Settings


@asynccontextmanager
async def program(answer: bytes) -> AsyncIterator[int]:
    """Something that listens on loopback and says `answer` to whoever comes; nothing: it stays silent."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await (writer.drain() if answer else gone.wait())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        gone.set()


@pytest.mark.slow
async def test_the_servers_that_answer_are_found_with_their_models(
    llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_listing, "LOCAL_TIMEOUT_S", 4.0)
    llm.models = ["qwen3:8b", "text-embedding-small"]
    async with program(b"") as silent:
        monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"ollama={llm.port}, vllm={silent}")
        (model,) = await list_local_models(Settings())
    assert (model.info.name, model.api_base) == ("ollama/qwen3:8b", llm.api_base)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b'HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"data": [1, 2]}',
        b'HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\n{"data": []}',
        b"\x00\x01\x02 no HTTP at all",
        b"",
    ],
)
async def test_local_server_search_ignores_other_programs(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_listing, "LOCAL_TIMEOUT_S", 0.3)
    async with program(answer) as port:
        monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"vllm={port}")
        assert await list_local_models(Settings()) == []


async def test_a_closed_port_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:  # by somebody who does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"vllm={port}")
        assert await list_local_models(Settings()) == []


async def test_an_address_of_the_users_own_is_asked_once_under_its_own_name(
    llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"ollama={llm.port}")
    lab = ProviderSettings(api_base=f"http://localhost:{llm.port}/v1/")
    (model,) = await list_local_models(Settings(providers={"lab": lab}))
    assert model.info.name == "lab/test-model"
    assert await list_local_models(Settings(providers={"lab": lab}), set_up=False) == []


async def test_an_address_beyond_this_machine_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def note(*where: object, **_: object) -> object:
        asked.append(where)
        raise OSError("no network in this test")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "sock_connect", note)
    monkeypatch.setattr(loop, "getaddrinfo", note)
    bases = {"lab": "http://192.0.2.1/v1", "odd": "not a url", "mine": "https://models.example.org/v1"}
    providers = {name: ProviderSettings(api_base=base) for name, base in bases.items()}
    assert await list_local_models(Settings(providers=providers)) == []
    assert asked == []
    near = ProviderSettings(api_base="http://127.0.0.1:9/v1")
    await list_local_models(Settings(providers={"near": near}))
    assert asked, "the guard above sees what is asked"


def test_the_usual_ports_are_those_of_the_servers_people_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_ports() == {}  # as CRUSHPY_LOCAL_PORTS says in all tests
    monkeypatch.delenv("CRUSHPY_LOCAL_PORTS")
    assert local_ports() == {"ollama": 11434, "lm_studio": 1234, "llama_cpp": 8080, "vllm": 8000}


@pytest.mark.parametrize(
    "text", ["ollama", "ollama=", "=1", "ollama=many", "ollama=0", "ollama=99999", "a=1,b"]
)
def test_unreadable_ports_are_an_error_that_names_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", text)
    with pytest.raises(UsageError, match="CRUSHPY_LOCAL_PORTS"):
        local_ports()


class LoadingAnswers(dict[str, Any]):
    """Those of a llama.cpp server that still loads its model for the first few questions."""

    refusals = 3

    def get(self, path: str, default: Any = None) -> Any:
        if self.refusals:
            self.refusals -= 1
            return 503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
        return super().get(path, default)


ANSWERS = {
    "/v1/models": {"data": [{"id": "qwen"}]},
    "/props": {"total_slots": 1, "default_generation_settings": {"n_ctx": 16_384}},
}


async def test_server_that_loads_its_model_is_waited_for(
    lister: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_listing, "LOADING_PAUSE_S", 0.0)
    settings = Settings(providers={"openai": ProviderSettings(api_base=f"{lister.url}/v1")})
    lister.answers = LoadingAnswers(ANSWERS)
    provider, served = await open_provider("openai/qwen", settings)
    await provider.close()
    assert served is not None
    assert (served.context_window, served.slots) == (16_384, 1)
    lister.answers = LoadingAnswers(ANSWERS)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert await choose_default(settings) == "openai/qwen"


@pytest.mark.filterwarnings("error::RuntimeWarning")
async def test_interrupt_before_the_server_is_asked_leaves_no_question_behind(lister: ListServer) -> None:
    settings = Settings(providers={"openai": ProviderSettings(api_base=f"{lister.url}/v1")})
    lister.answers = {**ANSWERS, "/api/show": None}
    for turns in range(12):  # of the event loop: the interrupt comes a little later each time
        opening = asyncio.create_task(open_provider("openai/qwen", settings))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    lister.silent.set()
    gc.collect()
