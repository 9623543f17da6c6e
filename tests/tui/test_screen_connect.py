"""How to connect a model, with real keys; tried against a real server."""

import asyncio

import msgspec
import pytest
from hosting import SIZES, shown
from scripted_llm.replies import Fail
from scripted_llm.server import ScriptedLLM

from crushpy.errors import CrushpyError
from crushpy.llm.vendors import PROVIDERS
from crushpy.settings import Settings
from crushpy.tui.screens.connect import ConnectScreen, model_sources

NOBODY = {"CRUSHPY_LOCAL_PORTS": ""}


@pytest.mark.parametrize("size", SIZES)
async def test_every_way_is_listed_with_what_is_missing(size: tuple[int, int]) -> None:
    async with shown(ConnectScreen(Settings(), environ=NOBODY), size) as screen:
        assert "✓ demo/tour" in screen.text
        assert "✗ anthropic  ANTHROPIC_API_KEY" in screen.text
        for key in ("Enter Use it", "F5 Try it", "Esc Close"):
            assert key in screen.text
        await screen.press("down")
        assert "export ANTHROPIC_API_KEY=" in screen.text
        await screen.press("escape")
        assert screen.results == [None]


async def test_a_key_is_named_and_never_shown() -> None:
    environ = {**NOBODY, "OPENAI_API_KEY": "sk-secret-value"}
    async with shown(ConnectScreen(Settings(), environ=environ)) as screen:
        assert "✓ openai  OPENAI_API_KEY is set" in screen.text
        assert "sk-secret" not in screen.text
        await screen.press("enter")
        assert screen.results == ["openai/gpt-5.6"]


async def test_what_is_missing_cannot_be_used_or_tried() -> None:
    async def check(model: str) -> str:
        raise AssertionError(model)

    async with shown(ConnectScreen(Settings(), "anthropic", check, NOBODY)) as screen:
        assert "demo/tour" not in screen.text  # the argument filters
        await screen.press("enter", "f5")
        assert screen.results == []
        assert any("ANTHROPIC_API_KEY" in message for message in screen.messages)


async def test_trying_says_how_it_went() -> None:
    answers: list[str | CrushpyError] = [CrushpyError("The key was refused.", "Make a new one."), "It works."]
    tried: list[str] = []
    ready = asyncio.Event()

    async def check(model: str) -> str:
        tried.append(model)
        await ready.wait()
        answer = answers.pop(0)
        if isinstance(answer, CrushpyError):
            raise answer
        return answer

    environ = {**NOBODY, "XAI_API_KEY": "x"}
    async with shown(ConnectScreen(Settings(), "xai", check, environ)) as screen:
        await screen.pilot.press("f5")
        await screen.until(lambda: "Trying xai/grok-4.7" in screen.text)
        ready.set()
        await screen.settle()
        assert "The key was refused." in screen.text
        assert "✗ xai" in screen.text
        await screen.press("f5")
        assert "It works." in screen.text
        assert "✓ xai" in screen.text
        assert tried == ["xai/grok-4.7"] * 2


async def test_a_server_on_this_machine_is_found_and_tried(llm: ScriptedLLM) -> None:
    llm.models = ["qwen3:8b"]
    llm.always("OK")
    settings = msgspec.convert({"providers": {"home": {"api_base": llm.api_base}}}, Settings)
    async with shown(ConnectScreen(settings, "machine", environ=NOBODY)) as screen:
        assert "home on this machine" in screen.text
        await screen.press("f5")
        assert "home/qwen3:8b answered after" in screen.text
        llm.always(Fail(401, {"error": {"message": "no"}}))
        await screen.press("f5")
        assert "✗ home" in screen.text
        await screen.press("enter")
        assert screen.results == ["home/qwen3:8b"]


async def test_a_server_that_is_not_set_up_tells_both_ways(llm: ScriptedLLM) -> None:
    llm.models = ["qwen3:8b\x1b[31m"]
    environ = {"CRUSHPY_LOCAL_PORTS": f"vllm={llm.port}"}
    async with shown(ConnectScreen(Settings(), "vllm", environ=environ), (120, 24)) as screen:
        assert f"once: OPENAI_BASE_URL={llm.api_base}" in screen.text
        assert "for good: crushpy config set providers.vllm.api_base" in screen.text
        assert "\x1b" not in screen.text


def test_all_known_providers_are_there_and_ready_ones_come_first() -> None:
    found = model_sources(Settings(), {"GROQ_API_KEY": "x"})
    assert {provider.name for provider in PROVIDERS} <= {place.name for place in found}
    assert [place.name for place in found if place.ready] == ["groq", "demo/tour"]
    assert [place.ready for place in found] == sorted((place.ready for place in found), reverse=True)


def test_a_variable_of_the_users_own_and_a_server_of_their_own_are_heeded() -> None:
    settings = msgspec.convert(
        {
            "providers": {
                "mistral": {"api_key_env": "MY_KEY"},
                "mine": {"api_base": "http://10.0.0.1/v1", "api_key_env": "MINE"},
            }
        },
        Settings,
    )
    found = {
        place.name: place for place in model_sources(settings, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    }
    assert found["mistral"].state == "MY_KEY is not set"
    assert (found["mine"].ready, found["mine"].state) == (False, "MINE is not set")
    assert (found["openai"].ready, found["openai"].model) == (True, "")
    assert "any OpenAI-compatible server" not in found
