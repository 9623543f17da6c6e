"""The git folders of a workspace, as git finds them, and which of them commands may be granted.

A `.git` file and a `commondir` may come with a project and name any folder, so both are read byte for byte as
git reads them, and what they name counts only if git made it for this working tree.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.security.safe_git import parse_settings
from crushpy.security.safe_open import open_regular

_READ_ONLY = ("hooks", "info/attributes")
"""Files of a git folder that no command may change. Its settings are checked afterwards."""
_MAX_POINTER_BYTES = 1 << 20
"""A `.git` file larger than this is an error for git."""
_MAX_MODULES = 1_000


class GitFolders(Data, frozen=True):
    """The folders of one repository; of a worktree, its own and the one it shares with the others."""

    entry: str
    """The `.git` of the working tree: a folder, or a file that names one."""
    folders: tuple[str, ...]

    def protected(self) -> Iterator[str]:
        """What stays read-only even if git may write."""
        if not os.path.isdir(self.entry):  # noqa: PTH112
            yield self.entry
        modules = [module for folder in self.folders for module in module_folders(folder)]
        for place in (f"{folder}/{name}" for folder in (*self.folders, *modules) for name in _READ_ONLY):
            if os.path.lexists(place):
                yield place


def git_folders(workspace: Path) -> GitFolders | None:
    """The repository that `workspace` belongs to, as git would find it, with the folders that are its own."""
    for folder in (workspace, *workspace.parents):
        entry = folder / ".git"
        if os.path.lexists(entry):
            found = _owned_folders(entry, Path(os.path.realpath(workspace)))
            return GitFolders(str(entry), tuple(found))
    return None


def _owned_folders(entry: Path, workspace: Path) -> Iterator[str]:
    top = os.path.realpath(entry.parent)
    named = entry_target(str(entry))
    if named is None or (named != f"{top}/.git" and not is_git_folder(named)):
        return
    shared = common_folder(named) or named
    of_tree = _is_worktree_of(Path(named), Path(top))
    is_ours = named == f"{top}/.git" or is_in_folder(named, str(workspace)) or of_tree
    if _is_above_home(named) or not (is_ours or _is_submodule_of(Path(named), Path(top))):
        return
    yield named
    is_shared = of_tree and shared == os.path.dirname(os.path.dirname(named))  # noqa: PTH120
    if shared != named and not _is_above_home(shared) and (is_shared or is_in_folder(shared, str(workspace))):
        yield shared


def entry_target(entry: str) -> str | None:
    """The git folder that a `.git` leads to, as a real path; None if git would refuse it."""
    if os.path.isdir(entry):  # noqa: PTH112
        return os.path.realpath(entry)
    text = read_pointer(entry) or b""
    if not text.startswith(b"gitdir: ") or len(text) < len(b"gitdir: ") + 1:
        return None
    return _resolve(os.path.dirname(entry), text.removeprefix(b"gitdir: "))  # noqa: PTH120


def common_folder(folder: str) -> str | None:
    """The folder with the settings and hooks of a git folder; None if git could not tell."""
    if not os.path.lexists(f"{folder}/commondir"):
        return folder
    text = read_pointer(f"{folder}/commondir")
    return _resolve(folder, text) if text is not None else None


def is_git_folder(folder: str) -> bool:
    """Whether git would accept this as the folder of a repository."""
    common = common_folder(folder)
    return os.path.lexists(f"{folder}/HEAD") and all(
        os.path.isdir(f"{common}/{name}")  # noqa: PTH112
        for name in ("objects", "refs")
    )


def list_names(folder: str) -> list[str]:
    """The names in a folder; empty if there is none."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def module_folders(folder: str) -> list[str]:
    """The git folders of submodules inside a git folder; their names may contain slashes."""
    found: list[str] = []
    queue = [f"{folder}/modules"]
    while queue and len(found) < _MAX_MODULES:
        current = queue.pop()
        try:
            with os.scandir(current) as entries:
                names = {entry.name: entry.is_dir() for entry in entries}
        except OSError:
            continue
        if "HEAD" in names or "commondir" in names:
            found.append(current)
        else:
            queue += (f"{current}/{name}" for name, is_folder in names.items() if is_folder)
    return found


def read_pointer(file: str) -> bytes | None:
    """The content of a `.git` or `commondir` file without its final line ends; None if git would refuse it.

    Nothing else is removed: for git, spaces belong to the path.
    """
    try:
        with os.fdopen(open_regular(Path(os.path.realpath(file))), "rb") as opened:
            text = opened.read(_MAX_POINTER_BYTES + 1)
    except (OSError, ValueError):
        return None
    return text.rstrip(b"\r\n") if len(text) <= _MAX_POINTER_BYTES else None


def _resolve(folder: str, name: bytes) -> str:
    """The real path of a name in a pointer. As in C, it ends at the first NUL."""
    return os.path.realpath(os.path.join(folder, os.fsdecode(name.partition(b"\0")[0])))  # noqa: PTH118


def _is_above_home(folder: str) -> bool:
    """Also true of the home folder itself."""
    return is_in_folder(os.path.realpath(os.path.expanduser("~")), folder)  # noqa: PTH111


def _is_worktree_of(folder: Path, top: Path) -> bool:
    """Whether `folder` is what `git worktree add` makes in a repository, and names the `.git` in `top`."""
    repository = folder.parent.parent
    if folder.parent.name != "worktrees" or not (
        repository.name.endswith(".git") or repository.name == ".bare"
    ):
        return False
    text = (read_pointer(f"{folder}/gitdir") or b"").rstrip()
    named = folder / os.fsdecode(text.partition(b"\0")[0])
    return named.name == ".git" and os.path.realpath(named.parent) == str(top)


def _is_submodule_of(folder: Path, top: Path) -> bool:
    """Whether `folder` is where git keeps a submodule of a repository around `top`, and names `top`."""
    places = [Path(*folder.parts[:index]) for index, part in enumerate(folder.parts) if part == "modules"]
    # Those whose working tree contains `top`.
    around = (
        place == above / ".git" or _is_worktree_of(place, above)
        for place in places
        for above in (top, *top.parents)
    )
    if not any(around):
        return False
    settings = parse_settings(read_pointer(f"{folder}/config") or b"") or ()
    named = [value for name, value in settings if name == "core.worktree"]
    return bool(named) and os.path.realpath(folder / named[-1]) == str(top)
