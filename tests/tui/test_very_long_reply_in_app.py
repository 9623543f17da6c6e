"""A reply of hundreds of thousands of letters in the app: resumed, found in and copied."""

from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm.replies import Reply
from scripted_llm.server import ScriptedLLM
from test_clipboard import programs

from crushpy.tui.items import ReplyItem
from crushpy.tui.terminal import clipboard
from crushpy.tui.transcript import interaction

pytestmark = pytest.mark.slow

__all__ = ["programs", "start"]

LINES = [
    f"- item {number} \N{EM DASH} {'a Needle' if number == 700 else 'hay'} and more\n"
    for number in range(3_000)
]
TEXT = f"{''.join(LINES)}\nThe very end \N{ROCKET}."


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for words pauses after each part, as it does where there are thousands of them."""
    monkeypatch.setattr(interaction, "SEARCH_SLICE_S", 0.0)


async def test_very_long_reply_is_whole_after_a_resume(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(TEXT, chunk=6_000))
    for resumed in (False, True):
        async with start(size=(80, 24), resume_latest=resumed) as app:
            if not resumed:
                await app.say("go")
            await app.sees("The very end")
            await app.rests()
            view = app.chat.transcript
            [reply] = [item for item in map(view.item, view.keys()) if isinstance(item, ReplyItem)]
            assert reply.text == TEXT
            assert reply.done
            await app.press("tab", "home")
            await app.sees("item 0 \N{EM DASH} hay")


@pytest.mark.usefixtures("slices")
async def test_words_are_found_in_it_though_that_takes_longer(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(TEXT, chunk=6_000))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.sees("The very end")
        await app.rests()
        view = app.chat.transcript
        await app.press("tab", "slash")
        await app.sees("Find in the transcript.")
        await app.type("needle")
        await app.press("enter")
        await app.until(lambda: view.screen.get_selected_text() == "Needle", "the match")
        await app.sees_no("Find in the transcript.")
        await app.sees("item 700 \N{EM DASH}")
        await app.press("slash")
        await app.sees("Find in the transcript.")
        await app.type("nowhere to be seen")
        await app.press("enter")
        await app.until(lambda: "is not in the transcript" in app.notices, "a word about it")
        await app.type("!")
        await app.press("escape")
        await app.sees_no("Find in the transcript.")


async def test_a_terminal_is_not_sent_megabytes_for_its_clipboard(
    start: Start, llm: ScriptedLLM, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipboard, "MAX_OSC52_CHARS", 50_000)
    llm.script(Reply(TEXT, chunk=6_000))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.sees("The very end")
        await app.rests()
        await app.press("f9")
        await app.until(lambda: "too many for the terminal" in app.notices, "a word about it")
        assert "/export" in app.notices
        assert not app.app.clipboard
