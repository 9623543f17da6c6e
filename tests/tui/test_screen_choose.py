"""The dialog that chooses one of a list."""

import pytest
from hosting import SIZES, shown

from crushpy.tui.screens.choose import Choice, ChooseScreen
from crushpy.tui.widgets.row_list import RowList

pytestmark = pytest.mark.slow

THEMES = [Choice(f"t{number}", f"theme {number}", "a theme", number == 3) for number in range(30)]


def dialog() -> ChooseScreen:
    return ChooseScreen("Theme", THEMES, hint="Is remembered.")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("size", [*SIZES, (140, 40), (20, 6)])
async def test_the_row_of_the_cursor_is_in_view_at_every_size(size: tuple[int, int]) -> None:
    async with shown(dialog(), size) as screen:
        assert "● theme 3" in screen.text
        await screen.press(*["down"] * 26)
        assert "theme 29" in screen.text
        await screen.press("enter")
        assert screen.results == ["t29"]


@pytest.mark.parametrize("size", SIZES)
async def test_the_keys_are_named(size: tuple[int, int]) -> None:
    async with shown(dialog(), size) as screen:
        assert "Enter Choose  Esc Cancel" in screen.text
        await screen.press("escape")
        assert screen.results == [None]


async def test_the_hint_is_in_view_below_a_long_list() -> None:
    async with shown(dialog()) as screen:
        assert "Is remembered." in screen.text


async def test_a_filter_that_nothing_fits_says_so_and_enter_takes_nothing() -> None:
    async with shown(dialog()) as screen:
        assert "Nothing matches" not in screen.text
        await screen.type("zzz")
        assert "Nothing matches" in screen.text
        await screen.press("enter")
        assert screen.results == []
        await screen.press("backspace", "backspace", "backspace")
        assert "theme 3" in screen.text
        assert "Nothing matches" not in screen.text


async def test_a_page_is_turned_only_where_there_is_one_to_see() -> None:
    async with shown(dialog()) as screen:
        await screen.type("zzz")
        await screen.press("pagedown", "backspace", "backspace", "backspace")
        assert "theme 3" in screen.text


async def test_a_click_on_a_row_that_is_gone_takes_nothing() -> None:
    dialog_ = dialog()
    async with shown(dialog_) as screen:
        rows = dialog_.query_one(RowList)
        rows.post_message(RowList.Taken(len(THEMES)))
        await screen.settle()
        assert screen.results == [] and "theme 3" in screen.text


async def test_a_row_that_is_cut_off_is_shown_in_full_below_the_list() -> None:
    long = Choice("long", "a title that does not fit into the width", "nor does the end of its detail")
    async with shown(ChooseScreen("Pins", [long]), (40, 20)) as screen:
        assert "its detail" in " ".join(screen.text.split())
