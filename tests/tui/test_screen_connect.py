"""How to connect a model, with real keys; tried against a real server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hosting import SIZES, shown
from scripted_llm.replies import Fail
from scripted_llm.server import ScriptedLLM
from support.variables import variables

from crushpy.core.errors import CrushpyError
from crushpy.llm.vendors import PROVIDERS
from crushpy.settings.schema import Settings
from crushpy.tui.screens import connect
from crushpy.tui.screens.connect import ConnectScreen, model_sources


@pytest.mark.parametrize("size", SIZES)
async def test_every_way_is_listed_with_what_is_missing(size: tuple[int, int]) -> None:
    async with shown(ConnectScreen(Settings()), size) as screen:
        assert "✓ demo/tour" in screen.text
        assert "✗ anthropic  ANTHROPIC_API_KEY" in screen.text
        for key in ("Enter Use", "F5 Try", "Esc Close"):
            assert key in screen.text
        await screen.press("down")
        assert "export ANTHROPIC_API_KEY=" in screen.text
        await screen.press("escape")
        assert screen.results == [None]


async def test_a_key_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    async with shown(ConnectScreen(Settings())) as screen:
        assert "✓ openai  OPENAI_API_KEY is set" in screen.text
        assert "sk-secret" not in screen.text
        await screen.press("enter")
        assert screen.results == ["openai/gpt-5.6"]


async def test_missing_provider_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def probe(model: str, settings: Settings) -> str:
        raise AssertionError(model)

    monkeypatch.setattr(connect, "probe_model", probe)
    async with shown(ConnectScreen(Settings(), "anthropic")) as screen:
        assert "demo/tour" not in screen.text  # the argument filters
        await screen.press("f5")
        assert screen.results == []
        assert any("ANTHROPIC_API_KEY" in message for message in screen.messages)


async def test_trying_says_how_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str | CrushpyError] = [CrushpyError("The key was refused.", "Make a new one."), "It works."]
    tried: list[str] = []
    ready = asyncio.Event()

    async def probe(model: str, settings: Settings) -> str:
        tried.append(model)
        await ready.wait()
        answer = answers.pop(0)
        if isinstance(answer, CrushpyError):
            raise answer
        return answer

    monkeypatch.setattr(connect, "probe_model", probe)
    monkeypatch.setenv("XAI_API_KEY", "x")
    async with shown(ConnectScreen(Settings(), "xai")) as screen:
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
    async with shown(ConnectScreen(settings, "machine")) as screen:
        assert "home on this machine" in screen.text
        await screen.press("f5")
        assert "home/qwen3:8b answered after" in screen.text
        llm.always(Fail(401, {"error": {"message": "no"}}))
        await screen.press("f5")
        assert "✗ home" in screen.text
        await screen.press("enter")
        assert screen.results == ["home/qwen3:8b"]


async def test_a_server_that_is_not_set_up_tells_both_ways(
    llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.models = ["qwen3:8b\x1b[31m"]
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"vllm={llm.port}")
    async with shown(ConnectScreen(Settings(), "vllm"), (120, 24)) as screen:
        assert f"once: OPENAI_BASE_URL={llm.api_base}" in screen.text
        assert "permanently: crushpy config set providers.vllm.api_base" in screen.text
        assert "\x1b" not in screen.text


def test_connect_lists_all_providers_ready_ones_first() -> None:
    with variables({"GROQ_API_KEY": "x"}):
        found = model_sources(Settings())
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
    with variables({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}):
        found = {place.name: place for place in model_sources(settings)}
    assert found["mistral"].state == "MY_KEY is not set"
    assert (found["mine"].ready, found["mine"].state) == (False, "MINE is not set")
    assert (found["openai"].ready, found["openai"].model) == (True, "")
    assert "any OpenAI-compatible server" not in found


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("ANTHROPIC_BASE_URL", "anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "gemini"),
        ("OPENAI_BASE_URL", "openai"),
        ("AZURE_API_BASE", "azure"),
    ],
)
def test_the_address_variables_of_every_vendor_are_heeded(variable: str, name: str) -> None:
    with variables({variable: "http://127.0.0.1:1/v1"}):
        found = {place.name: place for place in model_sources(Settings())}
    assert "at http://127.0.0.1:1/v1" in found[name].state
    assert f"{name}/<" in found[name].how


@pytest.fixture
def in_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A keyring for this process; the file it keeps things in."""
    import keyring.backends.fail
    from support.file_keyring import FileKeyring

    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    keyring.set_keyring(FileKeyring())
    yield tmp_path / "keyring.json"
    keyring.set_keyring(keyring.backends.fail.Keyring())


