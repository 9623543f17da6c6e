"""The background commands of one conversation. They end with it."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from crushpy.access import Needs
from crushpy.ids import new_id
from crushpy.messages import Data
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.child_environment import child_environment, hide_environment
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.process import END_GRACE, Process
from crushpy.tools.shell.process_tree import Family
from crushpy.tools.truncate import Truncated

MAX_RUNNING = 20
_MAX_FINISHED = 50
"""How many that have ended can still be read."""


class RunningJob(Data, frozen=True):
    id: str
    command: str
    seconds: float


class ShellJob:
    """One background command."""

    def __init__(self, job_id: str, process: Process) -> None:
        self.id = job_id
        self.process = process
        self.killed = False

    @property
    def failed(self) -> bool:
        """True where it ended by itself, and not well."""
        return not self.process.running and not self.killed and self.process.exit_code != 0

    @property
    def status(self) -> str:
        """How it stands, in words."""
        process = self.process
        if self.killed:
            return f"{self.id} was killed"
        if not process.exited.is_set():
            return f"{self.id} is running ({process.seconds:.0f} s)"
        how = f"by {process.signal_name}" if process.signal_name else f"with exit code {process.exit_code}"
        if process.running:
            return f"{self.id}: the shell ended {how}, what it started is still running"
        return f"{self.id} ended {how} after {process.seconds:.1f} s"

    async def read(self, wait: float = 0) -> Truncated:
        """What it printed since the last time; waits up to `wait` seconds for its end."""
        if wait > 0:
            await self.process.wait(wait)
        return self.process.output.take()

    async def kill(self) -> list[int]:
        """Ends it and all that it started, also where its shell has ended long ago."""
        self.killed = self.killed or self.process.running
        return await self.process.kill()


class Jobs:
    """All background commands of a conversation, and the marks by which its commands are found again."""

    def __init__(self, variables: Sequence[str] = (), *, whole_environment: bool = False) -> None:
        """`variables`: names that commands get beside the usual ones; or they get all there are."""
        self._variables = variables
        self._whole_environment = whole_environment
        self._hidden = False
        self._name = new_id()
        self._marks = 0
        self._started = 0
        self._jobs: dict[str, ShellJob] = {}
        self._closed = False

    def run(self, command: str, cwd: Path, output: Output, needs: Needs | None = None) -> Process:
        """Starts a command, which ends with this conversation at the latest.

        `needs`: what it was granted beyond the usual; nothing holds it back yet.
        """
        return Process(command, cwd, output, self.new_mark(), self._environment())

    def new_mark(self) -> str:
        """A mark for one command: what carries it dies with this conversation."""
        self._marks += 1
        return f"/{self._name}-{self._marks}/"

    def _environment(self) -> Mapping[str, str]:
        if self._whole_environment:
            return os.environ
        environment = child_environment(os.environ, self._variables)
        if not self._hidden:
            hide_environment(environment)
            self._hidden = True
        return environment

    def start(self, command: str, cwd: Path, output_dir: Path, needs: Needs | None = None) -> ShellJob:
        """Runs a command in the background. Raises `ToolError` where that is not possible."""
        if self._closed:
            raise ToolError("The conversation is closing; nothing can be started any more.")
        running = self.running()
        if len(running) >= MAX_RUNNING:
            names = ", ".join(job.id for job in running)
            raise ToolError(f"{MAX_RUNNING} jobs are running already: {names}. End one with job_kill first.")
        return self.adopt(self.run(command, cwd, Output(output_dir), needs))

    def adopt(self, process: Process) -> ShellJob:
        """Makes a job of a command that is running already."""
        self._forget_old_ones()
        self._started += 1
        job = ShellJob(f"job{self._started}", process)
        self._jobs[job.id] = job
        return job

    def get(self, job_id: str) -> ShellJob:
        if job := self._jobs.get(job_id):
            return job
        known = ", ".join(self._jobs) or "none was started"
        raise ToolError(f"There is no job {job_id!r}. Known jobs: {known}.")

    def running(self) -> tuple[RunningJob, ...]:
        return tuple(
            RunningJob(job.id, job.process.command, job.process.seconds)
            for job in self._jobs.values()
            if job.process.running
        )

    async def close(self) -> None:
        """Ends every process that any command of this conversation left, jobs or not."""
        self._closed = True
        if not self._marks:
            return
        everything = Family(f"/{self._name}-")
        running = [job for job in self._jobs.values() if job.process.running]
        try:
            await asyncio.gather(everything.end(END_GRACE), *(job.kill() for job in running))
        except asyncio.CancelledError:
            everything.signal(signal.SIGKILL)
            raise

    def _forget_old_ones(self) -> None:
        finished = [job.id for job in self._jobs.values() if not job.process.running]
        for job_id in finished[: -_MAX_FINISHED or None]:
            del self._jobs[job_id]
