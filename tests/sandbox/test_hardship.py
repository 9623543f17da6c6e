"""The sandbox under hardship: two crushpys in one workspace, a full /tmp, endless output, another user."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confined import NOBODY, bash, confined, home_of_nobody, needs_sandbox, run_as_nobody
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Start, until
from support.process_state import marked

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import ResourceLimits
from crushpy.sandbox.finding import find_sandbox
from crushpy.sandbox.supervisor_handle import Supervisor

__all__ = ["home_of_nobody"]
pytestmark = [pytest.mark.slow, needs_sandbox]


async def test_two_conversations_in_one_workspace_share_it_and_nothing_else(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with confined(workspace, tmp_path / "a") as one, confined(workspace, tmp_path / "b") as other:
        both = await asyncio.gather(
            bash(one, "echo 1 > one; echo mine > /tmp/mine; echo $$ > pid; sleep 60 >/dev/null 2>&1 &"),
            bash(other, "echo 2 > two; ls /tmp"),
        )
        assert [outcome.is_error for outcome in both] == [False, False]
        seen = await bash(other, "cat one two; cat /tmp/mine; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert seen.text.startswith("1\n2\n")
        assert "mine\n" not in seen.text and "sleep 60" not in seen.text
        for each in (one, other):
            assert "was moved to" in (await bash(each, "echo x > .envrc")).text
    assert not (workspace / ".envrc").exists()


def test_a_run_that_ends_leaves_the_commands_of_another_in_the_same_workspace_alone(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    mark = f"86400.{os.getpid()}5"
    stay = Reply(calls=[Call("bash", {"command": f"touch begun; sleep {mark}"})])
    go = Reply(calls=[Call("bash", {"command": "echo second > second"})])

    def answer(body: Any) -> Reply | str:
        if body["messages"][-1]["role"] == "tool":
            return "Done."
        return stay if "stay" in str(body["messages"]) else go

    llm.always(answer)
    first = start("--yolo", "stay")
    until(lambda: (workspace / "begun").exists() and marked(mark), "the first one's command runs")
    assert start("--yolo", "go").end().code == 0
    assert (workspace / "second").read_text() == "second\n"
    assert marked(mark)
    first.process.kill()
    until(lambda: not marked(mark), "it is gone with its own crushpy")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A home for crushpy with room for one megabyte."""
    place = tmp_path / "small"
    place.mkdir(mode=0o700)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(place)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("a small file system takes root to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_tmp_is_said_by_who_fills_it_and_the_next_command_runs(
    small_disk: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with confined(workspace, small_disk / "home") as context:
        full = await bash(context, "head -c 5000000 /dev/zero > /tmp/large")
        assert full.is_error and "No space left on device" in full.text
        assert (await bash(context, "echo still here; touch made")).text == "still here"
        assert (await bash(context, "rm /tmp/large; echo x > /tmp/small; cat /tmp/small")).text == "x"
    assert (workspace / "made").exists()


async def test_a_flood_of_output_is_ended_by_its_time_and_bounded_on_disk(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    home = tmp_path / "crushpy"
    async with confined(workspace, home, ResourceLimits(file_mb=1)) as context:
        outcome = await bash(context, "yes a long line of a flood | head -c 100000000; echo the end")
        assert "the end" in outcome.text and len(outcome.text) < 100_000
        endless = await bash(context, "yes", timeout=1)
        assert "timed out after 1 s" in endless.text and len(endless.text) < 100_000
        assert (await bash(context, "echo still here")).text == "still here"


@pytest.fixture
def listening() -> Iterator[Path]:
    """A socket of the host where commands would see it, in a folder of its own."""
    if os.getuid() != 0:
        pytest.skip("a folder outside /tmp takes root to make")
    closed = Path(tempfile.mkdtemp(prefix="crushpy-socket-", dir="/var/lib"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(closed / "socket"))
        listener.listen()
        yield closed / "socket"
    shutil.rmtree(closed)


async def test_commands_run_beside_what_only_another_user_can_get_to(listening: Path, tmp_path: Path) -> None:
    os.chown(listening.parent, NOBODY, NOBODY)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with confined(workspace, tmp_path / "home") as context:
        assert (await bash(context, "echo runs")).text == "runs"
        reached = await bash(context, f"cat {listening}; ls {listening.parent}")
        assert reached.is_error and reached.text.count("Permission denied") == 2


async def test_commands_run_after_what_was_hidden_is_gone(listening: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with confined(workspace, tmp_path / "home") as context:
        assert (await bash(context, "echo runs")).text == "runs"
        listening.unlink()
        assert (await bash(context, "echo runs", Privileges(git=True))).text == "runs"


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_sandbox_that_fails_to_start_is_started_once_more(failures: int) -> None:
    gone = ["--ro-bind", "/no/such/socket", "/no/such/socket"]
    whole = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    views = [[*whole, *gone]] * failures + [whole]
    supervisor = Supervisor([], [find_sandbox().program], lambda: views.pop(0))
    with Path("/dev/null").open("wb") as output:
        command = supervisor.run(["/bin/true"], "/", {}, [output.fileno()])
    await command.over.wait()
    assert supervisor.alive is (failures == 1)
    if failures == 1:
        assert (command.status, command.lost) == (0, None)
    else:
        assert "/no/such/socket" in str(command.lost) and command.status is None
    await supervisor.close(0)


def test_every_way_out_is_held_for_nobody_too(home_of_nobody: Path) -> None:
    done = run_as_nobody(home_of_nobody, "crushpy", "doctor", "--sandbox")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held: read keys in ~/.ssh" in done.stdout
    assert "escaped:" not in done.stdout and "not held" not in done.stdout