@pytest.mark.slow
async def test_a_key_is_stored_unseen_and_its_provider_is_ready_at_once(in_keyring: Path) -> None:
    async with shown(ConnectScreen(Settings(), "groq")) as screen:
        await screen.pilot.press("f2")
        await screen.until(lambda: "Key for groq" in screen.text)
        await screen.pilot.press(*"gsk-secret", "enter")
        await screen.settle()
        assert "gsk-secret" not in screen.text
        assert "✓ groq  key stored in the keyring" in screen.text
        assert any("is stored in the keyring" in message for message in screen.messages)
        await screen.press("enter")
        assert screen.results == ["groq/openai/gpt-oss-120b"]
    assert json.loads(in_keyring.read_text()) == {"crushpy/groq": "gsk-secret"}


async def test_connect_screen_refuses_an_invalid_key(in_keyring: Path) -> None:
    async with shown(ConnectScreen(Settings(), "groq")) as screen:
        await screen.pilot.press("f2")
        await screen.until(lambda: "Key for groq" in screen.text)
        await screen.pilot.press("a", "space", "b", "enter")
        await screen.until(lambda: "white space" in screen.text)
        await screen.press("escape")
        assert "✗ groq" in screen.text
    assert not in_keyring.exists()


async def test_connect_screen_names_the_variable_without_a_keyring(in_keyring: Path) -> None:
    import keyring.backends.fail

    keyring.set_keyring(keyring.backends.fail.Keyring())
    async with shown(ConnectScreen(Settings(), "groq")) as screen:
        await screen.pilot.press("f2")
        await screen.until(lambda: "Key for groq" in screen.text)
        await screen.pilot.press(*"gsk-secret", "enter")
        await screen.until(lambda: "Store it in a file" in screen.text)
        assert "gsk-secret" not in screen.text
        assert "Set GROQ_API_KEY in the environment" in screen.text
        await screen.pilot.press("escape")
        await screen.settle()
        assert "✗ groq" in screen.text


@pytest.mark.slow
async def test_connect_screen_stores_the_key_in_a_file_when_the_user_agrees(
    in_keyring: Path, home: Path
) -> None:
    import keyring.backends.fail

    keyring.set_keyring(keyring.backends.fail.Keyring())
    async with shown(ConnectScreen(Settings(), "groq")) as screen:
        await screen.pilot.press("f2")
        await screen.until(lambda: "Key for groq" in screen.text)
        await screen.pilot.press(*"gsk-secret", "enter")
        await screen.until(lambda: "Store it in a file" in screen.text)
        await screen.pilot.press("down", "enter")
        await screen.settle()
        assert "✓ groq  key stored in the file" in screen.text
    assert json.loads((home / "keys.json").read_text()) == {"groq": "gsk-secret"}


@pytest.mark.slow
async def test_enter_asks_for_the_key_that_is_missing(in_keyring: Path) -> None:
    async with shown(ConnectScreen(Settings(), "groq")) as screen:
        await screen.pilot.press("enter")
        await screen.until(lambda: "Key for groq" in screen.text)
        await screen.pilot.press(*"gsk-secret", "enter")
        await screen.settle()
        await screen.press("enter")
        assert screen.results == ["groq/openai/gpt-oss-120b"]


async def test_enter_asks_for_no_key_where_more_than_that_is_missing(in_keyring: Path) -> None:
    async with shown(ConnectScreen(Settings(), "azure")) as screen:
        await screen.press("enter")
        assert "Key for azure" not in screen.text
        assert any("export AZURE_API_BASE" in message for message in screen.messages)
