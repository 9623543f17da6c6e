"""The background commands of one conversation. They end with it."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.access import Privileges
from crushpy.core.messages import Data
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.child_environment import child_environment, hide_environment
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.process import END_GRACE_S, Process, missing_folder
from crushpy.util.spawn import spawn, spawn_among

if TYPE_CHECKING:
    from crushpy.sandbox.confinement import Unconfined

MAX_RUNNING = 20
_MAX_FINISHED = 50
"""How many ended jobs can still be read."""


class RunningJob(Data, frozen=True):
    id: str
    command: str
    seconds: float
    last_lines: str = ""
    """The end of its output."""


class ShellJob:
    """One background command."""

    def __init__(self, job_id: str, process: Process) -> None:
        self.id = job_id
        self.process = process
        self.killed = False

    @property
    def failed(self) -> bool:
        """True if it ended by itself with an error."""
        return not self.process.running and not self.killed and self.process.exit_code != 0

    @property
    def status(self) -> str:
        """Its state as a sentence."""
        process = self.process
        if self.killed:
            return f"{self.id} was killed"
        if process.trouble and not process.running:
            return f"{self.id} ended: {process.trouble}"
        if not process.exited.is_set():
            return f"{self.id} is running ({process.seconds:.0f} s)"
        how = f"by {process.signal_name}" if process.signal_name else f"with exit code {process.exit_code}"
        if process.running:
            return f"{self.id}: the shell ended {how}, what it started is still running"
        return f"{self.id} ended {how} after {process.seconds:.1f} s"

    async def kill(self) -> list[int]:
        """Ends it and everything it started, even if its shell ended long ago."""
        self.killed = self.killed or self.process.running
        return await self.process.kill()


class Jobs(msgspec.Struct, eq=False):
    """All background commands of a conversation, and the confinement of its commands."""

    variables: Sequence[str] = ()
    """Names that commands get in addition to the usual ones."""
    confine: "Callable[[], Unconfined] | None" = None
    """Selects their confinement when the first command runs: that takes milliseconds. None: there is none."""
    whole_environment: bool = False
    """Commands get all variables."""
    folders: Callable[[], Sequence[Path]] = lambda: ()
    """They count as the workspace, beside it: commands see them as they are."""
    on_ended: Callable[[ShellJob], None] = lambda _: None
    """Called with each job that ended by itself."""
    _confinement: "Unconfined | None" = None
    _confining: Lock = msgspec.field(default_factory=Lock)
    """Two threads may ask first: each would lock the private folder."""
    _warm_up_task: asyncio.Task[None] | None = None
    _environment_hidden: bool = False
    _started: int = 0
    _jobs: dict[str, ShellJob] = {}
    _closed: bool = False
    _messages: list[str] = []
    _end_watchers: set[asyncio.Task[None]] = set()

    @property
    def confinement(self) -> "Unconfined":
        """The sandbox of the commands."""
        with self._confining:
            if self._confinement is None:
                from crushpy.sandbox.confinement import Unconfined

                self._confinement = (self.confine or Unconfined)()
            return self._confinement

    def warm_up(self) -> None:
        """Starts what the first command would have to wait for."""
        if self._warm_up_task is None and not self._closed:
            self._warm_up_task = spawn(self._warm_up())

    async def _warm_up(self) -> None:
        from crushpy.sandbox.finding import working_sandbox

        await asyncio.to_thread(working_sandbox)
        await self.confinement.warm_up()

    async def start_supervisor(self) -> None:
        """Starts the process of the first command, which takes longer than all else that it waits for."""
        if self._confinement is None and self._warm_up_task is None:
            from crushpy.sandbox.finding import working_sandbox

            trying = asyncio.get_running_loop().run_in_executor(None, working_sandbox)
            import_module("crushpy.sandbox.confinement")  # while the sandbox is tried
            await trying
            with suppress(Exception):  # the command will report it
                self.confinement.supervisor(Privileges())

    def unconfined(self, runner: "Unconfined") -> "Jobs":
        """Commands with the same environment, without a sandbox."""
        return Jobs(self.variables, lambda: runner, whole_environment=self.whole_environment)

    def run(
        self,
        command: str,
        cwd: Path,
        output: Output,
        needs: Privileges | None = None,
        streams: tuple[Output, int] | None = None,
    ) -> Process:
        """Starts a command, which ends with the conversation at the latest.

        `needs`: what it was granted beyond the sandbox. `streams`: as for `Process`.
        """
        if self._closed:
            raise ToolError("The conversation is closing: no command can be started.")
        needs = needs or Privileges()
        self._messages += self.confinement.begin(needs)
        try:
            supervisor = self.confinement.supervisor(needs)
        except OSError as error:
            if not cwd.is_dir():
                raise ToolError(missing_folder(cwd)) from None
            raise ToolError(f"The command was not run: the sandbox could not be started: {error}.") from None
        environment = self.confinement.environment(self._environment(), needs)
        return Process(supervisor, command, cwd, output, environment, streams)

    def _environment(self) -> Mapping[str, str]:
        if self.whole_environment:
            return os.environ
        environment = child_environment(os.environ, self.variables)
        if not self._environment_hidden:
            hide_environment(environment)
            self._environment_hidden = True
        return environment

    def start(self, command: str, cwd: Path, output_dir: Path, needs: Privileges | None = None) -> ShellJob:
        """Runs a command in the background. Raises `ToolError` if that is not possible."""
        running = self.running()
        if len(running) >= MAX_RUNNING:
            names = ", ".join(job.id for job in running)
            raise ToolError(f"{MAX_RUNNING} jobs are running already: {names}. End one with job_kill first.")
        return self.adopt(self.run(command, cwd, Output(output_dir), needs))

    def file_tool_path(self, path: Path) -> Path:
        """The path at which file tools find what commands see at `path`: commands may have a private /tmp."""
        from crushpy.sandbox.filesystem_view import is_temporary

        if not is_temporary(path) or any(path.is_relative_to(folder) for folder in self.folders()):
            return path
        return self.confinement.inside(path)

    def command_path(self, path: Path) -> Path:
        """The path at which commands see the file `path`."""
        return self._confinement.outside(path) if self._confinement is not None else path

    def take_messages(self, needs: Privileges) -> list[str]:
        """Messages about a command that has just ended: protected files it created, refused connections."""
        messages, self._messages = [*self._messages, *self.confinement.check(needs)], []
        return messages

    def adopt(self, process: Process) -> ShellJob:
        """Turns a running command into a job."""
        finished = [job.id for job in self._jobs.values() if not job.process.running]
        for job_id in finished[:-_MAX_FINISHED]:
            del self._jobs[job_id]
        self._started += 1
        job = ShellJob(f"job{self._started}", process)
        self._jobs[job.id] = job

        async def report_end() -> None:
            await process.exited.wait()
            await process.drained.wait()
            if not job.killed:
                self.on_ended(job)

        spawn_among(self._end_watchers, report_end())
        return job

    def get(self, job_id: str) -> ShellJob:
        if job := self._jobs.get(job_id):
            return job
        known = ", ".join(self._jobs) or "none was started"
        raise ToolError(f"There is no job {job_id!r}. Known jobs: {known}.")

    def running(self) -> tuple[RunningJob, ...]:
        return tuple(
            RunningJob(job.id, job.process.command, job.process.seconds, job.process.output.last)
            for job in self._jobs.values()
            if job.process.running
        )

    async def close(self) -> list[int]:
        """Ends every process of the conversation's commands; returns those that could not be ended."""
        self._closed = True
        if self._warm_up_task is not None:
            self._warm_up_task.cancel()
            await asyncio.wait([self._warm_up_task])
        for watcher in self._end_watchers:
            watcher.cancel()
        for job in self._jobs.values():
            job.killed = job.killed or job.process.running
        return [] if self._confinement is None else await self._confinement.close(END_GRACE_S)
