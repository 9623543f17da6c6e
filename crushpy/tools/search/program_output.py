"""Reads what a helper program prints, record by record, and never leaves it running."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import reason

_MAX_ERRORS = 10_000
_STDERR = 2


class ProgramEnd(Data, frozen=True):
    """How the program ended."""

    code: int
    errors: str
    """What it said on stderr, bounded."""
    timed_out: bool = False
    stopped: bool = False
    """True where we had enough and ended it."""


async def read_records(
    command: Sequence[str],
    take: Callable[[bytes], bool],
    *,
    folder: Folder,
    separator: bytes,
    seconds: float,
    handles: Sequence[int] = (),
) -> ProgramEnd:
    """Runs it in `folder`, and gives each record to `take` until that says False, it ends, or time is up.

    `handles`: open files that it gets, under the same numbers.
    """
    reader = _Reader(take, separator)
    try:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: reader,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=folder.as_cwd(),
            pass_fds=handles,
        )
    except OSError as error:
        raise ToolError(f"The search could not be started in {folder.path}: {reason(error)}.") from error
    timed_out = False
    try:
        async with asyncio.timeout(seconds):
            await reader.finished.wait()
    except TimeoutError:
        timed_out = True
    finally:
        try:
            await _ended(transport.get_pid(), reader)
        finally:
            transport.close()
    errors = reader.errors.decode("utf-8", "replace").strip()
    return ProgramEnd(transport.get_returncode() or 0, errors, timed_out, reader.stopped)


async def _ended(pid: int, reader: "_Reader") -> None:
    """Kills it, if it still runs. (The transport would look first whether it does, and so take the news of
    its end from asyncio, which then complains on the terminal.)"""
    if not reader.exited.is_set():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await reader.exited.wait()


class _Reader(asyncio.SubprocessProtocol):
    """Takes output as it comes. (asyncio's streams wait forever for a program whose output nobody reads.)"""

    def __init__(self, take: Callable[[bytes], bool], separator: bytes) -> None:
        self._take = take
        self._separator = separator
        self._rest = b""
        self.errors = b""
        self.stopped = False
        self.finished = asyncio.Event()
        """All output is read, or we have had enough."""
        self.exited = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.errors += data[: _MAX_ERRORS - len(self.errors)]
        elif not self.stopped:
            *records, self._rest = (self._rest + data).split(self._separator)
            self._give(records)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest and not self.stopped:
            self._give([self._rest])
        self.finished.set()

    def _give(self, records: Sequence[bytes]) -> None:
        if not all(self._take(record) for record in records):
            self.stopped = True
            self.finished.set()
