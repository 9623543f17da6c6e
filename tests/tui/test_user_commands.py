"""The user's own commands, typed with a `!`: seen while they run, stopped by a key, gone with the app."""

import json
import os
import resource
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.engine import user_commands
from crushpy.tools.shell import process
from crushpy.tui.items import ToolItem

pytestmark = pytest.mark.slow

__all__ = ["start"]

UNTIL_TOLD = "until test -e go; do sleep 0.02; done"


def block(app: Driven) -> ToolItem:
    """The last command's block, as it is now."""
    items = map(app.chat.transcript.item, app.chat.transcript.keys())
    return [item for item in items if isinstance(item, ToolItem)][-1]


async def run(app: Driven, command: str) -> None:
    app.chat.prompt.draft = f"!{command}"
    app.chat.prompt.action_submit()
    await app.pilot.pause()


async def prints(app: Driven, words: str) -> None:
    """Returns once the last command has printed them: its headline has the words from the beginning."""
    await app.until(lambda: words in block(app).output, f"{words!r} in its output")


def lives(file: Path) -> bool:
    """Whether the process with the number in this file is alive."""
    try:
        state = Path(f"/proc/{int(file.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def test_user_command_block_appears_at_once_and_stays_open(start: Start, workspace: Path) -> None:
    async with start() as app:
        await run(app, f"echo first; {UNTIL_TOLD}; echo second")
        await app.sees("● ! echo first", " first")
        assert block(app).state == "running"
        (workspace / "go").touch()
        await app.until(lambda: block(app).state == "done", "its end")
        await app.sees("✓ ! echo first", " first", " second")


async def test_user_command_block_closed_by_hand_stays_closed(start: Start, workspace: Path) -> None:
    async with start() as app:
        await run(app, f"echo a line of it; {UNTIL_TOLD}")
        await app.sees("● ! echo", "     a line of it")
        await app.press("f6", "f6")
        (workspace / "go").touch()
        await app.sees("▸ ✓ ! echo")
        assert "▾ ✓ ! echo" not in app.text


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_key_stops_it_and_all_that_it_started(start: Start, workspace: Path, key: str) -> None:
    async with start() as app:
        await run(app, "echo $$ > shell; (setsid sleep 1000 & echo $! > child); echo begun; sleep 1000")
        await prints(app, "begun")
        await app.press(key)
        await app.sees("⊘ ! echo", "stopped", "     begun")  # what it printed stays
        assert not lives(workspace / "shell") and not lives(workspace / "child")
        assert not app.app._exit


async def test_user_command_is_killed_by_a_second_press(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "END_GRACE_S", 1_000.0)
    async with start() as app:
        await run(app, "trap '' TERM; echo $$ > shell; echo begun; while true; do sleep 0.02; done")
        await prints(app, "begun")
        await app.press("escape", "escape")
        await app.sees("stopped")
        await app.until(lambda: not lives(workspace / "shell"))


async def test_escape_stops_the_agent_too(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(Stall(Reply("Half an answer and more", chunk=4), after=3))
    async with start() as app:
        await app.say("hello")
        await app.sees("Half an")
        await run(app, "sleep 1000")
        await app.sees("● ! sleep 1000")
        await app.press("escape")
        await app.sees("Interrupted.", "⊘ ! sleep 1000")


async def test_leaving_the_app_ends_it_and_what_it_left_in_the_background(
    start: Start, workspace: Path
) -> None:
    async with start() as app:
        await run(app, "sleep 1000 & echo $! > left")
        await app.sees("✓ ! sleep 1000 &", "its background processes run until you quit")
        assert lives(workspace / "left")
        await run(app, "echo $$ > shell; echo begun; sleep 1000")
        await prints(app, "begun")
        await app.press("ctrl+q")
        await app.sees("Quit crushpy?", "A command of yours is running.")
        await app.press("ctrl+q")
        await app.until(lambda: app.app._exit, "the app to go")
        assert not lives(workspace / "shell") and not lives(workspace / "left")


async def test_user_command_is_ended_at_its_limit_and_keeps_its_output(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_commands, "COMMAND_TIMEOUT_S", 5.0)
    async with start() as app:
        await run(app, "echo kept; echo $$ > shell; sleep 1000")
        await app.sees("✗ ! echo kept", " kept", "ended after 5 s")
        assert not lives(workspace / "shell")


@pytest.mark.nightly
async def test_a_flood_is_truncated_in_the_middle_while_it_comes(start: Start) -> None:
    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024

    async with start() as app:
        before, seen = peak(), 0
        await run(app, "echo the head; yes 'abc def' | head -c 100000000; echo the tail")
        while block(app).state != "done":
            seen = max(seen, len(block(app).output))
            await app.pilot.pause(0.01)
        shown = json.dumps(str(block(app).display))
        assert seen < 40_000
        assert "the head" in shown and "the tail" in shown and "characters truncated" in shown
        assert len(shown) < 50_000
        assert peak() - before < 95_000_000, "less than the flood itself"
        await app.sees("the tail")


async def test_a_failed_one_says_so_and_shows_its_output_once(start: Start) -> None:
    async with start() as app:
        await run(app, "echo broken pieces; exit 3")
        await app.sees("✗ ! echo", "exit 3")
        assert app.text.count("     broken pieces") == 1


async def test_user_command_shows_its_exit_below_a_long_output(start: Start) -> None:
    async with start() as app:
        await run(app, "seq 100; exit 3")
        await app.sees("    ✗ exit 3", " 100")
        await run(app, "seq 101 200")
        await app.until(lambda: app.text.splitlines()[-5].lstrip().startswith("✓"), "the good end")


async def test_the_agent_does_not_see_it_and_it_is_not_stored(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hi.")
    async with start() as app:
        await run(app, "echo $((40 + 2))nd secret")
        await app.sees("42nd secret")
        await app.say("hello")
        await app.sees("Hi.")
        await app.rests()
    assert "42nd" not in json.dumps(llm.requests[0].body)
    async with start(resume_latest=True, model="") as app:
        await app.sees("Hi.")
        assert "42nd" not in app.text


async def test_user_command_block_returns_after_a_redraw(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("The answer is 42.")
    async with start() as app:
        await app.say("what is the answer?")
        await app.sees("The answer is 42.")
        await app.rests()
        await app.say("/handoff we know the answer")
        await app.sees("Context compacted")
        await app.rests()
        await run(app, f"{UNTIL_TOLD}; echo found it")
        await app.sees("● ! until")
        app.chat.prompt.draft = "/undo-compaction"
        app.chat.prompt.action_submit()
        await app.sees("Undo the last compaction (manual")
        await app.press("enter")
        await app.sees("Compaction undone")
        (workspace / "go").touch()
        await app.sees("found it")


async def test_a_folder_that_is_gone_is_told(start: Start, workspace: Path) -> None:
    async with start() as app:
        os.rmdir(workspace)
        await run(app, "echo hi")
        await app.until(lambda: "no longer exists" in " ".join(app.text.split()), "the reason")
