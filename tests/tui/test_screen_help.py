"""Help: everything of the command table and every key that is bound, with the keys as they are."""

import pytest
from hosting import SIZES, shown
from textual.binding import Binding, BindingType

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.tui.app import CrushpyApp
from crushpy.tui.screens.chat import ChatScreen
from crushpy.tui.screens.help import HelpScreen, key_places
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.widgets.approval import ApprovalPanel
from crushpy.tui.widgets.folding_text_area import FoldingTextArea
from crushpy.tui.widgets.key_bar import key_name
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView

NAMES = {"Ctrl+Underscore": "Ctrl+_"}


def bound(*lists: list[BindingType]) -> set[str]:
    """The keys of these bindings, those of commands left out."""
    ids = {command.action for command in APP_COMMANDS}
    names: set[str] = set()
    for binding in (binding for bindings in lists for binding in bindings):
        if isinstance(binding, Binding) and binding.id not in ids:
            names |= {key_name(key.strip()) for key in binding.key.split(",")}
    return {NAMES.get(name, name) for name in names}


@pytest.mark.parametrize(
    ("title", "keys"),
    [
        ("In the prompt", bound(PromptInput.BINDINGS)),
        ("Editing the prompt", bound(FoldingTextArea.BINDINGS)),
        ("Everywhere", bound(ChatScreen.BINDINGS, CrushpyApp.BINDINGS) | {"Tab", "Shift+Tab", "Ctrl+P"}),
        ("In the transcript", bound(Transcript.BINDINGS) - {"p", "u", "t", "l", "w"}),
        ("On the card", {"p", "u", "t", "l", "w"}),
        ("In the queue", bound(QueueView.BINDINGS)),
        (
            "When the agent asks",
            bound(ApprovalPanel.BINDINGS) | {*"yanmdb?", "Tab", "Esc", "Up", "Down", "Enter"},
        ),
    ],
)
def test_every_key_that_is_bound_is_told_in_its_place(title: str, keys: set[str]) -> None:
    (rows,) = [rows for place, rows in key_places().items() if place.startswith(title)]
    told = {key for keys, _ in rows for key in keys.split(", ")}
    assert keys
    assert keys <= told, (
        f"{sorted(keys - told)} are bound, but crushpy/tui/screens/help.py does not tell them under {title!r}"
    )
    assert all(what for _, what in rows)


@pytest.mark.slow
async def test_every_place_and_key_is_shown() -> None:
    async with shown(HelpScreen({}), (140, 300)) as screen:
        for place, rows in key_places().items():
            assert place in screen.text
            for keys, what in rows:
                found = [line for line in screen.lines if line.lstrip("│").startswith(f" {keys} ")]
                assert any(what in line for line in found), (keys, what, found)


@pytest.mark.parametrize("size", [(80, 300), (40, 600)])
async def test_every_command_and_key_can_be_read(size: tuple[int, int]) -> None:
    async with shown(HelpScreen({}), size) as screen:
        words = " ".join(screen.text.split())
        for command in APP_COMMANDS:
            assert command.title in words
            assert command.slash == "" or f"/{command.slash}" in words
            assert command.key == "" or key_name(command.key) in words
        assert "Alt+Enter, Shift+Enter" in words


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_help_scrolls_and_closes(size: tuple[int, int]) -> None:
    async with shown(HelpScreen({}), size) as screen:
        assert "Quit" not in screen.text
        assert "Esc Close" in screen.text
        await screen.press("end")
        await screen.until(lambda: "/glossary" in screen.text)
        await screen.press("escape")
        assert screen.results == [None]


async def test_a_key_the_user_changed_is_shown_as_changed() -> None:
    async with shown(HelpScreen(keys={"select_compaction": "ctrl+k,f9"}), (120, 240)) as screen:
        line = screen.line("/compaction")
        assert "Ctrl+K, F9" in line
        assert "Ctrl+T" not in screen.text
