"""What git and ripgrep would leave out of a folder: the ignore files that hold there, and what they say."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.messages import Data
from crushpy.security.safe_open import open_folder, open_regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
"""Never looked into."""
_MAX_IGNORE_BYTES = 1_000_000


class FolderEntries(Data, frozen=True):
    """What a folder holds, sorted by name: subfolders, and everything else."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    links: frozenset[str] = frozenset()
    """Which of `files` are links."""


class _Spec:
    """One ignore file's patterns; they speak of paths below its folder."""

    def __init__(self, folder: str, spec: "GitIgnoreSpec") -> None:
        self._prefix = len(folder.rstrip("/")) + 1
        self._spec = spec

    def verdict(self, path: str) -> bool | None:
        """True: ignored; False: expressly not; None: not spoken of."""
        return self._spec.check_file(path[self._prefix :]).include


class IgnoreRules:
    """The ignore files that hold in one folder, and what they say."""

    def __init__(self, git: tuple[_Spec, ...] = (), own: tuple[_Spec, ...] = ()) -> None:
        self._git = git
        """Outermost first, as in `_own`: what is nearer to a file decides."""
        self._own = own
        """`.ignore` files; they decide before git's."""

    @classmethod
    def at(cls, folder: Path) -> "IgnoreRules":
        """The rules for what is in `folder`. One that is itself ignored was asked for: only its own hold."""
        rules = cls(_load(_global_ignores(), "/"))
        for parent in reversed(folder.parents):
            rules = rules.inside(str(parent))
        if rules.ignores(str(folder), is_folder=True):
            rules = cls()
        return rules.inside(str(folder))

    def inside(self, folder: str) -> "IgnoreRules":
        """These rules and those that `folder` brings."""
        base = Path(folder)
        git = _load(base / ".gitignore", folder)
        if (base / ".git").exists():
            # A repository of its own: what the folders around it ignore does not hold here.
            git = (
                *_load(_global_ignores(), folder),
                *_load(base / ".git" / "info" / "exclude", folder),
                *git,
            )
        elif git:
            git = (*self._git, *git)
        else:
            git = self._git
        own = _load(base / ".ignore", folder)
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
        """What `folder` (a real path, whose rules these are) holds. One that cannot be read holds nothing."""
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


def _load(file: Path, folder: str) -> tuple[_Spec, ...]:
    try:
        handle = open_regular(Path(os.path.realpath(file)))
        with os.fdopen(handle, "rb") as opened:
            text = opened.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return (_Spec(folder, _parse(lines)),) if lines else ()


def _parse(lines: list[str]) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _global_ignores() -> Path:
    """The user's own ignore file, at git's default place."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (never raises)
    return Path(config) / "git" / "ignore"
