"""Finding words in the transcript: typed after /, highlighted, n and N go on, Esc ends."""

from driving import Driven, Start, start
from scripted_llm import Reply
from scripted_llm.server import ScriptedLLM
from textual.geometry import Offset
from textual.selection import Selection

__all__ = ["start"]

REPLY = "\n\n".join(f"Line {number} has {'a Needle' if number % 20 == 3 else 'hay'}." for number in range(60))


def found(app: Driven) -> str:
    """The line in which the current match stands."""
    view = app.chat.transcript
    text = view.text_of_selection()
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
        assert not app.chat.transcript.text_of_selection()
        assert app.chat.transcript.has_focus
        await app.press("n")
        assert app.chat.prompt.draft == "n"


async def test_what_is_not_there_is_said_and_escape_ends(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(REPLY))
    async with start(size=(80, 24)) as app:
        await app.say("go")
        await app.rests()
        await app.press("tab", "slash")
        await app.sees("Find in the transcript.")
        await app.type("nowhere")
        await app.press("enter")
        await app.until(lambda: "'nowhere' does not stand in the transcript." in app.notices)
        await app.press("escape")
        assert app.chat.transcript.has_focus
        assert app.chat.transcript.sought == ""
        await app.press("escape")
        assert app.chat.prompt.has_focus
