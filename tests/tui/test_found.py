"""Search shows what it found where it stands; a conversation that is open elsewhere costs nothing here."""

import subprocess
import sys
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.server import ScriptedLLM
from support.conversations import begun, continued, told
from support.stored import a_session

from crushpy.core.paths import Paths
from crushpy.storage.store import Store
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.message_search import SearchScreen
from crushpy.tui.screens.session_reader import SessionReaderScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]

LONG = [f"words {number}\n" * 30 for number in range(8)]


async def search(app: Driven, words: str) -> None:
    await app.say(f"/search {words}")
    await app.shows(SearchScreen)
    await app.sees("1 hit")
    await app.press("enter")


def highlighted(app: Driven) -> str:
    return app.app.screen.get_selected_text() or ""


async def test_a_hit_of_what_is_shown_is_shown_where_it_stands(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    llm.script("the zebra is here\n" + "line\n\n" * 60, "no more")
    async with start() as app:
        await app.say("first")
        await app.rests()
        await app.say("second")
        await app.sees("no more")
        await app.rests()
        assert "zebra" not in app.text
        await search(app, "zebra")
        await app.sees("the zebra is here", "▌")
        await app.until(lambda: highlighted(app) == "zebra", "the highlight")
        assert app.chat.transcript.has_focus
        await app.press("escape")
        assert app.chat.prompt.has_focus


async def test_a_hit_before_a_compaction_or_in_a_task_is_shown_to_read(
    start: Start, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    store = Store(Paths().database)
    first = await begun(store, "t", *LONG, "a zebra in the past", "yes", *LONG, cwd=str(workspace))
    tip = await continued(store, first, "We go on.", "and now", "now")
    task = a_session(str(workspace), root_id=first.id, parent_id=tip.id, kind="task", title="work")
    await store.sessions.create(task)
    await told(store, task, "look for a giraffe", "found one")
    await store.close()
    async with start(session=tip.id) as app:
        await search(app, "zebra")
        await app.shows(SessionReaderScreen)
        await app.sees("a zebra in the past", f"Session {first.id}", "g Continue here", "f Fork here")
        await app.until(lambda: highlighted(app) == "zebra", "the highlight")
        await app.press("escape")
        await search(app, "giraffe")
        await app.shows(SessionReaderScreen)
        await app.sees("look for a giraffe", f"Session {task.id}")
        assert "Continue here" not in app.text
        await app.press("escape")
        assert app.conversation.info.id == tip.id


async def test_a_hit_in_another_conversation_is_read_and_gone_on_with_or_forked(
    start: Start, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    store = Store(Paths().database)
    other = await begun(store, "other", "a zebra", "it has stripes", "more", "much more", cwd=str(workspace))
    await store.close()
    async with start() as app:
        before = app.conversation.info.id
        await search(app, "stripes")
        await app.shows(SessionReaderScreen)
        await app.until(lambda: highlighted(app) == "stripes", "the highlight")
        assert app.conversation.info.id == before
        await app.press("f")
        await app.until(lambda: app.chat.conversation and app.conversation.info.id != before, "the fork")
        assert app.conversation.info.parent_id == other.id
        assert [message.text for message in app.conversation.history if message.text] == [
            "a zebra",
            "it has stripes",
        ]
        await search(app, "zebra")
        await app.sees("a zebra")


# --- open elsewhere --------------------------------------------------------------------------------------

HOLD = """
import asyncio, sys
from crushpy.core.paths import Paths
from crushpy.storage.store import Store
async def hold():
    await Store(Paths().database).leases.acquire(sys.argv[1])
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(hold())
"""


@pytest.fixture
def held(home: Path):
    """`held(session_id)`: another process works on it until the test ends."""
    processes: list[subprocess.Popen[str]] = []

    def hold(session_id: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, session_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

    yield hold
    for process in processes:
        process.communicate(timeout=60)


async def test_resuming_a_busy_session_keeps_the_current_one(
    start: Start, llm: ScriptedLLM, workspace: Path, held
) -> None:
    llm.always("Hi.")
    store = Store(Paths().database)
    other = await begun(store, "other", "in another window", "so it is", cwd=str(workspace))
    await store.close()
    held(other.id)
    async with start(size=(120, 30)) as app:
        await app.say("hello")
        await app.sees("Hi.")
        await app.rests()
        mine = app.conversation.info.id
        for choice, keys in {"cancel": ("escape",), "read": ("enter",), "fork": ("down", "enter")}.items():
            await app.say("/sessions")
            await app.sees("other")
            await app.press("down", "enter")
            await app.shows(ChooseScreen)
            await app.sees("open elsewhere", "Read it", "Fork it", "Cancel")
            await app.press(*keys)
            if choice == "read":
                await app.shows(SessionReaderScreen)
                await app.sees("so it is")
                await app.press("escape")
            if choice != "fork":
                await app.until(lambda: app.app.screen is app.chat, "the chat")
                assert app.conversation.info.id == mine
                assert "Hi." in app.text
        await app.until(lambda: app.chat.conversation and app.conversation.info.id != mine, "the fork")
        assert app.conversation.info.parent_id == other.id
        await app.say("go on")
        await app.rests()
        assert app.conversation.history[-1].text == "Hi."


async def test_draft_stays_when_a_session_is_resumed_at_the_start(
    start: Start, llm: ScriptedLLM, workspace: Path, held
) -> None:
    store = Store(Paths().database)
    other = await begun(store, "other", "in another window", "so it is", cwd=str(workspace))
    await store.close()
    held(other.id)
    async with start(session=other.id, wait=False, typed="for the other one") as app:
        await app.press("enter")
        await app.shows(ChooseScreen)
        await app.press("escape")
        await app.until(lambda: app.app.screen is app.chat, "the chat")
        assert app.chat.prompt.draft == "for the other one"
        assert not llm.requests
        await app.press("ctrl+u")
        await app.say("/cost")
        await app.sees("tokens")
