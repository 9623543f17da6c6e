"""Searches the current folder without ripgrep, and prints what ripgrep would. A program: see search.py."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from crushpy.tools.base import ToolError
from crushpy.tools.files.text_file import decode, normalize, read_regular, split_lines
from crushpy.tools.search.glob_patterns import Glob
from crushpy.tools.search.ignore_files import walk
from crushpy.tools.search.ripgrep import MAX_LINE_CHARS

_BAD_PATTERN = 2


def main(arguments: list[str]) -> int:
    if arguments[0] == "files":
        for path in walk(Path.cwd()):
            _print(path, "\0")
        return 0
    _, pattern, target, include = arguments
    try:
        wanted = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        print(f"regex parse error: {error}", file=sys.stderr)
        return _BAD_PATTERN
    found = False
    for path in _files(target, include):
        for number, line in _matching(path, wanted):
            found = True
            _print(f"{path}\0{number}:{_cut(line)}", "\n")
    return 0 if found else 1


def _files(target: str, include: str) -> Iterator[str]:
    if Path(target).is_file():
        yield target
        return
    glob = Glob(include) if include else None
    for path in walk(Path.cwd()):
        if glob is None or glob.matches(path):
            yield path


def _matching(path: str, wanted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    try:
        file = decode(read_regular(Path(path), path))
    except (OSError, ToolError):
        return
    if file is None:
        return
    for number, line in enumerate(split_lines(normalize(file.text)), start=1):
        if wanted.search(line):
            yield number, line


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [... omitted end of long line]"


def _print(text: str, end: str) -> None:
    sys.stdout.buffer.write(os.fsencode(text) + end.encode())


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader had enough. Nothing is left to be flushed on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
