"""The files of a folder, and which of them match what was typed."""

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import IO, TypeVar

from crushpy.security.sanitize import clean

Rank = tuple[int, int]
"""The kind of match, then its spread. Lower is better."""

NAME_STARTS = 1
"""The best kinds: the name equals what was typed (0), or starts with it."""


def literal_rank(path: str, typed: str) -> Rank:
    """The rank of a path that contains `typed`; both in lower case."""
    name = path.rfind("/", 0, len(path) - 1) + 1
    at = path.find(typed, name)
    if at == name:
        rest = path[at + len(typed) :]
        return (0 if rest in ("", "/") or rest[0] == "." else NAME_STARTS), 0
    if at < 0:
        at = path.rfind(typed)
    starts_word = at == 0 or not path[at - 1].isalnum()
    reaches_name = at + len(typed) > name
    return (2 if starts_word else 3) if reaches_name else 4, (0 if starts_word else 1)


def scattered(typed: str) -> Callable[[str], Rank | None]:
    """Ranks paths that contain the letters of `typed` in order: the closer together, the better."""
    # Matched from the end, since the last letters typed belong to the file's name.
    letters = [re.escape(letter) for letter in reversed(typed)]
    first, *others = letters
    # Possessive quantifiers never backtrack, so the time is linear.
    anywhere = re.compile(
        f"[^{first}]*+({first})" + "".join(f"[^{letter}]*+{letter}" for letter in others)
    ).match
    # Here a letter is either inside a word or starts one, so the match is unambiguous.
    skipped = [rf"[^{letter}]*+(?:{letter}{_IN_WORD}[^{letter}]*+)*" for letter in letters]
    word_starts = re.compile(
        f"{skipped[0]}({first}){_WORD_START}"
        + "".join(f"{skip}{letter}{_WORD_START}" for skip, letter in zip(skipped[1:], others, strict=True))
    ).match

    def rank(path: str) -> Rank | None:
        backwards = path[::-1]
        found = anywhere(backwards)
        if found is None:
            return None
        spread = found.end() - found.start(1)
        # A word counts as two letters, and there is one for each letter typed.
        if spread > 2 * len(letters) and (words := word_starts(backwards)) is not None:
            spread = min(spread, 2 * _count_words(backwards, words.start(1), words.end()))
        return 4, spread

    return rank


_IN_WORD = r"(?=[^\W_])"
_WORD_START = r"(?![^\W_])"
"""After a letter, read backwards: it is the first of its word."""
_words = re.compile(rf"[^\W_]{_WORD_START}")


def _count_words(backwards: str, start: int, end: int) -> int:
    return sum(1 for _ in _words.finditer(backwards, start, end + 1))


MAX_PATHS = 300_000
LIMIT = 8
SLICE = 1_000
"""Paths per step of a search: one or two milliseconds."""
SPREAD = 4
"""How far apart the typed letters may be, on average."""
LIST_TTL_S = 20.0
"""Time until the files are listed again."""

FileSearch = Generator[list[str], None, list[str]]
"""Each `next` does one step and yields the best paths so far; the return value is the final result."""


