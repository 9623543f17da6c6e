"""Branches in the app: indented while they are open, one line afterwards; /branch, /return and /btw."""

import json
from typing import Any

import pytest
from driving import Start, start
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.core.messages import Usage
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import SessionTreeScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]


def line(text: str, words: str) -> str:
    return next(row for row in text.splitlines() if words in row)


async def test_a_branch_is_indented_and_then_folded(start: Start, llm: ScriptedLLM) -> None:
    back = Call("return_to_parent", {"result": "the cause is in a.py"})
    llm.script(
        Reply("I step aside.", calls=[Call("branch", {"goal": "find the cause"})]),
        Reply("Looking inside.", calls=[Call("bash", {"command": "echo in the branch"})]),
        Stall(Reply("Nearly there.", calls=[back]), after=1),
        Reply("All is well."),
    )
    async with start(size=(120, 40), yolo=True, compaction="llm") as app:
        await app.say("fix it")
        await app.sees("Looking inside.", "Nearly there.")
        assert "┊" in line(app.text, "Looking inside.") and "┊" in line(app.text, "echo in the branch")
        assert "┊" not in line(app.text, "I step aside.")
        llm.release()
        await app.sees("All is well.")
        await app.rests()
        assert "Looking inside." not in app.text and "┊" not in app.text
        folded = line(app.text, "find the cause")
        assert "2 calls, " in folded and "tokens, folded to " in folded
        await app.press("ctrl+l")
        await app.shows(SessionTreeScreen)
        await app.sees("branch of session 1", "returned")
        await app.press("down")
        await app.sees("find the cause")
        await app.press("escape", "tab", "up", "s")
        await app.shows(SessionReaderScreen)
        await app.sees("Looking inside.")


async def test_the_users_branch_and_a_side_question(start: Start, llm: ScriptedLLM) -> None:
    def answer(body: dict[str, Any]) -> Any:
        last = json.dumps(body["messages"][-1])
        if "<transcript>" in last:
            return Reply("It is **blue**.\n\n- as the sky\n- " + "word " * 100, usage=Usage(700, 9))
        return Reply("Reply to " + ("the goal." if "look aside" in last else "that."))

    llm.always(answer)
    async with start(size=(120, 40), yolo=True) as app:
        await app.say("hello")
        await app.sees("Reply to that.")
        await app.rests()
        await app.say("/branch look aside")
        await app.sees("Reply to the goal.")
        await app.rests()
        assert "┊" in line(app.text, "Reply to the goal.") and app.conversation.session.branches
        assert "branch depth 1" in app.text
        await app.say("/btw which colour?")
        await app.sees("btw", "which colour?", "709 tokens")
        await app.sees("It is blue.", "• as the sky", "c copies")
        assert "btw" not in app.notices
        await app.press("tab", "c")
        await app.until(lambda: "It is **blue**." in app.app.clipboard, "the answer in the clipboard")
        await app.press("escape")
        await app.sees_no("It is blue.")
        assert "which colour?" in app.text and "Esc folds" not in app.text and app.chat.prompt.has_focus
        await app.say("/return it was nothing")
        await app.sees("folded to")
        assert "Reply to the goal." not in app.text and not app.conversation.session.branches
        assert "branch depth" not in app.text
        await app.say("/return")
        await app.sees("This is not a branch")
        await app.say("and now")
        await app.rests()
        sent = json.dumps(llm.requests[-1].body["messages"])
        assert "it was nothing" in sent and "colour" not in sent


async def test_the_result_of_a_branch_is_not_lost_if_it_comes_during_a_turn(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("Hello.", Stall(Reply("Looking."), after=1))
    async with start(size=(120, 40)) as app:
        await app.say("hello")
        await app.sees("Hello.")
        await app.rests()
        await app.say("/branch look aside")
        await app.sees("Looking.")
        await app.say("/return it was nothing")
        await app.sees("Interrupt it first.", "▌ /return it was nothing")
        llm.release()


async def test_branch_is_refused_before_the_first_prompt(start: Start) -> None:
    async with start(size=(120, 40), yolo=True) as app:
        await app.say("/branch look aside")
        await app.sees("nothing to branch from", "▌ /branch look aside")
        app.chat.prompt.draft = ""
        await app.say("/return")
        await app.sees("This is not a branch")


async def test_an_open_branch_is_indented_after_a_restart(start: Start, llm: ScriptedLLM) -> None:
    llm.always(lambda body: Reply("Inside." if "aside" in json.dumps(body["messages"][-1]) else "Outside."))
    async with start(size=(120, 40), yolo=True) as app:
        await app.say("hello")
        await app.sees("Outside.")
        await app.rests()
        await app.say("/branch look aside")
        await app.sees("Inside.")
        await app.rests()
    async with start(size=(120, 40), yolo=True, resume_latest=True) as app:
        await app.sees("Inside.")
        assert "┊" in line(app.text, "Inside.") and "┊" not in line(app.text, "Outside.")
        await app.say("/return")
        await app.sees("folded to")
        assert "┊" not in app.text


async def test_a_returned_branch_of_the_users_is_folded_after_a_restart(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.always(lambda body: Reply("Inside." if "aside" in json.dumps(body["messages"][-1]) else "Outside."))
    async with start(size=(120, 40), yolo=True) as app:
        await app.say("hello")
        await app.sees("Outside.")
        await app.rests()
        await app.say("/branch look aside")
        await app.sees("Inside.")
        await app.rests()
        await app.say("/return it was nothing")
        await app.sees("folded to")
        live = line(app.text, "look aside")
    async with start(size=(120, 40), yolo=True, resume_latest=True) as app:
        await app.sees("folded to")
        assert line(app.text, "look aside").split() == live.split()
        assert "Told the model" not in app.text and "Inside." not in app.text and "┊" not in app.text
        await app.press("tab", "end", "s")
        await app.shows(SessionReaderScreen)
        await app.sees("Inside.")
