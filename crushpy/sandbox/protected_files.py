"""Protects files of a workspace that other programs execute: hooks, `.envrc`, editor tasks.

Existing ones are read-only for commands. Missing ones cannot be, without leaving files in the project; so
after each command crushpy looks for new ones, moves them out of the project, and reports them.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.paths import private_dir
from crushpy.sandbox.repository import git_folders

IN_WORKSPACE = (
    ".git",
    ".git/hooks",
    ".git/config.worktree",
    ".envrc",
    ".crushpy",
    ".vscode/tasks.json",
)
IN_HOME = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
.zlogout .inputrc .xinitrc .xprofile .xsessionrc .pam_environment .gitconfig .config/git .config/fish
.config/autostart .config/systemd .config/environment.d .local/bin .local/share/applications .vimrc .vim
.config/nvim .emacs .emacs.d .tmux.conf .gdbinit .pythonrc.py .crontab bin Library/LaunchAgents
""".split()  # noqa: SIM905
_MAX_NESTED_DEPTH = 2
_MAX_NESTED_FOLDERS = 200


class ProtectedFiles:
    """The protected paths of one workspace, and which of them existed when a command began."""

    def __init__(self, workspace: Path, home: Path, aside: Path) -> None:
        self._workspace = workspace
        self._aside = aside
        self._places = [workspace / name for name in IN_WORKSPACE]
        if home == workspace or workspace in home.parents:
            self._places += [home / name for name in IN_HOME]
        repository = git_folders(workspace)
        if repository:
            self._places += repository.program_settings()
        self._missing = self._find_missing()

    def _find_missing(self) -> frozenset[Path]:
        return frozenset(place for place in self._places if not os.path.lexists(place))

    def existing(self) -> Iterator[Path]:
        """The protected paths that exist, including repositories inside the workspace."""
        for place in self._places:
            if os.path.lexists(place):
                yield place
        yield from _nested_repositories(self._workspace)

    def begin(self, *, alone: bool) -> list[str]:
        """Called before a command: what exists now was not made by it.

        Returns messages about paths that a command in the background may have created, unless `alone`.
        """
        before, self._missing = self._missing, self._find_missing()
        appeared = sorted(before - self._missing)
        return (
            [] if alone else [f"{place} appeared while commands ran in the background" for place in appeared]
        )

    def put_aside(self, allowed: Collection[Path] = ()) -> list[str]:
        """Moves newly created protected files out of the project; returns messages about them."""
        notes: list[str] = []
        for place in sorted(self._missing):
            if place in allowed or not os.path.lexists(place) or _has_only_samples(place):
                continue
            new = self._outermost_link(place)
            target = private_dir(self._aside / new_id()) / new.name
            try:
                shutil.move(new, target)
            except OSError as error:
                notes.append(
                    f"{new} was created, which other programs execute, and cannot be moved: {error.strerror}"
                )
            else:
                notes.append(f"{new} was created, which other programs execute: it was moved to {target}")
        self._missing = self._find_missing()
        return notes

    def _outermost_link(self, place: Path) -> Path:
        """`place`, or the link above it: files behind a link must not be moved."""
        if self._workspace in place.parents:
            for folder in reversed(place.relative_to(self._workspace).parents):
                above = self._workspace / folder
                if above != self._workspace and above.is_symlink():
                    return above
        return place


def _has_only_samples(place: Path) -> bool:
    """True if there are only the sample hooks that git creates in every repository, which do not run."""
    if place.name != "hooks" or place.is_symlink():
        return False
    with suppress(OSError):
        return all(name.endswith(".sample") for name in os.listdir(place))  # noqa: PTH208
    return False


def _nested_repositories(workspace: Path) -> Iterator[Path]:
    queue = [(workspace, _MAX_NESTED_DEPTH)]
    visited = 0
    while queue and visited < _MAX_NESTED_FOLDERS:
        folder, depth = queue.pop(0)
        visited += 1
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False) or entry.name in (".git", "node_modules"):
                    continue
                inside = Path(entry.path, ".git")
                if os.path.lexists(inside):
                    yield inside
                if depth > 1:
                    queue.append((Path(entry.path), depth - 1))
