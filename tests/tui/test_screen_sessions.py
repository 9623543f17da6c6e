"""The picker of conversations, with real keys on real conversations."""

import time

import pytest
from hosting import EVIL, EVIL_SHOWN, SIZES, Shown, shown
from support.conversations import begun, continued
from support.stored import a_session, said

from crushpy.engine.session.browser import SessionBrowser
from crushpy.storage.store import Store
from crushpy.tui.screens.sessions import SessionsScreen
from crushpy.tui.widgets.row_list import RowList

pytestmark = pytest.mark.slow

KEYS = ["Enter Resume", "F2 Rename", "Del Delete", "F3 Folder/all", "F4 Search messages", "Esc Close"]


async def titles(store: Store) -> set[str]:
    return {row.title for row in await store.sessions.list_conversations()}


def rows(screen: Shown) -> list[str]:
    """The rows of the list."""
    top = screen.app.screen.query_one(RowList).region
    lines = [line.strip("│▌ ") for line in screen.lines[top.y : top.bottom]]
    return [line for line in lines if line]


@pytest.mark.parametrize("size", SIZES)
async def test_every_key_is_named_at_every_size(
    store: Store, library: SessionBrowser, size: tuple[int, int]
) -> None:
    await begun(store, "one")
    async with shown(SessionsScreen(library, "/work"), size) as screen:
        assert all(key in screen.text for key in KEYS)
        assert "u Undo delete" not in screen.text
        assert rows(screen)[0].startswith("one")


async def test_a_row_tells_title_model_messages_generations_and_age(
    store: Store, library: SessionBrowser
) -> None:
    info = a_session(title="Repair the parser", model="anthropic/claude-x", now=time.time() - 7_300)
    await store.sessions.create(info)
    tip = await continued(store, info, "Go on.", "more", "done")
    async with shown(SessionsScreen(library, "/work"), (100, 24)) as screen:
        row = screen.line("Repair the parser")
        for part in ("claude-x", "3 msg", "2 sessions", "now"):
            assert part in row
        await screen.press("enter")
        assert screen.results == [tip.id]


async def test_typing_finds_titles_and_enter_resumes(store: Store, library: SessionBrowser) -> None:
    wanted = await begun(store, "the needle")
    for number in range(5):
        await begun(store, f"hay {number}")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.type("NEED the")
        assert [row.split("  ")[0] for row in rows(screen)] == ["the needle"]
        await screen.press("enter")
        assert screen.results == [wanted.id]


async def test_escape_returns_nothing(store: Store, library: SessionBrowser) -> None:
    await begun(store)
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("escape")
        assert screen.results == [None]


async def test_sessions_screen_searches_messages_on_demand(store: Store, library: SessionBrowser) -> None:
    await begun(store, "plain", "hello", "nothing of interest")
    wanted = await begun(store, "other", "hello", "the zebra crossed")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.type("zebra")
        assert rows(screen) == []
        assert "Press F4 to search messages" in screen.text
        await screen.press("f4")
        await screen.until(lambda: "the zebra crossed" in screen.text)
        await screen.press("enter")
        assert screen.results == [wanted.id]


async def test_sessions_screen_shows_other_folders_on_demand(store: Store, library: SessionBrowser) -> None:
    await begun(store, "here")
    there = await begun(store, "there", cwd="/far/project")
    async with shown(SessionsScreen(library, "/work")) as screen:
        assert len(rows(screen)) == 1
        await screen.press("f3")
        assert "all folders" in screen.text
        assert "project" in screen.line("there")
        await screen.type("there")
        await screen.press("enter")
        assert screen.results == [there.id]


async def test_an_empty_folder_says_what_to_do(library: SessionBrowser) -> None:
    async with shown(SessionsScreen(library, "/empty")) as screen:
        assert "no conversations in this folder yet. Press F3" in screen.text
        await screen.press("enter", "delete", "f2")
        assert screen.results == []


# --- renaming ------------------------------------------------------------------------------------------


async def test_f2_renames_and_the_cursor_stays(store: Store, library: SessionBrowser) -> None:
    for name in ("one", "two", "three"):
        await begun(store, name)
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("down", "f2")
        await screen.press(*["backspace"] * 3)
        await screen.type("zwei")
        await screen.press("enter")
        assert await titles(store) == {"one", "zwei", "three"}
        assert any(row.startswith("zwei") for row in rows(screen))
        await screen.press("enter")
        chosen = await store.sessions.find(screen.results[0])
        assert chosen.title == "zwei"


async def test_escape_leaves_the_title_and_the_screen(store: Store, library: SessionBrowser) -> None:
    await begun(store, "kept")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("f2")
        await screen.type("x")
        await screen.press("escape")
        assert await titles(store) == {"kept"}
        assert screen.results == []
        await screen.press("escape")
        assert screen.results == [None]


@pytest.mark.parametrize("size", SIZES)
async def test_sessions_screen_shows_the_rename_keys(
    store: Store, library: SessionBrowser, size: tuple[int, int]
) -> None:
    await begun(store, "old name")
    async with shown(SessionsScreen(library, "/work"), size) as screen:
        await screen.press("f2")
        assert "New title" in screen.text and "old name" in screen.text
        assert "Enter OK" in screen.text and "Esc Cancel" in screen.text
        await screen.press("escape")
        assert "Esc Close" in screen.text
        assert next(line.strip("│ ") for line in screen.lines if "─" not in line).startswith("Sessions")


