"""Help: everything of the command table, with the keys as they are."""

import pytest
from hosting import SIZES, shown

from crushpy.tui.commands import COMMANDS
from crushpy.tui.screens.help import HelpScreen
from crushpy.tui.widgets.keybar import key_name


@pytest.mark.parametrize("size", [(80, 120), (40, 240)])
async def test_every_command_and_key_can_be_read(size: tuple[int, int]) -> None:
    async with shown(HelpScreen(), size) as screen:
        words = " ".join(screen.text.split())
        for command in COMMANDS:
            assert command.title in words
            assert command.slash == "" or f"/{command.slash}" in words
            assert command.key == "" or key_name(command.key) in words
        assert "Shift+Enter, Ctrl+J" in words


@pytest.mark.parametrize("size", SIZES)
async def test_it_scrolls_by_keys_and_closes(size: tuple[int, int]) -> None:
    async with shown(HelpScreen(), size) as screen:
        assert "Quit" not in screen.text
        assert "Esc Close" in screen.text
        await screen.press("end")
        await screen.until(lambda: "/quit" in screen.text)
        await screen.press("escape")
        assert screen.results == [None]


async def test_a_key_the_user_changed_is_shown_as_changed() -> None:
    async with shown(HelpScreen(keys={"select_compaction": "ctrl+k,f9"}), (120, 40)) as screen:
        line = screen.line("/compaction")
        assert "Ctrl+K, F9" in line
        assert "Ctrl+T" not in screen.text
