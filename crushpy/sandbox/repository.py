"""The git folders of a workspace, and the files in them that no command may write."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from crushpy.core.messages import Data

_PROGRAM_SETTINGS = ("hooks", "config", "config.worktree", "info/attributes")
"""Files that make git run programs: only the user may change them."""
_MAX_FILE_BYTES = 4_096
_MAX_SUBMODULES = 100
_CORE_WORKTREE = re.compile(r"^[ \t]*worktree[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE | re.IGNORECASE)


class GitFolders(Data, frozen=True):
    """The folders of one repository; of a worktree, its own and the one it shares with the others."""

    entry: str
    """The `.git` of the working tree: a folder, or a file that names one."""
    folders: tuple[str, ...]

    def protected(self) -> tuple[str, ...]:
        """What stays read-only even if git may write."""
        link = () if os.path.isdir(self.entry) else (self.entry,)  # noqa: PTH112
        return (*link, *(str(place) for place in self.program_settings() if os.path.lexists(place)))

    def program_settings(self) -> Iterator[Path]:
        """The paths that can make git run programs, existing or not."""
        folders = [Path(folder) for folder in self.folders]
        for folder in (*folders, *(module for each in folders for module in _submodules(each))):
            yield from (folder / name for name in _PROGRAM_SETTINGS)


def _submodules(folder: Path) -> Iterator[Path]:
    heads = (folder / "modules").glob("**/HEAD")
    return (head.parent for head in islice(heads, _MAX_SUBMODULES) if head.parent.name != "logs")


def git_folders(workspace: Path) -> GitFolders | None:
    """The repository that `workspace` belongs to, as git would find it, with the folders that are its own."""
    for folder in (workspace, *workspace.parents):
        entry = folder / ".git"
        if os.path.lexists(entry):
            found = _owned_folders(entry, Path(os.path.realpath(workspace)))
            return GitFolders(str(entry), tuple(map(str, found)))
    return None


def _owned_folders(entry: Path, workspace: Path) -> Iterator[Path]:
    """The folders that `.git` and `commondir` name. Both files may come with a project and name any folder,
    so one outside the workspace counts only if git made it for this working tree."""
    top = Path(os.path.realpath(entry.parent))
    real = Path(os.path.realpath(entry))
    own = real if real.is_dir() else _read_folder_name(real, "gitdir:")
    if own is None or not own.is_dir():
        return
    own = Path(os.path.realpath(own))
    is_ours = _is_worktree_of(own, top) or _is_submodule_of(own, top)
    if _is_above_home(own) or not (own == top / ".git" or own.is_relative_to(workspace) or is_ours):
        return
    yield own
    named = _read_folder_name(own / "commondir")
    shared = Path(os.path.realpath(named)) if named is not None else own
    holds_worktree = shared == own.parent.parent and _is_worktree_of(own, top)
    if shared != own and not _is_above_home(shared) and (shared.is_relative_to(workspace) or holds_worktree):
        yield shared


def _is_above_home(folder: Path) -> bool:
    """Also true of the home folder itself."""
    return Path(os.path.realpath(Path.home())).is_relative_to(folder)


def _is_worktree_of(folder: Path, top: Path) -> bool:
    """Whether `folder` is what `git worktree add` makes in a repository, and names the `.git` in `top`."""
    named = _read_folder_name(folder / "gitdir") if folder.parent.name == "worktrees" else None
    return named is not None and named.name == ".git" and os.path.realpath(named.parent) == str(top)


def _is_submodule_of(folder: Path, top: Path) -> bool:
    """Whether `folder` is where git keeps a submodule, and its `core.worktree` names `top`."""
    if "modules" not in folder.parts:
        return False
    texts = (_read_start(folder / name) for name in ("config", "config.worktree"))
    named = (found for text in texts for found in _CORE_WORKTREE.findall(text))
    return any(os.path.realpath(folder / each.strip('"')) == str(top) for each in named)


def _read_folder_name(file: Path, word: str = "") -> Path | None:
    """The folder named in a file of git; None if it names none."""
    text = _read_start(file).strip()
    if not text.startswith(word) or not text or "\0" in text:
        return None
    return file.parent / text.removeprefix(word).strip()


def _read_start(file: Path) -> str:
    """The first bytes of a file; empty if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return os.fsdecode(opened.read(_MAX_FILE_BYTES))
    except OSError:
        return ""
