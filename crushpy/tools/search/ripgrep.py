"""How to search files: with ripgrep where there is one, else with our own program. Both print alike."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from crushpy.messages import Data
from crushpy.tools.search.glob_patterns import Glob
from crushpy.tools.search.ignore_files import VERSION_CONTROL

MAX_LINE_CHARS = 300
"""Of a matching line."""

FindRipgrep = Callable[[], str | None]


class Command(Data, frozen=True):
    """A program to run in the folder that is searched, and its environment (None: ours)."""

    words: tuple[str, ...]
    env: dict[str, str] | None = None


def find_ripgrep() -> str | None:
    """The `rg` that is installed with crushpy, or one on the PATH."""
    import shutil

    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("rg")


def list_files(rg: str | None) -> Command:
    """Prints the files below the current folder that no ignore file names, each ended by NUL."""
    if rg is None:
        return _own_program("files")
    return Command((rg, "--files", "--null", *_common(), "./"))


def find_lines(rg: str | None, pattern: str, target: str, include: str) -> Command:
    """Prints `path NUL line-number:text` for each matching line of `target`, a path in the current folder.

    Files of other names than `include` may be left out already, to save time; the caller checks all of them.
    """
    if rg is None:
        return _own_program("lines", pattern, target, include)
    words = [rg, "--line-number", "--with-filename", "--no-heading", "--null", "--sort=path", "--engine=auto"]
    words += [f"--max-columns={MAX_LINE_CHARS}", "--max-columns-preview", *_common()]
    if include and Glob(include).names_only and ":" not in include:
        # Not --glob: that would bring back what ignore files leave out.
        words += [f"--type-add=wanted:{include}", "--type=wanted"]
    return Command((*words, "--regexp", pattern, "--", target))


def _common() -> tuple[str, ...]:
    never = (f"--glob=!{name}" for name in sorted(VERSION_CONTROL))
    return ("--no-config", "--no-messages", "--color=never", "--hidden", "--no-require-git", *never)


def _own_program(*arguments: str) -> Command:
    # A process of its own, so that a pattern which takes forever can be ended.
    home = str(Path(__file__).parents[3])
    words = (sys.executable, "-P", "-m", "crushpy.tools.search.ownsearch", *arguments)
    return Command(words, {**os.environ, "PYTHONPATH": home, "PYTHONIOENCODING": "utf-8"})
