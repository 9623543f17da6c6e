"""What is seen of calls that have ended: the last lines of commands, what failed, reading in one line."""

from pathlib import Path

import pytest
from asking import bash
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def ended(app: Driven, *words: str) -> list[str]:
    await app.say("go")
    await app.sees("Well.", *words)
    await app.rests()
    return [line.strip() for line in app.text.split("\n") if line.strip()]


async def test_a_command_that_went_well_shows_its_last_lines(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("seq 1 40"), "Well.")
    async with start(yolo=True) as app:
        lines = await ended(app, "⋯ 37 more lines")
        at = next(number for number, line in enumerate(lines) if "Ran seq 1 40" in line)
        assert lines[at + 1 : at + 5] == ["⋯ 37 more lines", "38", "39", "40"]


async def test_lines_that_were_not_kept_are_counted(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("seq 1 20000"), "Well.")
    async with start(yolo=True) as app:
        lines = await ended(app, "⋯ 19,997 more lines")
        assert lines[lines.index("⋯ 19,997 more lines") + 1 :][:3] == ["19998", "19999", "20000"]


async def test_a_few_lines_are_shown_whole(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("printf '%s\\n' one two three four five"), "Well.")
    async with start(yolo=True) as app:
        lines = await ended(app, "five")
        assert lines[lines.index("one") :][:5] == ["one", "two", "three", "four", "five"]
        assert "more line" not in app.text


async def test_a_command_that_failed_shows_the_lines_that_failed(start: Start, llm: ScriptedLLM) -> None:
    script = (
        "seq 1 30; echo 'src/a.py:3: error: no attribute x'; seq 31 60; echo '1 failed, 9 passed'; exit 3"
    )
    llm.script(bash(script), "Well.")
    async with start(yolo=True) as app:
        lines = await ended(app, "exit 3")
        at = next(number for number, line in enumerate(lines) if "more lines" in line)
        assert lines[at : at + 3] == [
            "⋯ 60 more lines",
            "src/a.py:3: error: no attribute x",
            "1 failed, 9 passed",
        ]


async def test_a_failure_without_words_shows_its_last_lines(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("seq 1 30; exit 2"), "Well.")
    async with start(yolo=True) as app:
        lines = await ended(app, "exit 2")
        at = next(number for number, line in enumerate(lines) if "more lines" in line)
        assert lines[at + 1 : at + 6] == ["26", "27", "28", "29", "30"]


def reads(workspace: Path) -> Reply:
    for name in "abc":
        (workspace / name).write_text(f"text of {name}\n")
    views = [Call("view", {"file_path": name}, f"call_{name}") for name in "abc"]
    return Reply(calls=[*views, Call("grep", {"pattern": "text"}, "call_grep")])


async def test_folded_line_covers_at_most_fifty_calls(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a").write_text("text of a\n" * 200)
    calls = [Call("view", {"file_path": "a", "offset": number, "limit": 1}) for number in range(1, 111)]
    llm.script(Reply(calls=calls), "Well.")
    async with start() as app:
        lines = await ended(app, "Read 10 files")
        told = [line.split("Read ")[1].split(" files")[0] for line in lines if "Read " in line]
        assert told == ["50", "50", "10"]


async def test_calls_that_read_are_one_line_that_opens_with_one_key(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(reads(workspace), Reply(calls=[Call("ls", {})]), "Well.")
    async with start() as app:
        lines = await ended(app, "Read 3 files, listed 1 folder, searched once")
        assert not [line for line in lines if "Read a" in line]
        await app.press("tab", "up", "enter")
        await app.sees("▾ ✓ Read 3 files", "Read a", "Read b", "Read c", 'Searched "text"', "✓ Listed")
        await app.press("down", "enter")
        await app.sees("text of a")
        await app.press("enter", "up", "enter")
        await app.sees_no("Read a")
        await app.sees("▸ ✓ Read 3 files")


async def test_a_resumed_conversation_folds_them_too(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(reads(workspace), "Well.")
    async with start() as app:
        await ended(app, "Read 3 files, searched once")
    async with start(resume_latest=True) as app:
        await app.sees("Read 3 files, searched once", "Well.")
        assert "Read a" not in app.text


async def test_failed_and_requested_calls_are_not_folded(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    calls = reads(workspace).calls
    llm.script(Reply(calls=[*calls, Call("view", {"file_path": "missing"}, "call_missing")]), "Well.")
    async with start() as app:
        await ended(app, "Read 3 files, searched once", "✗ Read missing")


async def test_words_between_them_make_two_lines(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    first = reads(workspace)
    second = Reply("Now the others.", calls=[Call("view", {"file_path": n}, f"again_{n}") for n in "ab"])
    llm.script(first, second, "Well.")
    async with start() as app:
        lines = await ended(app, "Read 2 files")
        assert [line for line in lines if "✓" in line] == [
            "▸ ✓ Read 3 files, searched once",
            "▸ ✓ Read 2 files",
        ]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("size", [(100, 30), (40, 12)], ids=["wide", "small"])
async def test_scrolling_over_folded_lines_loses_nothing(
    start: Start, llm: ScriptedLLM, workspace: Path, size: tuple[int, int]
) -> None:
    llm.script(*[reply for _ in range(6) for reply in (reads(workspace), bash("seq 1 9"), "Well.")])
    async with start(size=size, yolo=True) as app:
        for _ in range(6):
            await app.say("go")
            await app.until(lambda: not app.chat.prompt.draft)
            await app.rests()
        top = app.chat.transcript
        await app.press("tab", "home")
        await app.until(lambda: top.scroll_y == 0)
        await app.press("end")
        await app.until(lambda: top.following)
        await app.sees("Well.")
