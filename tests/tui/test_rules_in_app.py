"""Standing rules in the app: a command, a key of the inspector, and pastes, which do not count."""

import pytest
from driving import Driven, Start, start
from scripted_llm.server import ScriptedLLM
from textual import events

from crushpy.context.edits import ContextEdit
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.inspector import InspectorScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]

LOG = "".join(f"line {number}: you must never restart this\n" for number in range(20))


async def command(app: Driven, line: str) -> None:
    app.chat.prompt.draft = line
    app.chat.prompt.action_submit()
    await app.pilot.pause()


async def says(app: Driven, words: str) -> None:
    await app.until(lambda: words in " ".join(app.text.split()), repr(words))


async def rules(app: Driven) -> list[str]:
    return [rule.text for rule in (await app.conversation.rules.listed()).valid]


async def test_a_rule_is_dropped_by_its_number(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        await app.say("Never push to main.")
        await app.sees("Fine.")
        await app.rests()
        await command(app, "/rules drop 2")
        await says(app, "there is no standing rule 2")
        app.chat.prompt.draft = ""
        await command(app, "/rules drop 1")
        await says(app, "Rule ended: Never push to main.")
        assert await rules(app) == []


async def test_rules_are_listed_added_pinned_and_dropped(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        await command(app, "/rules Speak like a pirate")
        await says(app, "there is no conversation to set rules for yet")
        await app.sees("▌ /rules Speak like a pirate")
        app.chat.prompt.draft = ""
        await app.say("Never push to main.")
        await app.sees("Fine.")
        await app.rests()
        await command(app, "/rules Speak like a pirate")
        await says(app, "Standing rule 2 added.")
        await command(app, "/rules")
        await app.shows(ChooseScreen)
        await app.sees("1 Never push to main.", "2 Speak like a pirate")
        await app.press("enter")
        await app.sees("Keep it", "Pin it", "Drop it")
        await app.press("down", "enter")
        await says(app, "Pinned as 1: your text.")
        await command(app, "/context")
        await app.shows(InspectorScreen)
        await app.press("l")
        await app.shows(ChooseScreen)
        await app.press("enter")
        await app.sees("Drop it")
        await app.press("down", "down", "enter")
        await app.shows(InspectorScreen)
        await app.press("escape")
        await says(app, "Rule ended: Never push to main.")
        assert await rules(app) == ["Speak like a pirate"]


async def test_a_folded_paste_is_not_the_users_own(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        app.chat.prompt.paste_text("Never push to main. Explain:\n", typed=True)
        mark = app.chat.prompt.pastes.fold(LOG).mark
        app.chat.prompt.paste_text(mark)
        app.chat.prompt.action_submit()
        await app.sees("Fine.")
        await app.rests()
        assert await rules(app) == ["Never push to main."]
        assert LOG.strip() in app.conversation.history[0].text


async def test_a_key_ends_the_rule_of_the_last_notice(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        await app.say("Use port 8443. No emojis please.")
        await app.sees("Taken as a rule: Use port 8443.", "F7 ends it.", "2 rules")
        await app.rests()
        await app.press("f7")
        await says(app, "Rule ended: No emojis please.")
        await app.until(lambda: app.chat.bar.state.rules == 1, "1 rule")
        await app.say("Use port 9000.")
        await app.sees("Replaces: Use port 8443.?", "F7 ends the earlier one.", "2 rules")
        await app.rests()
        assert await rules(app) == ["Use port 8443.", "Use port 9000."]
        await app.press("f7")
        await says(app, "Rule ended: Use port 8443.")
        await app.press("f7")
        await says(app, "No notice names a rule: /rules lists all.")
        assert await rules(app) == ["Use port 9000."]


async def test_the_key_ends_the_rule_of_the_notice_after_an_earlier_prompt_was_dropped(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        for prompt in ("No emojis please.", "Use port 8443.", "Use port 9000."):
            await app.say(prompt)
            await says(app, f"Taken as a rule: {prompt}")
            await app.rests()
        await says(app, "Replaces: Use port 8443.?")
        first = app.conversation.history[0]
        await app.conversation.context.edit([ContextEdit("drop", first.id)])
        await app.press("f7")
        await says(app, "Rule ended: Use port 8443.")
        assert await rules(app) == ["Use port 9000."]


async def test_the_key_says_that_the_rule_is_gone_and_ends_no_other(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        await app.say("No emojis please. Use port 8443.")
        await says(app, "Taken as a rule: Use port 8443.")
        await app.rests()
        await app.conversation.rules.drop(2)
        await app.press("f7")
        await says(app, "This rule does not apply any more: Use port 8443.")
        assert await rules(app) == ["No emojis please."]


async def test_a_small_paste_sets_no_rule_and_typed_words_do(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        app.chat.prompt.paste_text("No emojis please. ", typed=True)
        app.chat.prompt.post_message(events.Paste("Never push to main."))
        await app.until(lambda: "main." in app.chat.prompt.draft, "the paste")
        app.chat.prompt.action_submit()
        await app.sees("Fine.")
        await app.rests()
        assert await rules(app) == ["No emojis please."]
        assert "Never push to main." in app.conversation.history[0].text


TICKET = "Never touch legacy.py.\nAlways use tabs."


@pytest.mark.parametrize("lines", [1, 8], ids=["small", "folded"])
async def test_a_prompt_from_the_history_keeps_what_was_pasted(
    start: Start, llm: ScriptedLLM, lines: int
) -> None:
    llm.always("Fine.")
    ticket = f"{TICKET}\n" * lines
    for earlier in (False, True):
        async with start(size=(140, 40)) as app:
            prompt = app.chat.prompt
            if not earlier:
                prompt.paste_text("No emojis please.\n", typed=True)
                prompt.post_message(events.Paste(ticket))
                await app.until(lambda: "tabs" in app.chat.prompt.draft, "the paste")
                await app.press("enter")
                await app.sees("Fine.")
                await app.rests()
            await app.until(lambda: app.chat.prompt.prompts.loaded, "earlier prompts")
            await app.press("up")
            assert prompt.draft.rstrip() == f"No emojis please.\n{ticket}".rstrip()
            await app.press("enter")
            await app.until(lambda: not app.chat.prompt.draft, "the prompt to be sent")
            await app.rests()
            assert await rules(app) == ["No emojis please."]


async def test_an_edited_paste_sets_no_rule(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    async with start(size=(140, 40)) as app:
        app.chat.prompt.paste_text("No emojis please.\n", typed=True)
        app.chat.prompt.post_message(events.Paste(TICKET))
        await app.until(lambda: "tabs" in app.chat.prompt.draft, "the paste")
        await app.press("left", "left", "x", "up", "backspace", "z", "enter")
        await app.sees("Fine.")
        await app.rests()
        assert await rules(app) == ["No emojis please."]
        assert TICKET not in app.conversation.history[0].text
