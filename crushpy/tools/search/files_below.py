"""Walks the files below a folder: what ignore files leave, and what a glob pattern matches."""

import fnmatch
import os
import re
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crushpy.security.safe_open import Folder, NotRegular, open_regular
from crushpy.tools.errors import ToolError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
"""Never searched."""
_MAX_IGNORE_BYTES = 1_000_000
_IgnoreFile = tuple[int, "GitIgnoreSpec"]
"""Where the part of a path begins that is relative to the folder of an ignore file, and its patterns."""


class IgnoreRules:
    """The ignore files that apply to one folder."""

    def __init__(self, git: tuple[_IgnoreFile, ...] = (), own: tuple[_IgnoreFile, ...] = ()) -> None:
        self._git = git
        """Outermost first, as in `_own`: the nearest one decides."""
        self._own = own
        """`.ignore` files, which take precedence over git's."""

    @classmethod
    def at(cls, folder: Path) -> "IgnoreRules":
        """The rules inside `folder`. An ignored folder was requested: only its own rules apply."""
        rules = cls(_load_spec(_global_ignore_file(), "/"))
        for parent in reversed(folder.parents):
            rules = rules.inside(str(parent))
        if rules.ignores(str(folder), is_folder=True):
            rules = cls()
        return rules.inside(str(folder))

    def inside(self, folder: str) -> "IgnoreRules":
        """These rules and those of `folder`."""
        base = Path(folder)
        git = _load_spec(base / ".gitignore", folder)
        if (base / ".git").exists():
            # A separate repository: the rules of its parents do not apply here.
            git = (
                *_load_spec(_global_ignore_file(), folder),
                *_load_spec(base / ".git" / "info" / "exclude", folder),
                *git,
            )
        elif git:
            git = (*self._git, *git)
        else:
            git = self._git
        own = _load_spec(base / ".ignore", folder)
        return IgnoreRules(git, (*self._own, *own)) if git is not self._git or own else self

    def ignores(self, path: str, *, is_folder: bool = False) -> bool:
        name = path + "/" if is_folder else path
        # True: ignored; False: explicitly not ignored; None: no pattern matches.
        rules = (rule for files in (self._own, self._git) for rule in reversed(files))
        verdicts = (spec.check_file(name[start:]).include for start, spec in rules)
        return next((verdict for verdict in verdicts if verdict is not None), False)


def _load_spec(file: Path, folder: str) -> tuple[_IgnoreFile, ...]:
    try:
        handle = open_regular(Path(os.path.realpath(file)))
        with os.fdopen(handle, "rb") as opened:
            text = opened.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ()
    if not text.strip():
        return ()
    from pathspec import GitIgnoreSpec

    patterns: list[Any] = []
    for line in text.splitlines():
        with suppress(ValueError):  # not a pattern
            patterns += GitIgnoreSpec.from_lines([line]).patterns
    return ((len(folder.rstrip("/")) + 1, GitIgnoreSpec(patterns)),)


def _global_ignore_file() -> Path:
    """The user's ignore file, at git's default path."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (never raises)
    return Path(config) / "git" / "ignore"


_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


class GlobPattern:
    """A compiled pattern. Without a slash it matches names at any depth, otherwise whole paths."""

    def __init__(self, pattern: str) -> None:
        alternatives = _expand_braces(pattern)
        self.names_only = all("/" not in alternative for alternative in alternatives)
        self._patterns = [_compile_parts(alternative) for alternative in alternatives]

    def matches(self, path: str) -> bool:
        """Whether `path`, relative and with slashes, matches."""
        parts = path.split("/")
        return any(_match_parts(pattern, parts) for pattern in self._patterns)


_NEVER_MATCHES = re.compile(r"(?!)")
_Part = re.Pattern[str] | None
"""One name of a path; None is `**`."""


def _compile_parts(pattern: str) -> list[_Part]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern:
        names.insert(0, "**")
    elif pattern.endswith("/"):
        names.append("**")
    # Unlike a plain translation, fnmatch's expressions never take exponential time.
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _match_parts(pattern: Sequence[_Part], parts: Sequence[str]) -> bool:
    """Compares name by name; on a mismatch the last `**` consumes one more name."""
    at = place = 0
    retry: tuple[int, int] | None = None
    while place < len(parts):
        part = pattern[at] if at < len(pattern) else _NEVER_MATCHES
        if part is None:
            at += 1
            retry = (at, place)
        elif part.match(parts[place]):
            at, place = at + 1, place + 1
        elif retry is not None:
            at, place = retry = (retry[0], retry[1] + 1)
        else:
            return False
    return all(part is None for part in pattern[at:])


def _expand_braces(pattern: str) -> list[str]:
    """`*.{ts,tsx}` as `*.ts` and `*.tsx`."""
    found = [pattern]
    while any(_BRACES.search(pattern) for pattern in found):
        found = [
            pattern[: braces.start()] + option + pattern[braces.end() :] if braces else pattern
            for pattern in found
            for braces in (_BRACES.search(pattern),)
            for option in (braces[1].split(",") if braces else ("",))
        ]
        if len(found) > _MAX_ALTERNATIVES:
            raise ToolError(f"The pattern {pattern} has too many alternatives in braces: use a simpler one.")
    return found


NOT_SEARCHED = "[What rules keep from being read, and the usual places of secrets, are left out.]"
"""Shown whether or not they contain anything, since even that must not be revealed."""


def changed_times(root: Folder, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Those of `paths` that are files below `root`, with their modification times in nanoseconds.

    In any order.
    """
    for path, name, folder in _in_folders(root, sorted(paths, key=_folder_of)):
        with suppress(OSError):
            status = folder.status(name)
            if not stat.S_ISLNK(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                yield path, status.st_mtime_ns


@contextmanager
def opened_files(root: Folder, paths: Iterable[str]) -> Generator[dict[int, str]]:
    """Those of `paths` that are regular files below `root`, in this order, by open descriptor."""
    opened: dict[int, str] = {}
    try:
        for path, name, folder in _in_folders(root, paths):
            with suppress(NotRegular, OSError):
                opened[folder.open_regular(name)] = path
        yield opened
    finally:
        for handle in opened:
            os.close(handle)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _in_folders(root: Folder, paths: Iterable[str]) -> Iterator[tuple[str, str, Folder]]:
    """Each of `paths` with its name and its folder, which is opened once for paths that follow each other."""
    for place, inside in groupby(paths, key=_folder_of):
        with suppress(OSError, ValueError), root.descend(place.split("/") if place else ()) as folder:
            for path in inside:
                yield path, path.rpartition("/")[2], folder
