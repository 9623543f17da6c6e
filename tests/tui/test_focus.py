"""Where keys go: the prompt has them, unless the user has gone to the transcript or to the queue."""

import json
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from textual import events

from crushpy.tui.widgets.prompt_queue import QueueView

pytestmark = pytest.mark.slow

__all__ = ["start"]

HALF = Stall(Reply("Half an answer and more", chunk=4), after=3)
LOOK = Reply(calls=[Call("view", {"file_path": "notes.txt"})])


async def a_call(app: Driven, workspace: Path) -> None:
    """A conversation with a tool call to fold and unfold."""
    (workspace / "notes.txt").write_text("the first line\nthe second line\n")
    await app.say("look at it")
    await app.sees("I have looked.")
    await app.rests()


def place(app: Driven, words: str) -> tuple[int, int]:
    """Where these words stand on the terminal."""
    return next((line.index(words), y) for y, line in enumerate(app.text.splitlines()) if words in line)


def said_to(llm: ScriptedLLM) -> str:
    return json.dumps(llm.requests[-1].body["messages"])


# --- the mouse -------------------------------------------------------------------------------------------


async def test_typing_reaches_the_prompt_after_a_click_on_a_block(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.", "I can.")
    async with start() as app:
        await a_call(app, workspace)
        await app.pilot.click(offset=place(app, "Read notes.txt"))
        await app.sees("the second line")
        assert app.chat.prompt.has_focus
        await app.say("can you do it")
        await app.sees("I can.")
    assert "can you do it" in said_to(llm)


async def test_typing_reaches_the_prompt_after_a_selection(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.", "Sure.")
    async with start() as app:
        await a_call(app, workspace)
        x, y = place(app, "I have looked.")
        await app.pilot.mouse_down(offset=(x, y))
        await app.pilot.hover(offset=(x + 5, y))
        await app.pilot.mouse_up(offset=(x + 5, y))
        await app.until(lambda: app.chat.get_selected_text() == "I have", "the selection")
        await app.say("cool")
        await app.sees("Sure.")


async def test_a_click_brings_the_focus_back_from_the_transcript(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.")
    async with start() as app:
        await a_call(app, workspace)
        await app.press("tab")
        await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
        await app.pilot.click(offset=place(app, "Read notes.txt"))
        await app.until(lambda: app.chat.prompt.has_focus, "the prompt to have the focus")
        await app.type("c")
        await app.until(lambda: app.chat.prompt.draft == "c", "the letter in the prompt")


# --- the transcript --------------------------------------------------------------------------------------


async def test_the_keys_of_the_transcript_work_there_and_are_named(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.")
    async with start() as app:
        await a_call(app, workspace)
        assert "c Copy" not in app.text
        await app.press("tab")
        await app.sees("▌ I have looked.", "Enter Open or close", "c Copy", "Esc")
        await app.press("c")
        await app.until(lambda: "14 characters" in app.notices, "the copy")
        await app.press("up", "space")
        await app.sees("the second line")
        await app.press("enter")
        await app.sees_no("the second line")
        assert app.chat.prompt.draft == ""
        await app.press("escape")
        await app.sees_no("c Copy")
        assert app.chat.prompt.has_focus


async def test_printable_key_returns_to_the_prompt(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(LOOK, "I have looked.")
    async with start() as app:
        await a_call(app, workspace)
        for keys, draft in ((("h", "o", "c"), "hoc"), (("backspace",), "ho"), (("ctrl+j", "x"), "ho\nx")):
            await app.press("tab")
            await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
            await app.press(*keys)
            await app.until(lambda draft=draft: app.chat.prompt.draft == draft, f"{draft!r} in the prompt")
            assert app.chat.prompt.has_focus


async def test_keys_that_come_all_at_once_keep_their_order_and_lose_none(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.", "Well done.")
    async with start() as app:
        await a_call(app, workspace)
        await app.press("tab")
        await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
        for letter in "hi, copy oo":
            app.app.post_message(events.Key({" ": "space", ",": "comma"}.get(letter, letter), letter))
        app.app.post_message(events.Key("enter", "\r"))
        await app.sees("Well done.")
    assert "hi, copy oo" in said_to(llm)


async def test_a_paste_into_the_transcript_is_a_paste_into_the_prompt(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(LOOK, "I have looked.")
    async with start() as app:
        await a_call(app, workspace)
        await app.press("tab")
        await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
        app.app.post_message(events.Paste("copied\nwords"))
        await app.until(lambda: app.chat.prompt.draft == "copied\nwords", "the paste in the prompt")
        assert app.chat.prompt.has_focus


async def test_escape_in_the_transcript_comes_back_and_only_in_the_prompt_it_interrupts(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.press("tab")
        await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
        await app.press("escape")
        await app.until(lambda: app.chat.prompt.has_focus, "the prompt to have the focus")
        assert app.conversation.busy
        assert "Interrupted." not in app.text
        await app.press("escape")
        await app.sees("Interrupted.")
        await app.rests()


# --- the queue -------------------------------------------------------------------------------------------


async def test_the_keys_of_the_queue_work_there_and_all_others_are_typed(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        for text in ("second", "third", "fourth"):
            await app.say(text)
        await app.sees("3 queued", "fourth")
        queue = app.chat.query_one(QueueView)

        async def go_there() -> None:
            await app.press("tab", "tab")
            await app.until(lambda: queue.has_focus, "the queue to have the focus")

        await go_there()
        await app.press("j", "x")
        await app.sees_no("third")
        assert [prompt.text for prompt in app.conversation.prompts.queue] == ["second", "fourth"]
        await app.press("k", "e")
        await app.until(lambda: app.chat.prompt.draft == "second", "the prompt that was taken back")
        await app.until(lambda: app.chat.prompt.has_focus)
        await go_there()
        await app.press("backspace")
        await app.until(lambda: app.chat.prompt.draft == "secon", "Backspace in the prompt")
        await go_there()
        await app.press("q")
        await app.until(lambda: app.chat.prompt.draft == "seconq", "the letter in the prompt")
        assert [prompt.text for prompt in app.conversation.prompts.queue] == ["fourth"]
        await go_there()
        await app.press("x")
        await app.sees_no("queued")
        await app.until(lambda: app.chat.prompt.has_focus, "the prompt to have the focus")
