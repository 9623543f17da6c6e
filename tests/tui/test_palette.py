"""The command palette: its order, what it finds, and Enter pressed at once."""

import pytest
from driving import Start, start
from textual.widgets import Input

from crushpy.core.app_commands import APP_COMMANDS, COMMAND_GROUPS
from crushpy.tui.screens.choose import PaletteScreen
from crushpy.tui.screens.models import ModelsScreen
from crushpy.tui.widgets.completer import command_completions

__all__ = ["start"]


async def test_palette_lists_commands_in_table_order(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        await app.until(lambda: len(listed(app.chat.app.screen)) == len(APP_COMMANDS), "all commands")
        assert listed(app.chat.app.screen) == [command.title for command in APP_COMMANDS]


async def test_reading_its_text_keeps_the_chat_below_it(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.sees("ask")
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        app.app.screen.refresh()  # nothing that was drawn before is used
        assert "  ask  " in app.text.splitlines()[-2]


async def test_a_command_is_found_by_what_it_does(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        await app.type("clipboard")
        await app.until(lambda: listed(app.chat.app.screen) == ["Copy Last Reply"], "the one command")


async def test_enter_takes_what_was_typed_however_fast(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        await app.until(lambda: listed(app.chat.app.screen), "the list")
        field = app.chat.app.screen.query_one(Input)
        field.value = "switch model"
        await field.action_submit()
        await app.shows(ModelsScreen)


@pytest.mark.slow
async def test_keys_that_come_faster_than_it_opens_and_closes_do_no_harm(start: Start) -> None:
    async with start() as app:
        await app.opened()
        for _ in range(3):
            app.app.action_command_palette()
            palette = app.app.screen
            assert isinstance(palette, PaletteScreen)
            app.app.action_command_palette()
            await app.pilot.pause()
            palette.query_one(Input).value = "s"
            await app.until(lambda palette=palette: palette.rows.count, "something to page through")
            await app.press("pagedown", "pageup")
            await palette.query_one(Input).action_submit()
            palette.dismiss(None)
            palette.dismiss(None)
        await app.pilot.pause()
        assert app.app.screen is app.chat


def listed(screen: object) -> list[str]:
    """The titles in the palette."""
    assert isinstance(screen, PaletteScreen)
    return [command.title for command in screen.shown]


async def test_palette_shows_commands_in_a_very_small_terminal(start: Start) -> None:
    async with start(size=(30, 8)) as app:
        await app.press("ctrl+p")
        await app.sees(*(command.title[:8] for command in APP_COMMANDS[:3]))


@pytest.mark.slow
async def test_each_has_one_row_with_its_name_and_key_at_the_right_and_what_was_used_comes_first(
    start: Start,
) -> None:
    async with start(size=(120, 40)) as app:
        await app.opened()
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        await app.until(lambda: listed(app.chat.app.screen), "the list")
        (row,) = [line for line in app.text.splitlines() if "/context" in line]
        assert "What fills the window" in row
        assert row.rstrip(" │▁▂▃▄▅▆▇█").split()[-2:] == ["/context", "Ctrl+O"]
        await app.type("glossary")
        await app.until(lambda: listed(app.chat.app.screen)[:1] == ["Glossary"], "the glossary")
        await app.press("enter")
        await app.sees("compaction", "evidence", "coverage")
        await app.press("escape", "ctrl+p")
        await app.shows(PaletteScreen)
        await app.until(lambda: listed(app.chat.app.screen)[:1] == ["Glossary"], "what was used")


async def test_a_command_that_was_typed_is_recent_too(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.say("/status")
        await app.sees("sandbox")
        await app.press("escape", "ctrl+p")
        await app.shows(PaletteScreen)
        await app.until(lambda: listed(app.chat.app.screen)[:1] == ["Status"], "what was used")


async def test_palette_shows_the_description_below_narrow_rows(start: Start) -> None:
    async with start(size=(80, 24)) as app:
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        await app.sees(APP_COMMANDS[0].help, "Enter Choose")


async def test_commands_are_grouped_and_the_last_used_come_first(start: Start) -> None:
    heads = [f"{name:<11}{COMMAND_GROUPS[name][0].title}" for name in ("Context", "Session")]
    async with start(size=(120, 40)) as app:
        await app.opened()
        await app.press("ctrl+p")
        await app.sees(*heads, f"{' ' * 11}{COMMAND_GROUPS['Context'][-1].title}")
        await app.press("escape")
        await app.say("/status")
        await app.press("escape")
        await app.press("ctrl+p")
        await app.sees("Last used  Status", heads[0])
    async with start(size=(120, 40)) as app:  # also after a restart
        await app.opened()
        await app.press("ctrl+p")
        await app.sees("Last used  Status")


def test_the_slash_menu_is_ranked_by_use() -> None:
    def offered(typed: str, *recent: str) -> list[str]:
        return [row.insert.strip() for row in command_completions(APP_COMMANDS, typed, recent)]

    assert offered("comp")[:2] == ["/compact", "/compaction"]
    first = offered("re")
    assert max(first.index("/sessions"), first.index("/rewind")) < first.index("/return")
    assert offered("re", "return_to_parent")[0] == "/return"
    assert offered("compaction", "compact")[0] == "/compaction", "what was typed in full"


async def test_light_and_vim_can_be_typed(start: Start) -> None:
    async with start() as app:
        await app.opened()
        await app.say("/theme light")
        await app.until(lambda: "light" in app.app.theme, "a light theme")
        await app.say("/vim")
        await app.sees("with the keys of vim", "INSERT")
        await app.say("/vim")
        await app.sees("as usual")
