"""The files of a folder, and which of them match what was typed."""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import IO

from crushpy.security.sanitize import clean

Rank = tuple[int, int]
"""The kind of match, then its spread. Lower is better."""


def literal_rank(path: str, typed: str) -> Rank:
    """The rank of a path that contains `typed`; both in lower case. Best if the name is what was typed."""
    name = path.rfind("/", 0, len(path) - 1) + 1
    at = path.find(typed, name)
    if at == name:
        rest = path[at + len(typed) :]
        return (0 if rest in ("", "/") or rest[0] == "." else 1), 0
    if at < 0:
        at = path.rfind(typed)
    starts_word = at == 0 or not path[at - 1].isalnum()
    reaches_name = at + len(typed) > name
    return (2 if starts_word else 3) if reaches_name else 4, (0 if starts_word else 1)


def scattered(typed: str) -> Callable[[str], Rank | None]:
    """Ranks paths that contain the letters of `typed` in order: the closer together, the better."""
    # Matched from the end, since the last letters typed belong to the file's name. Possessive quantifiers
    # never backtrack, so the time is linear.
    first, *others = [re.escape(letter) for letter in reversed(typed)]
    match = re.compile(f"[^{first}]*+({first})" + "".join(f"[^{other}]*+{other}" for other in others)).match

    def rank(path: str) -> Rank | None:
        found = match(path[::-1])
        return None if found is None else (4, found.end() - found.start(1))

    return rank


MAX_PATHS = 300_000
LIMIT = 8
SPREAD = 8
"""How far apart the typed letters may be, on average."""
LIST_TTL_S = 1.0
"""Time until the files are listed again."""


class FileFinder:
    """Files and folders below `cwd` that are not ignored; folders end with a slash."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.problem = ""
        """The reason why there is no list, for the user."""
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._tried_at: float | None = None
        self._paths: list[tuple[str, str]] | None = None
        """Each as it is and in lower case."""

    @property
    def ready(self) -> bool:
        """Whether there is a list, possibly an outdated one."""
        return self._paths is not None

    @property
    def count(self) -> int:
        return len(self._paths or ())

    @property
    def stale(self) -> bool:
        """Whether it is time to list the files again."""
        return self._tried_at is None or time.monotonic() - self._tried_at > LIST_TTL_S

    def load(self) -> None:
        """Lists the files; to be called in a thread. Searches use the previous list meanwhile."""
        from crushpy.tools.search.ripgrep import MISSING, find_ripgrep, list_files

        self._tried_at = time.monotonic()
        ripgrep = find_ripgrep()
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
        self._closed = True
        if self._process is not None:
            self._process.kill()

    def search(self, typed: str) -> list[str]:
        """The best paths for `typed`, best first; of equal ones the shortest."""
        typed, paths = typed.lower(), self._paths or []
        if not typed:
            return nsmallest(LIMIT, [path for path, _ in paths], key=_by_length)
        literal = ((literal_rank(low, typed), _by_length(path)) for path, low in paths if typed in low)
        best = nsmallest(LIMIT, literal)
        if len(best) < LIMIT:
            rank, too_far = scattered(typed), SPREAD * (len(typed) + 1)
            others = (
                (found, _by_length(path))
                for path, low in paths
                if typed not in low and (found := rank(low)) is not None and found[1] <= too_far
            )
            best += nsmallest(LIMIT - len(best), others)
        return [path for _, (_, path) in best]

    def _take(self, paths: Sequence[str]) -> None:
        everything = dict.fromkeys(paths)
        for path in paths:
            end = path.rfind("/") + 1
            while end and (folder := path[:end]) not in everything:
                everything[folder] = None
                end = path.rfind("/", 0, end - 1) + 1
        self._paths = [(path, path.lower()) for path in everything]
        self._tried_at = time.monotonic()


def _by_length(path: str) -> tuple[int, str]:
    return len(path), path


def _read(stream: IO[bytes]) -> list[str]:
    """Reads NUL-terminated paths in chunks: one call over millions of characters would block the screen."""
    paths: list[str] = []
    rest = b""
    while len(paths) < MAX_PATHS and (data := stream.read(64_000)):
        *whole, rest = (rest + data).split(b"\0")
        for raw in whole:
            path = raw.decode(errors="replace").removeprefix("./")
            can_be_typed = "\ufffd" not in path and "\n" not in path and clean(path) == path
            if path and can_be_typed and "__pycache__/" not in path:
                paths.append(path)
    return paths
