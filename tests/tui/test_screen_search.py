"""Search as it is typed, with real keys on real messages."""

import sqlite3
from contextlib import closing

import pytest
from hosting import EVIL, EVIL_SHOWN, SIZES, shown
from support.conversations import begun, continued

from crushpy.core.paths import Paths
from crushpy.engine.session.browser import SessionBrowser
from crushpy.storage.store import Store
from crushpy.tui.screens.message_search import SearchScreen


@pytest.mark.parametrize("size", SIZES)
async def test_search_screen_shows_snippets(
    store: Store, library: SessionBrowser, size: tuple[int, int]
) -> None:
    one = await begun(store, "about animals", "a zebra", "it has stripes")
    tip = await continued(store, one, "We spoke of a zebra.")
    await begun(store, "about plants", "a fern", "green")
    async with shown(SearchScreen(library, "/work"), size) as screen:
        for key in ("Enter Open", "F3 Folder/all", "Esc Close"):
            assert key in screen.text
        await screen.type("zeb")
        assert "about animals" in screen.text
        assert "a zebra" in screen.text
        assert "about plants" not in screen.text
        await screen.press("enter")
        (found,) = screen.results
        assert found.session_id in (one.id, tip.id)
        messages = await store.messages.load(found.session_id)
        assert any(message.id == found.message_id for message in messages)


async def test_words_given_with_the_command_are_searched_at_once(
    store: Store, library: SessionBrowser
) -> None:
    info = await begun(store, "t", "first", "the second zebra")
    async with shown(SearchScreen(library, "/work", "second zebra")) as screen:
        assert "the second zebra" in screen.text
        assert "1 hit" in screen.text
        await screen.press("enter")
        assert [(result.session_id, result.message_id) for result in screen.results] == [
            (info.id, (await store.messages.load(info.id))[1].id)
        ]


async def test_a_conversation_row_leads_to_its_best_place(store: Store, library: SessionBrowser) -> None:
    info = await begun(store, "t", *(f"zebra {number}" for number in range(9)))
    async with shown(SearchScreen(library, "/work", "zebra")) as screen:
        assert "9 hits" in screen.text
        await screen.press("up", "enter")
        assert screen.results[0].session_id == info.id


async def test_every_place_of_a_conversation_is_listed(store: Store, library: SessionBrowser) -> None:
    info = await begun(store, "t", *(f"zebra {number}" for number in range(9)))
    async with shown(SearchScreen(library, "/work", "zebra")) as screen:
        await screen.until(lambda: all(f"zebra {number}" in screen.text for number in range(9)))
        await screen.press("pagedown", "enter")
        (found,) = screen.results
        assert found.message_id in {message.id for message in await store.messages.load(info.id)}


async def test_search_screen_searches_other_folders_on_demand(store: Store, library: SessionBrowser) -> None:
    info = await begun(store, "far away", "a zebra", cwd="/elsewhere")
    async with shown(SearchScreen(library, "/work", "zebra")) as screen:
        assert "Nothing found here. Press F3 to search all folders" in screen.text
        await screen.press("f3")
        assert "all folders" in screen.text
        await screen.press("enter")
        assert screen.results[0].session_id == info.id


@pytest.mark.slow
async def test_words_that_are_gone_leave_no_rows(store: Store, library: SessionBrowser) -> None:
    await begun(store, "t", "a zebra")
    async with shown(SearchScreen(library, "/work", "zebra")) as screen:
        await screen.press(*["backspace"] * 5)
        assert "a zebra" not in screen.text
        await screen.press("enter")
        assert screen.results == []
        await screen.press("escape")
        assert screen.results == [None]


@pytest.mark.parametrize("words", ['"', '"" (', "* OR NEAR(", "a", "zé%_\\", "[@click=x]"])
async def test_odd_words_break_nothing(store: Store, library: SessionBrowser, words: str) -> None:
    await begun(store, "t", f"here are {words} and more")
    async with shown(SearchScreen(library, "/work", words)) as screen:
        assert screen.messages == []


async def test_a_click_goes_there(store: Store, library: SessionBrowser) -> None:
    info = await begun(store, "t", "the zebra")
    async with shown(SearchScreen(library, "/work", "zebra")) as screen:
        await screen.click("user the zebra")
        assert screen.results[0].session_id == info.id


async def test_foreign_text_is_shown_and_does_nothing(store: Store, library: SessionBrowser) -> None:
    await begun(store, EVIL, f"zebra {EVIL}")
    async with shown(SearchScreen(library, "/work", "zebra"), (140, 24)) as screen:
        assert screen.text.count(EVIL_SHOWN) >= 3  # title, row, and the word about the row
        assert "\x1b" not in screen.text


@pytest.mark.slow
async def test_search_screen_finds_new_messages_once_they_are_indexed(
    store: Store, library: SessionBrowser
) -> None:
    await begun(store, "many", "a zebra")
    await begun(store, "late", "a late lion")
    while await store.run_maintenance():
        pass
    async with shown(SearchScreen(library, "/work")) as screen:
        with closing(sqlite3.connect(Paths().database, isolation_level=None)) as other:
            other.execute("UPDATE message SET parts = replace(parts, 'lion', 'zebra')")
            other.execute("INSERT INTO index_queue SELECT max(number) FROM message")
            other.execute("BEGIN IMMEDIATE")
            await screen.pilot.press(*"zebra")
            await screen.until(lambda: "━━━" in screen.text and "user a zebra" in screen.text)
            other.execute("ROLLBACK")
        await screen.until(lambda: "user a late zebra" in screen.text)
        await screen.settle()
        assert "━━━" not in screen.text and not screen.messages
