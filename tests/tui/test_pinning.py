"""Pinning in the app: commands, a key in transcript and inspector, and what the agent proposes."""

from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.core.messages import Seed
from crushpy.tui.items import UserItem
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.inspector import InspectorScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def command(app: Driven, line: str) -> None:
    app.chat.prompt.draft = line
    app.chat.prompt.action_submit()
    await app.pilot.pause()


async def says(app: Driven, words: str) -> None:
    await app.until(lambda: words in " ".join(app.text.split()), repr(words))


async def pinned(app: Driven) -> list[tuple[str, str]]:
    return [(pin.kind, pin.text) for pin in (await app.conversation.pins.listed()).pins]


def at_cursor(app: Driven) -> object:
    key = app.chat.transcript.interaction.cursor
    return None if key is None else app.chat.transcript.item(key)


async def test_words_files_and_messages_are_pinned_listed_and_unpinned(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "notes.md").write_text("the rules\n")
    llm.script("The port is 7071.")
    async with start(size=(140, 40)) as app:
        await app.say("Which port?")
        await app.sees("The port is 7071.")
        await app.rests()
        await command(app, "/pins")
        await says(app, "Nothing is pinned.")
        await command(app, "/pin Never touch main.")
        await says(app, "Pinned as 1: your text.")
        await command(app, "/pin @notes.md")
        await says(app, "Pinned as 2: notes.md.")
        await command(app, "/pin @nowhere.md")
        await says(app, "Not pinned: this file cannot be pinned: nowhere.md")
        await command(app, "/pin")
        await says(app, "Run /pin TEXT|@FILE.")
        await app.press("tab")
        await app.press("home")
        while not isinstance(at_cursor(app), UserItem):
            await app.press("down")
        await app.press("p")
        await says(app, "Pinned as 3")
        assert await pinned(app) == [
            ("text", "Never touch main."),
            ("file", "the rules\n"),
            ("message", "Which port?"),
        ]
        await app.press("escape")
        await command(app, "/pins")
        await app.shows(ChooseScreen)
        await app.sees("1 text: Never touch main.", "2 file: notes.md")
        await app.press("down", "enter")
        await app.sees("Keep it", "Unpin it", "the rules")
        await app.press("down", "enter")
        await says(app, "Unpinned 2")
        assert [kind for kind, _ in await pinned(app)] == ["text", "message"]


async def test_the_inspector_pins_the_message_at_the_cursor(start: Start, llm: ScriptedLLM) -> None:
    llm.script("The port is 7071.")
    async with start(size=(140, 40)) as app:
        await app.say("Which port?")
        await app.sees("The port is 7071.")
        await app.rests()
        await command(app, "/context")
        await app.shows(InspectorScreen)
        await app.press("s", "home", "p")
        await app.until(lambda: "Only messages can be pinned" in app.notices, "a word on the row")
        await app.press("end", "p")
        await app.until(lambda: "Pinned as 1" in app.notices, "the pin")
        assert await pinned(app) == [("message", "The port is 7071.")]


async def test_a_pin_that_is_not_wanted_is_all_that_the_answer_refuses(
    start: Start, llm: ScriptedLLM
) -> None:
    proposed = {"summary": "All of it.", "pin": ["Never touch main."]}
    llm.script(Reply(calls=[Call("ls", {})]), Reply(calls=[Call("new_session", proposed)]), "Going on.")
    async with start(size=(140, 40), compaction="llm") as app:
        await app.say("go")
        await app.sees("Pin this?", "[y] pin", "[n] don't pin")
        assert "instead" not in app.text
        await app.press("n")
        await app.sees("Going on.")
        await app.rests()
        assert await pinned(app) == [] and "denied" not in app.text


async def test_proposed_pin_is_asked_about(start: Start, llm: ScriptedLLM) -> None:
    proposed = {"summary": "All of it.", "pin": ["Never touch main."]}
    llm.script(Reply(calls=[Call("ls", {})]), Reply(calls=[Call("new_session", proposed)]), "Going on.")
    async with start(size=(140, 40), compaction="llm") as app:
        await app.say("go")
        await app.sees("Pin this?", "proposes to pin this", "- Never touch main.")
        await app.sees("[y] pin", "[n] don't pin")
        await app.press("y")
        await app.sees("Going on.")
        await app.rests()
        assert await pinned(app) == [("text", "Never touch main.")]
        seed = app.conversation.history[0].parts[0]
        assert isinstance(seed, Seed) and "Never touch main." in seed.pins


async def test_a_pin_before_the_first_prompt_is_made_with_it(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    async with start() as app:
        await app.say("/pin Never touch main.")
        await app.sees("It will be pinned with your first prompt.")
        await app.say("/pins")
        await app.sees("what you pin now is pinned with your first prompt")
        await app.say("hi")
        await app.sees("Pinned as 1")
        await app.rests()
        assert await pinned(app) == [("text", "Never touch main.")]


async def test_the_sizes_of_pins_add_up_to_what_is_said_of_all_of_them(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("Hello.")
    async with start(size=(140, 40)) as app:
        await app.say("hi")
        await app.sees("Hello.")
        await app.rests()
        for text in ("Never touch main.", "The port is 7071."):
            await command(app, f"/pin {text}")
            await app.rests()
        listed = await app.conversation.pins.listed()
        assert sum(pin.tokens for pin in listed.pins) == listed.tokens
        await says(app, f"Pins use {listed.tokens:,} of {listed.limit:,} tokens")
        await command(app, "/pins")
        await says(app, f"Pins: {listed.tokens:,} of {listed.limit:,} tokens")
