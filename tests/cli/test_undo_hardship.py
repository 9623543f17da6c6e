"""Undo and the audit where it is hard: full disks, closed folders, other crushpys."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start, until

pytestmark = pytest.mark.slow

Mount = Callable[[Path, int], None]


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


def prompts(cli: Cli, session: str) -> list[str]:
    """The ids of all that the user said, up to a session."""
    shown = json.loads(cli("sessions", "show", session, "--json").stdout)
    return [message["id"] for message in shown["messages"] if message["role"] == "user"]


def changed(cli: Cli, session: str) -> set[str]:
    listed = json.loads(cli("sessions", "changes", session, "--json").stdout)["files"]
    return {Path(entry["path"]).name for entry in listed}


def noise(size: int) -> bytes:
    """Bytes that cannot be packed."""
    return random.Random(size).randbytes(size)


@pytest.fixture
def mount() -> Iterator[Mount]:
    """`mount(folder, kilobytes)`: a disk of its own, for whoever may do that."""
    mounted: list[Path] = []

    def mount_it(folder: Path, kilobytes: int) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("only root can make a small disk")
        options = f"size={kilobytes}k,mode=0700"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=False)
        if done.returncode != 0:
            pytest.skip("a small disk cannot be made here")
        mounted.append(folder)

    yield mount_it
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leaves no room on the disk of a folder."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as opened:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    opened.write(b"x" * size)
            except OSError:
                continue
    return file


# --- no room ---------------------------------------------------------------------------------------------


def test_full_disk_is_said_once_in_a_turn(
    start: Start, llm: ScriptedLLM, workspace: Path, home: Path, mount: Mount
) -> None:
    mount(home, 4_000)
    waits = "touch begun; until [ -e go ]; do sleep 0.01; done; echo x > made"
    write = Call("write", {"file_path": "a.txt", "content": "x"})
    llm.script(Reply(calls=[Call("bash", {"command": waits}), write]), "Done.")
    live = start("--yolo", "do it")
    until((workspace / "begun").exists, "the command runs")
    fill(home)
    (workspace / "go").touch()
    done = live.end()
    assert done.code == 1
    said = [line["text"] for line in done.of("notice")] + [line["message"] for line in done.of("error")]
    assert len([text for text in said if "full" in text or "No space" in text]) == 1, said
    assert any(text == "Changes by commands could not be recorded and cannot be undone." for text in said)


def test_undo_refuses_with_a_reason_when_the_disk_had_no_room(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path, mount: Mount
) -> None:
    mount(home, 3_000)
    (workspace / "large.bin").write_bytes(noise(4_000_000))
    (workspace / "small.txt").write_text("old\n")
    llm.script(bash("echo new > large.bin; echo new > small.txt"), "Done.")
    done = run("--yolo", "change them")
    assert done.code == 0, done.stderr
    assert "could not be stored" in str(done.of("notice"))
    session = done.result["session_id"]
    back = cli("sessions", "rewind", session, "--to", prompts(cli, session)[0], "--files", "--yes")
    assert back.returncode == 1
    assert "large.bin: not stored: a copy could not be made: No space left" in back.stderr
    assert (workspace / "large.bin").read_text() == "new\n"
    assert (workspace / "small.txt").read_text() == "old\n"


def test_a_rewind_on_a_full_disk_changes_nothing_and_works_once_there_is_room(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, mount: Mount
) -> None:
    mount(workspace, 2_000)
    (workspace / "a.bin").write_bytes(old := noise(900_000))
    (workspace / "b.txt").write_text("old\n")
    llm.script(bash("echo new > a.bin; echo new > b.txt"), "Done.")
    session = run("--yolo", "change them", cwd=workspace).result["session_id"]
    rewind = ("sessions", "rewind", session, "--to", prompts(cli, session)[0], "--yes")
    filler = fill(workspace)
    full = cli(*rewind)
    assert full.returncode == 1 and full.stdout == ""
    assert "Nothing was changed" in full.stderr and "Free disk space" in full.stderr
    assert (workspace / "a.bin").read_text() == (workspace / "b.txt").read_text() == "new\n"
    assert sorted(file.name for file in workspace.iterdir()) == ["a.bin", "b.txt", "filler"]
    filler.unlink()
    assert cli(*rewind).returncode == 0
    assert (workspace / "a.bin").read_bytes() == old


def test_call_is_not_run_when_the_audit_cannot_be_written(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, home: Path, mount: Mount
) -> None:
    mount(home, 3_000)
    llm.script("Hello.")
    session = run("hello").result["session_id"]
    filler = fill(home)
    llm.script(Reply(calls=[Call("write", {"file_path": "a.txt", "content": "a"})]), "Done.")
    done = run("-s", session, "--yolo", "write it")
    assert done.code not in (0, 3)
    assert not (workspace / "a.txt").exists()
    filler.unlink()
    llm.script(Reply(calls=[Call("write", {"file_path": "a.txt", "content": "a"})]), "Done.")
    assert run("-s", session, "--yolo", "write it").code == 0
    assert (workspace / "a.txt").exists()


# --- two at once -----------------------------------------------------------------------------------------


def test_two_crushpys_in_a_folder_keep_their_changes_apart_and_never_undo_each_others(
    run: Run, start: Start, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    for name in ("first.txt", "both.txt", "second.txt"):
        (workspace / name).write_text("old\n")
    llm.script(
        bash("echo 1 > first.txt; echo 1 > both.txt; touch begun; until test -e go; do sleep 0.1; done")
    )
    live = start("--yolo", "the first")
    first = live.session
    until((workspace / "begun").exists, "the first one's command runs")
    llm.script(bash("echo 2 > both.txt; echo 2 > second.txt"), "Done.")
    second = run("--yolo", "the second").result["session_id"]
    llm.script("Done.")
    (workspace / "go").write_text("")
    live.until_type("result")
    assert live.end().code == 0
    assert changed(cli, second) == {"both.txt", "second.txt"}
    back = cli("sessions", "rewind", first, "--to", prompts(cli, first)[0], "--files", "--yes")
    assert (workspace / "second.txt").read_text() == "2\n"
    assert (workspace / "both.txt").read_text() == "2\n"
    assert "both.txt" in back.stderr and back.returncode == 1
    assert (workspace / "first.txt").read_text() == "old\n"


def test_two_writers_of_one_conversation_make_one_audit(
    run: Run, start: Start, cli: Cli, llm: ScriptedLLM
) -> None:
    llm.script("Hello.")
    session = run("hello").result["session_id"]
    look = Reply(calls=[Call("ls", {}), Call("todos", {"todos": []}), Call("ls", {})])
    llm.script(Stall(look), Stall(look), *["Done."] * 2)
    branches = [start("-s", session, "--fork", "look") for _ in range(2)]
    until(lambda: len(llm.requests) == 3, "both have asked")
    llm.release()
    assert [branch.end().code for branch in branches] == [0, 0]
    recorded = json.loads(cli("audit", "show", session, "--json").stdout)
    assert [record["number"] for record in recorded] == list(range(1, 7))
    assert len({record["session_id"] for record in recorded}) == 2


# --- closed folders --------------------------------------------------------------------------------------


@pytest.fixture
def closed_to(cli: Cli, workspace: Path) -> Cli:
    """The command line without root's right to write everywhere."""
    if os.geteuid() != 0:
        return cli
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to change that")
    without = "-dac_override,-dac_read_search"
    start = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}", sys.executable, "-m", "crushpy"]

    def run_it(*args: str, **more: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*start, *args], capture_output=True, text=True, timeout=60, cwd=workspace, check=False
        )

    return run_it


def test_a_closed_folder_is_a_conflict_and_the_rest_goes_back(
    run: Run, cli: Cli, closed_to: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    for name in ("closed", "open"):
        (workspace / name).mkdir()
        (workspace / name / "a.txt").write_text("old\n")
    llm.script(bash("for each in closed open; do echo new > $each/a.txt; done; touch closed/made"), "Done.")
    session = run("--yolo", "change them").result["session_id"]
    (workspace / "closed").chmod(0o555)
    try:
        back = closed_to("sessions", "rewind", session, "--to", prompts(cli, session)[0], "--files", "--yes")
    finally:
        (workspace / "closed").chmod(0o755)
    assert back.returncode == 1, back.stderr
    assert "closed/a.txt: its folder is not writable" in back.stderr and "closed/made" in back.stderr
    assert (workspace / "closed" / "a.txt").read_text() == "new\n"
    assert (workspace / "open" / "a.txt").read_text() == "old\n"
    assert {file.name for file in (workspace / "closed").iterdir()} == {"a.txt", "made"}
