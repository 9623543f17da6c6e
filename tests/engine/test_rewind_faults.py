"""Going back where something goes wrong: killed at every step, elsewhere, large files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks

from crushpy.core.errors import UsageError
from crushpy.engine.rewind.rewinder import Rewinder
from crushpy.undo.states import FileState

pytestmark = pytest.mark.slow

KILLER = Path(__file__).with_name("rewind_killer.py")


def runs(command: str, **more: Any) -> Reply:
    return Reply(calls=[Call("bash", {"command": command, **more})])


def writes(name: str, content: str) -> Reply:
    return Reply(calls=[Call("write", {"file_path": name, "content": content})])


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def rewinder_of(talk: Talk) -> tuple[Rewinder, str, str]:
    conversation = talk.conversation
    prompt = next(message.id for message in conversation.history if message.role == "user")
    return conversation.files.rewinder, conversation.info.id, prompt


@pytest.mark.timeout(300)
async def test_a_rewind_killed_at_any_step_is_finished_at_the_next_start(
    talks: Talks, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    (workspace / "changed.txt").write_text("old\n")
    (workspace / "swap").write_text("a file\n")
    (workspace / "gone").mkdir()
    (workspace / "gone" / "inner.txt").write_text("inner\n")
    before = files(workspace)
    talk = await talks(yolo=True)
    llm.script(
        runs("echo new > changed.txt; rm -r gone; rm swap; mkdir swap; echo x > swap/x; mkdir -p made/deep"),
        writes("made/deep/file.txt", "made\n"),
        "Done.",
    )
    await talk.ask("change everything")
    after = files(workspace)
    _, session, prompt = rewinder_of(talk)
    await talk.close()
    done = subprocess.run(
        [sys.executable, str(KILLER), str(home), str(workspace), session, prompt],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) > 10
    for state in seen:
        if state["files"] == after:  # killed before anything was written down: nothing happened
            assert state["forks"] == 0 and not state["said"]
        else:
            assert state["files"] == before and state["forks"] == 1 and state["left"] == 0
    assert seen[-1]["files"] == before and any(state["said"] for state in seen)
    assert [state["files"] == after for state in seen] == sorted(
        [state["files"] == after for state in seen], reverse=True
    )


async def test_background_commands_and_sub_agents_count_and_what_changes_between_turns_does_not(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    talk = await talks(yolo=True)
    llm.script(
        runs("echo job > job.txt; exec sleep 60", background=True),
        Reply(calls=[Call("job_output", {"job_id": "job1", "wait": 1})]),
        Reply(calls=[Call("task", {"prompt": "make a file"})]),
        writes("task.txt", "task\n"),
        "Made.",
        "Done.",
    )
    await talk.ask("start")
    await talk.conversation.files.rewinder.points(talk.conversation.info.id)
    (workspace / "mine.txt").write_text("mine\n")
    llm.script("Nothing to do.")
    await talk.ask("and then?")
    rewinder, session, prompt = rewinder_of(talk)
    planned = await rewinder.plan_rewind(session, await rewinder.target(session, prompt))
    assert sorted(view.path for view in planned.views) == ["job.txt", "task.txt"]
    await talk.conversation.files.put_back(planned)
    assert files(workspace) == {"mine.txt": "mine\n"}


async def test_rewind_keeps_users_changes_beside_a_reading_background_command(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    talk = await talks(yolo=True)
    llm.script(runs("touch made.txt"), "Done.")
    await talk.ask("make it")
    (workspace / "mine.txt").write_text("mine\n")
    llm.script("Hello.", runs("sleep 60", background=True), "It runs.")
    await talk.ask("hello")
    await talk.ask("wait in the background")
    rewinder, session, prompt = rewinder_of(talk)
    planned = await rewinder.plan_rewind(session, await rewinder.target(session, prompt))
    assert [view.path for view in planned.views] == ["made.txt"]
    await talk.conversation.files.put_back(planned)
    assert files(workspace) == {"mine.txt": "mine\n"}


async def test_files_go_back_only_where_they_were_changed(
    talks: Talks, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    talk = await talks(yolo=True)
    llm.script(writes("a.txt", "a\n"), "Done.")
    await talk.ask("make it")
    (home / "undo" / "machine").write_text("another")
    talk.conversation._runtime.change_recorder.files.__dict__.pop("machine", None)
    rewinder, session, prompt = rewinder_of(talk)
    target = await rewinder.target(session, prompt)
    with pytest.raises(UsageError, match=r"a\.txt was changed on .*another home"):
        await rewinder.plan_rewind(session, target)
    assert (await rewinder.rewind(talk.conversation.info, target, None)).session is not None
    assert (workspace / "a.txt").exists()


async def test_large_files_and_links_that_came_later_are_refused_by_name(
    talks: Talks, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "large.bin").write_bytes(b"x" * 1_100_000)
    (workspace / "sub").mkdir()
    (workspace / "sub" / "a.txt").write_text("old\n")
    talk = await talks(yolo=True, flags={"undo.max_file_mb": 1})
    llm.script(runs("echo more >> large.bin; echo new > sub/a.txt; echo b > b.txt"), "Done.")
    await talk.ask("change them")
    outside = tmp_path / "outside"
    (workspace / "sub").rename(outside)
    (workspace / "sub").symlink_to(outside)
    rewinder, session, prompt = rewinder_of(talk)
    planned = await rewinder.plan_rewind(session, await rewinder.target(session, prompt))
    reasons = {view.path: view.note for view in planned.views if view.action == "conflict"}
    assert "undo.max_file_mb" in reasons["large.bin"]
    assert "sub/a.txt" in reasons
    outcome = await talk.conversation.files.put_back(planned)
    assert outcome is not None and not (workspace / "b.txt").exists()
    assert (outside / "a.txt").read_text() == "new\n"


def test_states_tell_what_a_person_would() -> None:
    assert FileState("file", "a", mode=0o644).same(FileState("file", "a", mode=0o644, kept="store"))
    assert not FileState("file", "a", mode=0o644).same(FileState("file", "a", mode=0o755))
