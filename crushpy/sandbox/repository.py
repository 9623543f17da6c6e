"""The git folders of a workspace, and the files in them that no command may write."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from crushpy.core.messages import Data

_RUNS_PROGRAMS = ("hooks", "config", "config.worktree", "info/attributes")
"""Files that make git run programs: only the user may change them."""
_MAX_BYTES = 4_096
_MAX_SUBMODULES = 100


class GitFolders(Data, frozen=True):
    """The folders of one repository; of a worktree, its own and the one it shares with the others."""

    entry: str
    """The `.git` of the working tree: a folder, or a file that names one."""
    folders: tuple[str, ...]

    def protected(self) -> tuple[str, ...]:
        """What stays read-only even if git may write."""
        link = () if os.path.isdir(self.entry) else (self.entry,)  # noqa: PTH112
        return (*link, *(str(place) for place in self.orders() if os.path.lexists(place)))

    def orders(self) -> Iterator[Path]:
        """The paths that can make git run programs, existing or not."""
        folders = [Path(folder) for folder in self.folders]
        for folder in (*folders, *(module for each in folders for module in _submodules(each))):
            yield from (folder / name for name in _RUNS_PROGRAMS)


def _submodules(folder: Path) -> Iterator[Path]:
    heads = (folder / "modules").glob("**/HEAD")
    return (head.parent for head in islice(heads, _MAX_SUBMODULES) if head.parent.name != "logs")


def git_folders(workspace: Path) -> GitFolders | None:
    """The repository that `workspace` belongs to, as git would find it."""
    for folder in (workspace, *workspace.parents):
        entry = folder / ".git"
        if os.path.lexists(entry):
            return _folders(entry)
    return None


def _folders(entry: Path) -> GitFolders:
    real = Path(os.path.realpath(entry))
    own = real if real.is_dir() else _named_in(real, "gitdir:")
    if own is None or not own.is_dir():
        return GitFolders(str(entry), ())
    shared = _named_in(own / "commondir")
    both = dict.fromkeys(os.path.realpath(each) for each in (own, shared) if each is not None)
    return GitFolders(str(entry), tuple(both))


def _named_in(file: Path, word: str = "") -> Path | None:
    """The folder named in a file of git; None if it names none."""
    try:
        with file.open("rb") as opened:
            text = os.fsdecode(opened.read(_MAX_BYTES)).strip()
    except OSError:
        return None
    if not text.startswith(word):
        return None
    return file.parent / text.removeprefix(word).strip()