async def test_a_click_stores_the_title_and_one_beside_the_dialog_keeps_the_old_one(
    store: Store, library: SessionBrowser
) -> None:
    await begun(store, "one")
    await begun(store, "two")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("f2")
        await screen.type("x")
        await screen.click("one  ")
        assert screen.results == [] and await titles(store) == {"one", "two"}
        await screen.press("f2")
        await screen.type("y")
        await screen.click("Enter OK")
        assert await titles(store) == {"one", "twoy"}


async def test_an_empty_title_is_refused(store: Store, library: SessionBrowser) -> None:
    await begun(store, "ab")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("f2", "backspace", "backspace", "enter")
        assert any("at least one letter" in message for message in screen.messages)
        assert await titles(store) == {"ab"}


# --- deletion ------------------------------------------------------------------------------------------


async def test_delete_marks_and_u_brings_back(store: Store, library: SessionBrowser) -> None:
    await begun(store, "one")
    await begun(store, "two")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("delete")
        assert "✗ deleted  two" in screen.line("✗")
        assert "u Undo delete" in screen.text
        assert "will be erased when this list closes" in screen.text
        assert await titles(store) == {"one", "two"}
        await screen.press("u")
        assert "✗" not in screen.text
        await screen.press("escape")
    assert await titles(store) == {"one", "two"}


@pytest.mark.parametrize("key", ["delete", "ctrl+d"])
async def test_sessions_screen_deletes_on_close(store: Store, library: SessionBrowser, key: str) -> None:
    await begun(store, "one")
    await begun(store, "two")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("down", key)
        await screen.press("escape")
        assert screen.results == [None]
    assert await titles(store) == {"two"}


async def test_resuming_another_also_deletes_what_is_marked(store: Store, library: SessionBrowser) -> None:
    one = await begun(store, "one")
    await begun(store, "two")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("delete", "down", "enter")
        assert screen.results == [one.id]
    assert await titles(store) == {"one"}


async def test_sessions_screen_refuses_to_resume_a_marked_session(
    store: Store, library: SessionBrowser
) -> None:
    await begun(store, "one")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("delete", "enter")
        assert screen.results == []
        assert any("Press u to undo" in message for message in screen.messages)


async def test_a_process_that_dies_has_deleted_nothing(store: Store, library: SessionBrowser) -> None:
    await begun(store, "one")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("delete")
        screen.app.exit()
    assert await titles(store) == {"one"}


async def test_the_open_conversation_is_marked_and_not_deleted(store: Store) -> None:
    info = await begun(store, "mine")
    async with shown(SessionsScreen(SessionBrowser(store, open_root=info.root_id), "/work")) as screen:
        assert rows(screen)[0].startswith("● mine")
        await screen.press("delete")
        assert any("“mine” is open here" in message for message in screen.messages)
        await screen.press("escape")
    assert await titles(store) == {"mine"}


async def test_delete_in_the_middle_of_the_words_deletes_a_letter(
    store: Store, library: SessionBrowser
) -> None:
    await begun(store, "abc")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.type("abX")
        await screen.press("left", "delete")
        assert library.deleted == ()
        assert len(rows(screen)) == 1


async def test_letters_typed_on_the_rows_go_to_the_words(store: Store, library: SessionBrowser) -> None:
    await begun(store, "alpha")
    await begun(store, "beta")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("tab")
        await screen.type("ha")
        assert [row.split("  ")[0] for row in rows(screen)] == ["alpha"]


# --- much, evil, mouse ---------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_a_thousand_conversations(store: Store, library: SessionBrowser) -> None:
    for number in range(1_000):
        await store.sessions.create(a_session(title=f"talk {number}", now=1_000_000.0 + number), said())
    first = (await store.sessions.list_conversations())[-1]
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.press("tab", "end")
        assert f"talk {first.title.split()[1]}" in screen.text
        await screen.press("enter")
        assert screen.results == [first.id]
    async with shown(SessionsScreen(library, "/work"), (80, 30)) as screen:
        await screen.type("talk 77")
        assert len(rows(screen)) == 19  # 77, 177 to 977, and 770 to 779
        await screen.press("pagedown", "pagedown", "up", "pageup")
        await screen.press(*["backspace"] * 7)
        assert len(rows(screen)) == screen.app.screen.query_one(RowList).size.height


async def test_foreign_text_is_shown_and_does_nothing(store: Store, library: SessionBrowser) -> None:
    await begun(store, EVIL, EVIL, model=EVIL, cwd=f"/{EVIL}")
    async with shown(SessionsScreen(library, f"/{EVIL}"), (200, 24)) as screen:
        assert screen.text.count(EVIL_SHOWN) >= 2
        await screen.type("click")
        await screen.press("f4", "escape", "f2", "escape", "f3", "delete")
        assert "\x1b" not in screen.text
        assert "\u202e" not in screen.text


async def test_the_mouse_moves_takes_and_presses_keys(store: Store, library: SessionBrowser) -> None:
    one = await begun(store, "first")
    await begun(store, "second")
    async with shown(SessionsScreen(library, "/work")) as screen:
        await screen.click("first")
        assert screen.results == []
        await screen.click("Del Delete")
        assert library.deleted == (one.root_id,)
        await screen.click("u Undo")
        assert library.deleted == ()
        await screen.click("first")
        assert screen.results == [one.id]


async def test_a_row_that_the_list_has_no_more_is_not_taken(store: Store, library: SessionBrowser) -> None:
    await begun(store, "one")
    async with shown(SessionsScreen(library, "/work")) as screen:
        listed = screen.app.screen.query_one(RowList)
        listed.post_message(RowList.Taken(5))
        await screen.settle()
        assert screen.results == [] and rows(screen)[0].startswith("one")
