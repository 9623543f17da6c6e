"""The picker of models, with real keys on the real catalog and a real server on this machine."""

import msgspec
import pytest
from hosting import SIZES, Shown, shown
from scripted_llm.server import ScriptedLLM
from support.list_server import ListServer

from crushpy.llm.model_listing import ask_servers
from crushpy.settings.schema import ModelSettings, Settings
from crushpy.tui.screens.models import ModelsScreen
from crushpy.tui.widgets.row_list import RowList

pytestmark = pytest.mark.slow

GROQ = "groq/openai/gpt-oss-120b"


@pytest.fixture(autouse=True)
def nothing_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "")
    monkeypatch.setenv("GROQ_API_KEY", "x")


def rows(screen: Shown) -> list[str]:
    region = screen.app.screen.query_one(RowList).region
    lines = [line.strip("│▌ ") for line in screen.lines[region.y : region.bottom]]
    return [line for line in lines if line]


@pytest.mark.parametrize("size", SIZES)
async def test_models_screen_shows_usable_models_and_marks_the_current(size: tuple[int, int]) -> None:
    async with shown(ModelsScreen(Settings(), GROQ), size) as screen:
        assert rows(screen)[0].startswith("demo/tour")
        assert any(row.startswith(f"● {GROQ}") for row in rows(screen))
        assert "anthropic/" not in screen.text
        assert "more are known" in screen.text or size[0] == 40
        for key in ("Enter Use", "Esc Close"):
            assert key in screen.text
        await screen.press("enter")  # the cursor starts on the current one
        assert screen.results == [GROQ]


async def test_a_row_has_window_and_prices() -> None:
    known = {"groq/mine": ModelSettings(context_window=64_000, input_cost=1.5, output_cost=0.0)}
    async with shown(ModelsScreen(Settings(models=known), GROQ)) as screen:
        row = screen.line("groq/mine")
        assert row.strip("│ ").split()[-3:] == ["64k", "1.50", "free"]


async def test_typing_finds_models_out_of_reach_and_says_what_is_missing() -> None:
    async with shown(ModelsScreen(Settings(), GROQ)) as screen:
        await screen.type("anthropic claude-sonnet-4-5")
        assert "set ANTHROPIC_API_KEY" in rows(screen)[0] or "set ANT" in rows(screen)[0]
        await screen.press("enter")
        assert screen.results == []
        assert any("set ANTHROPIC_API_KEY" in message for message in screen.messages)


async def test_a_name_of_ones_own_can_be_used() -> None:
    async with shown(ModelsScreen(Settings(), GROQ)) as screen:
        await screen.type("openai/my-own")
        assert rows(screen) == ["use openai/my-own as typed"]
        await screen.press("enter")
        assert screen.results == ["openai/my-own"]


async def test_models_screen_says_when_nothing_matches() -> None:
    async with shown(ModelsScreen(Settings(), GROQ)) as screen:
        await screen.type("zzzzzz")
        assert rows(screen) == []
        assert "No model matches" in screen.text
        await screen.press("enter", "escape")
        assert screen.results == [None]


async def test_servers_on_this_machine_are_found_when_it_opens(
    llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.models = ["qwen3:8b", "evil\x1b[31m[b]"]
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", f"ollama={llm.port}")
    async with shown(ModelsScreen(Settings(), GROQ), (120, 30)) as screen:
        assert "ollama/qwen3:8b" in screen.text
        assert "ollama/evil[b]" in screen.text
        await screen.type("qwen3:8b")
        await screen.press("enter")  # found, but not set up: both ways are told
        assert screen.results == []
        assert f"OPENAI_BASE_URL={llm.api_base} crushpy -m openai/qwen3:8b" in screen.text
        assert "permanently: crushpy config set providers.ollama.api_base" in " ".join(screen.text.split())


async def test_a_server_that_is_set_up_can_be_used(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.models = ["qwen3:8b"]
    settings = msgspec.convert({"providers": {"home": {"api_base": llm.api_base}}}, Settings)
    async with shown(ModelsScreen(settings, GROQ)) as screen:
        await screen.type("home")
        await screen.press("enter")
        assert screen.results == ["home/qwen3:8b"]


async def test_ports_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "nonsense")
    async with shown(ModelsScreen(Settings(), GROQ)) as screen:
        assert any("CRUSHPY_LOCAL_PORTS" in message for message in screen.messages)
        assert GROQ in screen.text


async def test_models_screen_selects_on_click() -> None:
    async with shown(ModelsScreen(Settings(), GROQ)) as screen:
        await screen.click("demo/tour")
        assert screen.results == ["demo/tour"]


async def test_models_screen_shows_cached_lists_and_refreshes_on_demand(
    lister: ListServer,
) -> None:
    settings = msgspec.convert({"providers": {"groq": {"api_base": f"{lister.url}/openai/v1"}}}, Settings)
    lister.answers["/openai/v1/models"] = {"data": [{"id": "first"}]}
    await ask_servers(settings)
    lister.answers["/openai/v1/models"] = {"data": [{"id": "second", "context_window": 77_000}]}
    async with shown(ModelsScreen(settings, GROQ), (100, 24)) as screen:
        assert "groq/first" in screen.text
        # On loopback it is also looked for as a server of this machine; a list is asked for by F5 alone.
        asked = [headers for path, headers in lister.asked if path == "/openai/v1/models"]
        asked = [headers for headers in asked if "authorization" in headers]
        assert len(asked) == 1
        await screen.press("f5")
        assert screen.line("groq/second").strip("│ ").split()[-3:][0] == "77k"
        assert any("Models updated from groq" in message for message in screen.messages)