class FileFinder:
    """Files and folders below `cwd` that are not ignored, shortest first; folders end with a slash."""

    def __init__(self, cwd: Path, paths: Sequence[str] | None = None, *, ripgrep: str = "") -> None:
        """`paths`: a known list. `ripgrep`: the program that lists; by default the bundled one."""
        self.cwd = cwd
        self._ripgrep = ripgrep
        self.problem = ""
        """The reason why there is no list, for the user."""
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._listed = False
        self._tried_at: float | None = None
        self._paths: list[str] = []
        self._lowered: list[str] = []
        self._survivors: tuple[str, Sequence[int]] = ("", range(0))
        """All matches of an earlier query: those of a longer one are among them."""
        if paths is not None:
            self._take(paths)

    @property
    def ready(self) -> bool:
        """Whether there is a list, possibly an outdated one."""
        return self._listed

    @property
    def stale(self) -> bool:
        """Whether it is time to list the files again."""
        return self._tried_at is None or time.monotonic() - self._tried_at > LIST_TTL_S

    def load(self) -> None:
        """Lists the files; to be called in a thread. Searches use the previous list meanwhile."""
        from crushpy.tools.search.ripgrep import MISSING, find_ripgrep, list_files

        self._tried_at = time.monotonic()
        ripgrep = self._ripgrep or find_ripgrep()
        if not ripgrep:
            self.problem = f"cannot list the files: {MISSING}"
            return
        try:
            process = subprocess.Popen(
                list_files(ripgrep),
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self.problem = f"cannot list the files: {error.strerror or error}"
            return
        self._process = process
        if self._closed:
            process.kill()
        assert process.stdout is not None
        with process:
            paths = _read(process.stdout)
            process.kill()
        self.problem = ""
        self._take(paths)

    def close(self) -> None:
        """Stops a running listing."""
        self._closed = True
        if self._process is not None:
            self._process.kill()

    def search(self, typed: str) -> FileSearch:
        """The best paths for `typed`, best first."""
        paths = self._paths
        if not typed:
            return paths[:LIMIT]
        steps = self._steps(typed.lower(), self._lowered)
        while True:
            try:
                found = next(steps)
            except StopIteration as end:
                return [paths[index] for _, index in end.value]
            yield [paths[index] for _, index in found]

    def _steps(self, typed: str, lowered: list[str]) -> "Steps[RankedPaths]":
        known, survivors = self._survivors
        pool = survivors if known and typed.startswith(known) else range(len(lowered))
        best = yield from _literal(lowered, pool, typed)
        if len(best) < LIMIT:
            best, survivors = yield from _scattered(lowered, pool, typed, best)
            if survivors is not None and lowered is self._lowered:
                self._survivors = typed, survivors
        return best

    def _take(self, paths: Sequence[str]) -> None:
        self._paths, self._lowered = _in_order(paths)
        self._survivors = "", range(0)
        self._listed = True
        self._tried_at = time.monotonic()


T = TypeVar("T")
RankedPaths = list[tuple[Rank, int]]
"""The best matches so far, best first, by index into the list of paths."""
Steps = Generator[RankedPaths, None, T]


def _literal(lowered: list[str], pool: Sequence[int], typed: str) -> Steps[RankedPaths]:
    best: RankedPaths = []
    for start in range(0, len(pool), SLICE):
        if start:
            yield best
        part = pool[start : start + SLICE]
        best += [(literal_rank(lowered[index], typed), index) for index in part if typed in lowered[index]]
        best = nsmallest(LIMIT, best)
        # Later paths are longer, and for one or two letters the first good matches are enough.
        if len(typed) <= 2 and len(best) == LIMIT and best[-1][0][0] <= NAME_STARTS:
            break
    return best


def _scattered(
    lowered: list[str], pool: Sequence[int], typed: str, best: RankedPaths
) -> Steps[tuple[RankedPaths, list[int] | None]]:
    """Extends the best matches; also returns all matches, unless the search stopped early."""
    rank = scattered(typed)
    too_far = SPREAD * (len(typed) + 1)
    survivors: list[int] = []
    for start in range(0, len(pool), SLICE):
        yield best
        for index in pool[start : start + SLICE]:
            found = rank(lowered[index])
            if found is not None:
                survivors.append(index)
                if found[1] <= too_far and typed not in lowered[index]:
                    best.append((found, index))
        best = nsmallest(LIMIT, best)
        if len(best) == LIMIT and best[-1][0][1] <= len(typed) + 1:  # they hardly get closer
            return best, None
    return best, survivors


def _read(stream: IO[bytes]) -> list[str]:
    """Reads NUL-terminated paths in chunks: one call over millions of characters would block the screen."""
    paths: list[str] = []
    rest = b""
    while len(paths) < MAX_PATHS and (data := stream.read(64_000)):
        *whole, rest = (rest + data).split(b"\0")
        for raw in whole:
            path = raw.decode(errors="replace").removeprefix("./")
            if _can_be_typed(path):
                paths.append(path)
    return paths


def _can_be_typed(path: str) -> bool:
    return bool(path) and "\ufffd" not in path and "\n" not in path and clean(path) == path


def _in_order(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths and their folders, shortest first, as they are and in lower case."""
    # Sorted in small groups by length and folder: sorting all at once would block the screen.
    heaps: dict[tuple[int, str], list[str]] = defaultdict(list)
    folders: set[str] = set()
    for number, path in enumerate(paths):
        if number % SLICE == 0:
            time.sleep(0.001)  # yields the interpreter lock to the screen
        end = path.rfind("/") + 1
        heaps[len(path), path[:end]].append(path)
        while end and (folder := path[:end]) not in folders:
            folders.add(folder)
            end = path.rfind("/", 0, end - 1) + 1
            heaps[len(folder), path[:end]].append(folder)
    ordered = [path for key in sorted(heaps) for path in sorted(heaps[key])]
    lowered = [path if (low := path.lower()) == path else low for path in ordered]
    return ordered, lowered
