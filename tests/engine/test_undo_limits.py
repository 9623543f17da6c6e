"""Undo in long conversations and large folders: compactions, restarts, little room, many files."""

import random
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks

from crushpy.core.events import BoundaryCommitted, Notice

pytestmark = pytest.mark.slow


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


def prompts(talk: Talk) -> list[str]:
    return [
        message.id for message in talk.conversation.history if message.role == "user" and message.text.strip()
    ]


async def changed(talk: Talk) -> set[str]:
    _, found = await talk.conversation.files.rewinder.changes(talk.conversation.info.id)
    return {Path(view.path).name for _, view in found}


async def go_back(talk: Talk, prompt: str) -> dict[str, str]:
    """Puts the files back to before a prompt; what was left alone, and why."""
    rewinder, session = talk.conversation.files.rewinder, talk.conversation.info.id
    planned = await rewinder.plan_rewind(session, await rewinder.target(session, prompt))
    outcome = await talk.conversation.files.put_back(planned)
    assert outcome is not None
    return {Path(conflict.path).name: conflict.reason for conflict in outcome.conflicts}


def noise(size: int) -> bytes:
    """Bytes that cannot be packed."""
    return random.Random(size).randbytes(size)


async def test_undo_spans_a_restart_and_a_compaction(talks: Talks, llm: ScriptedLLM, workspace: Path) -> None:
    for name in "abc":
        (workspace / name).write_text("old\n")
    talk = await talks(yolo=True)
    llm.script(bash("echo new > a"), "Done.")
    await talk.ask("change a")
    (first,) = prompts(talk)
    session = talk.conversation.info.id
    await talk.close()
    talk = await talks(yolo=True, session=session, compaction="llm")
    fresh = Reply(calls=[Call("new_session", {"summary": "a is changed."})])
    llm.script(bash("echo new > b"), fresh, bash("echo new > c"), "Done.")
    await talk.ask("change b and c")
    assert talk.of(BoundaryCommitted)
    assert await changed(talk) == {"a", "b", "c"}
    points = await talk.conversation.files.rewinder.points(talk.conversation.info.id)
    second = next(point.message.id for point in points if point.message.text == "change b and c")
    assert await go_back(talk, second) == {}
    assert [(workspace / name).read_text() for name in "abc"] == ["new\n", "old\n", "old\n"]
    assert await go_back(talk, first) == {}
    assert (workspace / "a").read_text() == "old\n"


async def test_undo_drops_the_oldest_snapshots_first(
    talks: Talks, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    talk = await talks(yolo=True, flags={"undo.max_mb": 1})
    names = [f"{number:02}" for number in range(8)]
    for name in names:
        (workspace / name).write_bytes(noise(200_000 + int(name)))
        llm.script(bash(f"echo new > {name}"), "Done.")
        await talk.ask(f"change {name}")
    assert sum(file.stat().st_size for file in (home / "undo" / "objects").rglob("*/*")) <= 1_000_000
    refused = await go_back(talk, prompts(talk)[0])
    assert 3 < len(refused) < 8 and list(refused) == names[: len(refused)]  # the oldest
    assert all("no longer stored (undo.max_mb" in reason for reason in refused.values())
    for name in names:
        held = noise(200_000 + int(name))
        assert (workspace / name).read_bytes() == (b"new\n" if name in refused else held)


async def test_above_so_many_files_commands_are_not_watched_unless_that_is_wanted(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    for number in range(5):
        (workspace / f"{number}.txt").write_text("old\n")
    talk = await talks(yolo=True, flags={"undo.max_files": 4})
    write = Reply(calls=[Call("write", {"file_path": "written.txt", "content": "a"})])
    llm.script(bash("echo new > 0.txt"), write, bash("echo new > 1.txt"), "Done.")
    await talk.ask("change it")
    (notice,) = [notice.text for notice in talk.of(Notice) if "more than 4 files" in notice.text]
    assert 'undo.shell = "on"' in notice
    assert await changed(talk) == {"written.txt"}
    talk = await talks(yolo=True, flags={"undo.max_files": 4, "undo.shell": "on"})
    llm.script(bash("echo newer > 0.txt"), "Done.")
    await talk.ask("change it")
    assert await changed(talk) == {"0.txt"}
