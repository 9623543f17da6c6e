"""Finding words in the transcript: typed after /, highlighted, n and N go on, Esc ends."""

from pathlib import Path

import pytest
from asking import bash
from driving import Driven, Start, start
from scripted_llm import Reply
from scripted_llm.replies import Call
from scripted_llm.server import ScriptedLLM
from textual import events
from textual.geometry import Offset
from textual.selection import Selection

from crushpy.tui.items import UserItem
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.transcript.selection import MAX_DRAWN_SEARCH
from crushpy.tui.transcript.widget import Transcript

pytestmark = pytest.mark.slow

__all__ = ["start"]

REPLY = "\n\n".join(f"Line {number} has {'a Needle' if number % 20 == 3 else 'hay'}." for number in range(60))


def found(app: Driven) -> str:
    """The line in which the current match stands."""
    view = app.chat.transcript
    text = view.screen.get_selected_text()
    assert text.lower() == "needle", text
    at = view.text_selection
    assert at is not None
    assert at.start is not None
    line = Selection(Offset(0, at.start.y), Offset(80, at.start.y))
    return (view.get_selection(line) or ("", ""))[0]


async def test_words_are_found_highlighted_and_gone_through(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(REPLY))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.rests()
        await app.press("tab", "home", "slash")
        await app.sees("Find in the transcript.")
        await app.type("needle")
        assert "Line 3 has" in found(app)
        await app.press("enter")
        await app.sees_no("Find in the transcript.")
        for key, line in (("n", 23), ("n", 43), ("n", 3), ("N", 43), ("N", 23)):
            await app.press(key)
            await app.pilot.pause()
            assert f"Line {line} has" in found(app)
        await app.press("escape")
        assert not app.chat.transcript.screen.get_selected_text()
        assert app.chat.transcript.has_focus
        await app.press("n")
        assert app.chat.prompt.draft == "n"


async def test_words_typed_together_with_the_slash_are_sought(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(REPLY))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.rests()
        await app.press("tab", "home")
        for key in ("slash", *"needle", "enter"):  # in one burst: nothing is awaited in between
            character = "/" if key == "slash" else key if len(key) == 1 else None
            app.app.post_message(events.Key(key, character))
        await app.until(lambda: bool(app.chat.transcript.screen.get_selected_text()))
        assert "Line 3 has" in found(app)
        await app.until(lambda: app.chat.transcript.has_focus)
        await app.press("n")
        await app.pilot.pause()
        assert "Line 23 has" in found(app)
        assert app.chat.prompt.draft == ""


async def test_find_reports_no_match_and_escape_closes_it(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(REPLY))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.rests()
        await app.press("tab", "slash")
        await app.sees("Find in the transcript.")
        await app.type("nowhere")
        await app.press("enter")
        await app.until(lambda: "'nowhere' is not in the transcript." in app.notices)
        await app.press("escape")
        assert app.chat.transcript.has_focus
        assert app.chat.transcript.interaction.sought == ""
        await app.press("escape")
        assert app.chat.prompt.has_focus


async def test_a_hit_in_a_folded_item_opens_it_and_going_on_closes_it_again(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(
        bash("for i in $(seq 60); do echo hay $i; [ $i = 9 ] && echo a Needle; done; true"), "A needle."
    )
    async with start(size=(80, 24), yolo=True) as app:
        await app.say("go")
        await app.sees("A needle.")
        await app.rests()
        await app.press("tab", "home", "slash")
        await app.sees("Find in the transcript.")
        await app.type("a needle")
        await app.press("enter")
        await app.sees_no("Find in the transcript.")
        places: list[bool] = []
        for _ in range(6):
            await app.press("n")
            await app.pilot.pause()
            assert app.chat.transcript.screen.get_selected_text().lower() == "a needle"
            places.append("hay 9" in app.text)
        assert True in places and False in places
        while "hay 10" not in app.text:
            await app.press("n")
            await app.pilot.pause()
        await app.press("escape")
        await app.sees("hay 9", "hay 10")  # what one looks at stays open


async def test_a_hit_in_a_run_of_reading_calls_opens_the_run(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    for name in ("one", "two", "three"):
        (workspace / f"{name}.txt").write_text(f"hay\nthe needle of {name}\n")
    views = [Call("view", {"file_path": f"{name}.txt"}) for name in ("one", "two", "three")]
    llm.script(Reply(calls=views), "Read.")
    async with start(size=(80, 30), yolo=True) as app:
        await app.say("go")
        await app.sees("Read 3 files", "Read.")
        await app.rests()
        assert "two.txt" not in app.text
        await app.press("tab", "home", "slash")
        await app.type("needle of two")
        await app.press("enter")
        await app.sees("two.txt", "the needle of two")
        assert app.chat.transcript.screen.get_selected_text() == "needle of two"


async def test_find_works_in_the_reader_of_a_task(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("task", {"prompt": "look"})]), REPLY, "Done so.")
    async with start(size=(80, 24)) as app:
        await app.say("ask somebody")
        await app.sees("Done so.")
        await app.rests()
        await app.press("tab", "up", "up", "up", "down", "down", "s")
        await app.shows(SessionReaderScreen)
        view = app.app.screen.query_one(Transcript)
        await app.until(lambda: "Line" in app.text, "the transcript of the task")
        await app.press("home", "slash")
        await app.sees("Find in the transcript.")
        await app.type("needle")
        await app.press("enter")
        seen = []
        for _ in range(4):
            await app.press("n")
            await app.pilot.pause()
            assert view.screen.get_selected_text().lower() == "needle"
            assert view.text_selection is not None and view.text_selection.start is not None
            seen.append(view.text_selection.start.y)
        assert len(set(seen)) == 3 and seen[0] == seen[3]


async def test_find_wraps_around_in_both_directions(start: Start, llm: ScriptedLLM) -> None:
    async with start(size=(80, 24)) as app:
        await app.opened()
        for number in range(MAX_DRAWN_SEARCH + 30):
            app.chat.transcript.add(
                UserItem(f"Line {number} has {'a Needle' if number % 150 == 3 else 'hay'}.")
            )
        await app.pilot.pause()
        await app.press("tab", "home", "slash")
        await app.sees("Find in the transcript.")
        await app.type("needle")
        await app.press("enter")
        await app.sees_no("Find in the transcript.")
        assert "Line 3 has" in found(app)
        for key, line in (("n", 153), ("n", 303), ("n", 3), ("N", 303), ("N", 153), ("N", 3)):
            await app.press(key)
            await app.pilot.pause()
            assert f"Line {line} has" in found(app)
