"""The context edited in the inspector, the marks it leaves in the transcript, and branches at a message."""

import json
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.core.messages import Usage
from crushpy.tui.items import ReplyItem, ToolItem, UserItem
from crushpy.tui.screens.inspector import InspectorScreen
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import SessionTreeScreen
from crushpy.tui.widgets.row_list import RowList

pytestmark = pytest.mark.slow

__all__ = ["start"]

LOOK = Call("view", {"file_path": "long.py"})


async def read_twice(app: Driven, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "long.py").write_text("a line of the file\n" * 400)
    llm.script(Reply("I look.", calls=[LOOK]), Reply("Again.", calls=[LOOK]), "Done with it.")
    await app.say("read it twice")
    await app.sees("Done with it.")
    await app.rests()


async def inspector(app: Driven) -> None:
    await app.press("ctrl+o")
    await app.shows(InspectorScreen)
    await app.sees("Largest first")


async def highlight(app: Driven, words: str) -> None:
    """Moves to the first row that holds these words."""
    screen = app.app.screen
    assert isinstance(screen, InspectorScreen)
    row = next(number for number, row in enumerate(screen._rows) if words in row.name)
    screen.query_one(RowList).highlighted = row
    await app.pilot.pause()


async def go_to(app: Driven, message_id: str) -> None:
    """Moves up in the transcript to the item that shows this message."""
    for _ in range(20):
        if app.chat.feed.message_id(app.chat.transcript.interaction.cursor or 0) == message_id:
            return
        await app.press("up")
    raise AssertionError(app.text)


async def sent(app: Driven, llm: ScriptedLLM, prompt: str) -> str:
    llm.script("Yes.")
    await app.say(prompt)
    await app.until(lambda: json.dumps(llm.requests[-1].body).find(prompt) > 0, "the request")
    await app.rests()
    return json.dumps(llm.requests[-1].body["messages"])


