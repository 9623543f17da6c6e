"""Background jobs: read bit by bit, bounded, and gone when the conversation is."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
from processes import DEADLINE, bash, lent, pid_in, until
from support.process_state import alive

from crushpy.core.access import Access
from crushpy.core.messages import Terminal
from crushpy.sandbox.confinement import Unconfined
from crushpy.tools.base import CallContext, Outcome
from crushpy.tools.errors import ToolError
from crushpy.tools.job_control import JobKillArgs, JobKillTool, JobOutputArgs, JobOutputTool
from crushpy.tools.registry import check_args
from crushpy.tools.shell.jobs import MAX_RUNNING, Jobs


async def output(context: CallContext, job_id: str, wait: float = 0) -> Outcome:
    return await JobOutputTool().run(JobOutputArgs(job_id, wait), context)


async def kill(context: CallContext, job_id: str) -> Outcome:
    return await JobKillTool().run(JobKillArgs(job_id), context)


async def test_a_background_command_gives_its_job_at_once(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "sleep 60", background=True)
        assert outcome.text.startswith("Started job1.")
        assert [(job.id, job.command) for job in context.workspace.jobs.running()] == [("job1", "sleep 60")]
        assert (await bash(context, "sleep 60", background=True)).text.startswith("Started job2.")


async def test_each_reading_gives_only_what_is_new(workspace: Path) -> None:
    script = "echo one; touch a; while [ ! -e go ]; do sleep 0.02; done; echo two; printf three; exit 5"
    async with lent(workspace) as context:
        await bash(context, script, background=True)
        await until((workspace / "a").exists, "the first line is printed")
        async with asyncio.timeout(DEADLINE):
            while (first := await output(context, "job1")).text.startswith("[job1 is"):
                await asyncio.sleep(0.01)  # it is printed, but may still be on its way to us
        (workspace / "go").touch()
        second = await output(context, "job1", wait=DEADLINE)
        third = await output(context, "job1")
    assert first.text.startswith("one\n[job1 is running (")
    assert not first.is_error
    assert second.text.startswith("two\nthree\n[job1 ended with exit code 5 after ")
    assert second.is_error
    assert isinstance(second.display, Terminal)
    assert second.display.exit_code == 5
    assert third.text.startswith("[job1 ended with exit code 5")


async def test_waiting_ends_with_the_job_and_not_before(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "while [ ! -e go ]; do sleep 0.02; done; echo end", background=True)
        reading = asyncio.create_task(output(context, "job1", wait=DEADLINE))
        await asyncio.sleep(0)
        assert not reading.done()
        (workspace / "go").touch()
        assert (await reading).text.startswith("end\n[job1 ended with exit code 0")


async def test_waiting_is_bounded(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "sleep 60", background=True)
        assert "is running" in (await output(context, "job1", wait=0.05)).text
    with pytest.raises(ToolError, match="wait"):
        check_args(JobOutputTool(), {"job_id": "job1", "wait": 61})


async def test_a_job_that_prints_without_end_is_kept_in_bounds(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "seq 200000; touch done; sleep 60", background=True)
        await until((workspace / "done").exists, "all is printed")
        await until(lambda: "200000" in whole_of(context), "all is read")
        outcome = await output(context, "job1")
    assert len(outcome.text) < 31_000
    assert "\n200000\n[whole output: " in outcome.text
    assert whole_of(context) == "".join(f"{number}\n" for number in range(1, 200_001))


def whole_of(context: CallContext) -> str:
    return "".join(file.read_text() for file in context.workspace.output_dir.glob("*.txt"))


async def test_a_killed_job_is_gone_with_all_it_started(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "echo up; setsid sleep 60 & echo $! > pid; wait", background=True)
        pid = await pid_in(workspace / "pid")
        outcome = await kill(context, "job1")
        assert outcome.text == "job1 was killed."
        assert not outcome.is_error
        assert not alive(pid)
        assert context.workspace.jobs.running() == ()
        assert (await output(context, "job1")).text == "up\n[job1 was killed]"


async def test_killing_a_job_that_has_ended_says_how_it_ended(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "echo bye", background=True)
        await output(context, "job1", wait=DEADLINE)
        assert (await kill(context, "job1")).text.startswith("job1 ended with exit code 0")


async def test_a_job_whose_child_stays_is_still_running(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "sleep 60 & echo $! > pid", background=True)
        pid = await pid_in(workspace / "pid")
        await until(context.workspace.jobs.get("job1").process.exited.is_set, "the shell has ended")
        assert (
            "the shell ended with exit code 0, what it started is still running"
            in (await output(context, "job1")).text
        )
        await kill(context, "job1")
        assert not alive(pid)


@pytest.mark.parametrize("started", [0, 2])
async def test_an_unknown_job_is_refused_with_the_known_ones(workspace: Path, started: int) -> None:
    known = "job1, job2" if started else "none was started"
    async with lent(workspace) as context:
        for _ in range(started):
            await bash(context, "sleep 60", background=True)
        for tool in (output, kill):
            with pytest.raises(ToolError, match=f"no job 'job9'. Known jobs: {known}"):
                await tool(context, "job9")


async def test_running_jobs_are_limited_with_a_next_step(workspace: Path) -> None:
    async with lent(workspace) as context:
        for _ in range(MAX_RUNNING):
            await bash(context, "exec sleep 60", background=True)
        with pytest.raises(ToolError, match="job_kill"):
            await bash(context, "sleep 60", background=True)
        await kill(context, "job3")
        await bash(context, "sleep 60", background=True)


async def test_reading_and_killing_jobs_needs_no_permission(workspace: Path) -> None:
    async with lent(workspace) as context:
        assert JobOutputTool().accesses(JobOutputArgs("job1"), context) == (Access("job_output", "none"),)
        assert JobKillTool().accesses(JobKillArgs("job1"), context) == (Access("job_kill", "none"),)


@pytest.mark.slow
async def test_closing_ends_every_job_and_starts_no_other(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "trap '' TERM; echo $$ > a; while :; do sleep 60; done", background=True)
        await bash(context, "env -i setsid sh -c 'echo $$ > b; sleep 60' & wait", background=True)
        await bash(context, "env -i sh -c 'echo $$ > c; sleep 60' & sleep 0.1", background=True)
        await until(
            context.workspace.jobs.get("job3").process.exited.is_set, "only its child is left of the third"
        )
        pids = [await pid_in(workspace / name) for name in "abc"]
        assert all(map(alive, pids))
        await context.workspace.jobs.close()
        assert not any(map(alive, pids))
        with pytest.raises(ToolError, match="closing"):
            await bash(context, "sleep 60", background=True)


@pytest.mark.slow
async def test_closing_leaves_other_conversations_alone(workspace: Path) -> None:
    async with lent(workspace) as other:
        await bash(other, "echo $$ > pid; sleep 60", background=True)
        pid = await pid_in(workspace / "pid")
        async with lent(workspace) as context:
            await bash(context, "sleep 60", background=True)
        assert alive(pid)


def test_two_threads_that_ask_first_share_one_confinement() -> None:
    made: list[Unconfined] = []
    both_ask, both_made = Barrier(2), Barrier(2)

    def confine() -> Unconfined:
        with suppress(BrokenBarrierError):
            both_made.wait(0.2)  # breaks unless a second thread makes one too
        made.append(Unconfined())
        return made[-1]

    jobs = Jobs(confine=confine)

    def ask() -> Unconfined:
        both_ask.wait(DEADLINE)
        return jobs.confinement

    with ThreadPoolExecutor(2) as threads:
        first, second = [asked.result(DEADLINE) for asked in (threads.submit(ask), threads.submit(ask))]
    assert first is second
    assert len(made) == 1
