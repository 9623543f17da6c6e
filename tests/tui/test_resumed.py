"""What a transcript showed while it was lived is what it shows after a resume and after an undo."""

import re
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Fail, Reply, Stall
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def lines(app: Driven) -> list[str]:
    """Every line of the transcript, all of it opened."""
    await app.rests()
    await app.press("f6")
    await app.pilot.pause()
    rows = app.text.splitlines()
    end = next(number for number, row in enumerate(rows) if "compaction auto" in row)
    rows = [re.sub(r"<?[0-9]+ s · [0-9]+ steps? · .* tokens.*", "FIGURES", row) for row in rows[:end]]
    return [row.rstrip() for row in rows if row.strip()]


def bash(command: str, name: str, *, background: bool = False) -> Reply:
    more = {"background": True} if background else {}
    return Reply(calls=[Call("bash", {"command": command, **more}, id=name)])


async def live_through(app: Driven, llm: ScriptedLLM) -> None:
    """A conversation with everything that leaves a mark."""
    llm.script(
        Reply(calls=[Call("write", {"file_path": "a.txt", "content": "alpha\n"}, id="c1")]),
        bash("rm -rf b.txt", "c2"),
        bash("false", "c3", background=True),
        Reply("Cut short at the", finish="length"),
        Reply(
            calls=[
                Call("view", {"file_path": "a.txt"}, id="c4"),
                Call("view", {"file_path": "gone"}, id="c5"),
            ]
        ),
        Stall(Reply("Half an answer and more", chunk=4), after=3),
        bash("mkdir waiting", "c6"),
        bash("sleep 600", "c7"),
        Fail(401, message="no such key"),
    )
    await app.say("make it")
    await app.asked()
    await app.press("y")
    await app.until(lambda: "rm -rf" in app.text)
    await app.asked()
    await app.press("n")
    await app.type("leave it")
    await app.press("enter")
    await app.sees("cut off at the output limit", "job1 ended with exit code 1")
    await app.rests()
    await app.say("look")
    await app.sees("Half an answ")
    await app.press("escape")
    await app.sees("Interrupted.")
    await app.rests()
    await app.say("wait")
    await app.asked()
    await app.press("escape")
    await app.rests()
    await app.say("sleep")
    await app.asked()
    await app.press("y")
    await app.sees("● Run sleep 600")
    await app.press("escape")
    await app.rests()
    await app.say("fail")
    await app.sees("no such key")
    await app.rests()


SIZE = (100, 200)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks and what does not, whatever sandbox there is."""
    monkeypatch.setenv("CRUSHPY_PERMISSIONS__ASK", "bash(rm), bash(mkdir), bash(sleep), write")
    monkeypatch.setenv("CRUSHPY_PERMISSIONS__ALLOW", "bash(false)")


async def test_a_resumed_transcript_is_the_one_that_was_lived(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "b.txt").write_text("b\n")
    async with start(size=SIZE) as app:
        await live_through(app, llm)
        lived = await lines(app)
    for words in (
        "denied: leave it",
        "job1 ended with exit code 1",
        "The reply was cut off at the output limit.",
        "Interrupted.",
        "Not run: interrupted by the user.",
        "no such key",
    ):
        assert any(words in line for line in lived), (words, lived)
    assert not any("The reply was interrupted." in line for line in lived), "one line for one interruption"
    async with start(size=SIZE, resume_latest=True) as app:
        resumed = await lines(app)
    # When a job in the background ends is chance: its line may stand one row higher or lower.
    assert sorted(resumed) == sorted(lived)


async def test_calls_that_were_not_run_say_so_then_and_later(start: Start, llm: ScriptedLLM) -> None:
    edits = [Call("write", {"file_path": name, "content": "x\n"}) for name in ("a.txt", "b.txt")]
    llm.script(Reply(calls=edits))
    async with start() as app:
        await app.say("make two")
        await app.asked()
        await app.press("escape")
        await app.sees("Write a.txt · not run", "Write b.txt · not run", "Interrupted.")
        await app.rests()
    async with start(resume_latest=True) as app:
        await app.sees("Write a.txt · not run", "Write b.txt · not run", "Interrupted.")
