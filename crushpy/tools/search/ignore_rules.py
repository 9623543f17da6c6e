"""What git and ripgrep would skip in a folder, according to its ignore files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.messages import Data
from crushpy.security.safe_open import open_folder, open_regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
"""Never searched."""
_MAX_IGNORE_BYTES = 1_000_000


class FolderEntries(Data, frozen=True):
    """The entries of a folder, sorted by name: subfolders, and everything else."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    links: frozenset[str] = frozenset()
    """Which of `files` are links."""


class _IgnoreFile:
    """The patterns of one ignore file, relative to its folder."""

    def __init__(self, folder: str, spec: "GitIgnoreSpec") -> None:
        self._prefix = len(folder.rstrip("/")) + 1
        self._spec = spec

    def verdict(self, path: str) -> bool | None:
        """True: ignored; False: explicitly not ignored; None: no pattern matches."""
        return self._spec.check_file(path[self._prefix :]).include


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
        for specs in (self._own, self._git):
            for spec in reversed(specs):
                verdict = spec.verdict(name)
                if verdict is not None:
                    return verdict
        return False

    def entries(self, folder: str) -> FolderEntries:
        """The entries of `folder` (a resolved path, whose rules these are); none if it cannot be read."""
        folders: list[str] = []
        files: list[str] = []
        links: list[str] = []
        try:
            with open_folder(Path(folder)) as opened, opened.entries() as found:
                for entry in found:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    path = f"{folder.rstrip('/')}/{entry.name}"
                    if entry.name in VERSION_CONTROL or self.ignores(path, is_folder=is_folder):
                        continue
                    (folders if is_folder else files).append(entry.name)
                    if entry.is_symlink():
                        links.append(entry.name)
        except OSError:
            return FolderEntries((), ())
        return FolderEntries(tuple(sorted(folders)), tuple(sorted(files)), frozenset(links))


def _load_spec(file: Path, folder: str) -> tuple[_IgnoreFile, ...]:
    try:
        handle = open_regular(Path(os.path.realpath(file)))
        with os.fdopen(handle, "rb") as opened:
            text = opened.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return ()
    from pathspec import GitIgnoreSpec

    try:
        return (_IgnoreFile(folder, GitIgnoreSpec.from_lines(lines)),)
    except ValueError:
        return (_IgnoreFile(folder, GitIgnoreSpec.from_lines(filter(_is_pattern, lines))),)


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _global_ignore_file() -> Path:
    """The user's ignore file, at git's default path."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (never raises)
    return Path(config) / "git" / "ignore"