async def test_the_inspector_drops_and_restores_with_the_effect_shown_before(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(size=(140, 40), yolo=True, toasts=True) as app:
        await read_twice(app, llm, workspace)
        await inspector(app)
        await highlight(app, "I look.")
        await app.press("d")
        await app.sees("2 messages dropped", "tokens freed", "uncached once", "Press again to confirm")
        assert not app.conversation.session.sent_states, "nothing has happened yet"
        await app.press("escape")
        await app.sees_no("Press again")
        await app.press("d", "down")
        await app.sees_no("Press again")
        await highlight(app, "I look.")
        await app.press("d")
        await app.sees("Press again to confirm")
        await app.press("d")
        await app.sees("Done: 2 messages dropped", "not sent")
        await app.press("escape")
        await app.sees("· not sent")
        assert "I look." not in await sent(app, llm, "go on")
        await inspector(app)
        await highlight(app, "I look.")
        await app.press("u")
        await app.sees("2 messages restored", "tokens more")
        await app.press("u")
        await app.sees("Done: 2 messages restored")
        await app.press("escape")
        await app.sees_no("not sent")
        assert "I look." in await sent(app, llm, "and on")


async def test_the_context_is_edited_by_a_typed_command(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(size=(140, 40), yolo=True, toasts=True) as app:
        await read_twice(app, llm, workspace)
        looked = next(message for message in app.conversation.history if message.text == "I look.")
        await app.say(f"/context drop {looked.id}")
        await app.sees("Done: 2 messages dropped", "· not sent")
        assert "I look." not in await sent(app, llm, "go on")
        await app.say(f"/context restore {looked.id}")
        await app.sees("Done: 2 messages restored")
        assert "I look." in await sent(app, llm, "and on")
        await app.say("/context drop nosuch")
        await app.sees("no message 'nosuch'")


async def test_the_inspector_keeps_its_place_and_one_figure_when_a_message_is_dropped(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "long.py").write_text("a line of the file\n" * 400)
    llm.script(
        Reply("I look.", calls=[LOOK], usage=Usage(5_000, 20)),
        Reply("Again.", calls=[LOOK], usage=Usage(9_000, 20)),
        Reply("Done with it.", usage=Usage(13_000, 20)),
    )
    async with start(size=(140, 40), yolo=True, toasts=True) as app:
        await app.say("read it twice")
        await app.sees("Done with it.")
        await app.rests()
        await inspector(app)
        await app.until(lambda: app.conversation.context.inspect().rows[-1].tokens > 0)
        await app.sees("13,020 of")
        inspection = app.conversation.context.inspect()
        assert abs(sum(row.tokens for row in inspection.rows) - 13_020) <= len(inspection.rows)
        screen = app.app.screen
        assert isinstance(screen, InspectorScreen)
        await highlight(app, "view: ")
        here = screen._current
        assert here is not None
        place = screen.query_one(RowList).highlighted
        await app.press("d")
        await app.sees("Press again to confirm")
        await app.press("d")
        await app.sees("Done: 2 messages dropped")
        dropped = screen._current
        assert dropped is not None and dropped.message_id == here.message_id
        assert screen.query_one(RowList).highlighted == place
        assert abs(dropped.whole_tokens - here.tokens) <= here.tokens // 50
        assert f"{dropped.whole_tokens:,}" in app.text
        left = app.conversation.context.inspect()
        assert abs(sum(row.tokens for row in left.rows) - left.budget.used) <= len(left.rows)
        await app.press("home", "u")
        await app.sees("Undone: 2 messages restored")
        assert not app.conversation.session.sent_states


async def test_old_views_are_offered_and_shortened_and_what_cannot_be_is_said(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(size=(140, 40), yolo=True, toasts=True) as app:
        await read_twice(app, llm, workspace)
        await inspector(app)
        await app.sees("1 old view, ", "press o to shorten them")
        await app.press("s", "home", "d")
        await app.sees("Only messages can be edited")
        await app.press("o")
        await app.sees("1 message shortened")
        await app.press("o")
        await app.sees("Done: 1 message shortened", "sent shortened, whole")
        await app.press("escape")
        await app.sees("sent shortened")
        assert "shortened by the user" in await sent(app, llm, "go on")


async def test_a_key_in_the_transcript_goes_on_in_a_branch_that_ends_there(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("The first answer.", "The second answer.")
    async with start(size=(100, 30)) as app:
        await app.say("the first request")
        await app.sees("The first answer.")
        await app.rests()
        await app.say("the second request")
        await app.sees("The second answer.")
        await app.rests()
        before = app.conversation.info.id
        await app.press("tab")
        await app.sees("f Fork here")
        await go_to(app, app.conversation.history[1].id)
        await app.press("f")
        await app.sees("This is a fork that ends here")
        assert app.conversation.info.parent_id == before and app.conversation.info.kind == "fork"
        assert [message.text for message in app.conversation.history] == [
            "the first request",
            "The first answer.",
        ]
        await app.sees_no("The second answer.")
        llm.script("On the fork.")
        await app.say("something else")
        await app.sees("On the fork.")


async def test_the_session_tree_leads_to_a_message_to_fork_at(start: Start, llm: ScriptedLLM) -> None:
    llm.script("The first answer.", "The second answer.")
    async with start(size=(120, 30)) as app:
        for prompt, answer in (("one", "The first answer."), ("two", "The second answer.")):
            await app.say(prompt)
            await app.sees(answer)
            await app.rests()
        before = app.conversation.info.id
        await app.press("ctrl+l")
        await app.shows(SessionTreeScreen)
        await app.sees("f Fork here", "session 1")
        await app.press("enter")
        await app.shows(SessionReaderScreen)
        await app.sees("The first answer.")
        await app.press("home")
        await app.sees("f Fork here")
        await app.press("f")
        await app.until(lambda: app.chat.conversation and app.conversation.info.id != before, "the fork")
        assert [message.text for message in app.conversation.history] == ["one"]
        assert app.conversation.info.parent_id == before


async def test_branch_is_refused_during_a_turn(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Half an answer and more", chunk=4), after=3))
    async with start() as app:
        await app.say("go")
        await app.sees("Half")
        before = app.conversation.info.id
        await app.press("tab", "home", "f")
        await app.sees("The agent is working")
        assert app.conversation.info.id == before


async def test_every_item_knows_its_message_live_and_stored(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(size=(140, 40), yolo=True, toasts=True) as app:
        await read_twice(app, llm, workspace)
        feed, view = app.chat.feed, app.chat.transcript
        kinds = (UserItem, ReplyItem, ToolItem)

        def shown() -> list[str]:
            keys = [key for key in view.keys() if isinstance(view.item(key), kinds)]  # noqa: SIM118
            return [feed.message_id(key) for key in keys]

        live = shown()
        await app.chat.show_history(app.conversation)
        assert live == shown() and all(live) and len(live) == 6
