"""Reverts changes to a repository's settings that could make git run programs.

`git remote add`, `git push -u` and `git config user.name` write `.git/config`, so it must be writable. The
same file can name programs that git would later run for the user, outside any sandbox.
"""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.paths import private_dir
from crushpy.sandbox.repository import git_folders
from crushpy.security.safe_git import git_environment
from crushpy.security.safe_open import open_folder

_MAX_CONFIG_BYTES = 1_000_000
_GIT_TIMEOUT_S = 10
_HARMLESS_KEYS = {
    "advice": "*",
    "branch": "remote merge rebase pushremote description vscode-merge-base gk-merge-base",
    "color": "*",
    "column": "*",
    "commit": "cleanup gpgsign status template verbose",
    "core": "abbrev autocrlf bare bigfilethreshold checkstat commitgraph compression eol filemode ignorecase"
    " logallrefupdates longpaths precomposeunicode preloadindex protecthfs protectntfs quotepath"
    " repositoryformatversion safecrlf sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks"
    " trustctime untrackedcache whitespace",
    "diff": "algorithm colormoved context indentheuristic ignoresubmodules mnemonicprefix noprefix renames"
    " renamelimit submodule wordregex",
    "extensions": "*",
    "fetch": "*",
    "gc": "auto autodetach autopacklimit packrefs pruneexpire reflogexpire reflogexpireunreachable",
    "http": "*",
    "index": "*",
    "init": "defaultbranch",
    "lfs": "repositoryformatversion access locksverify",
    "log": "*",
    "maintenance": "*",
    "merge": "autostash conflictstyle ff log renames stat verbosity",
    "pack": "*",
    "pull": "ff rebase",
    "push": "autosetupremote default followtags gpgsign recursesubmodules",
    "rebase": "abbreviatecommands autosquash autostash backend forkpoint stat updaterefs",
    "remote": "url pushurl fetch push mirror tagopt prune prunetags promisor partialclonefilter"
    " followremotehead skipdefaultupdate skipfetchall",
    "rerere": "*",
    "status": "*",
    "submodule": "active branch fetchrecursesubmodules ignore path recurse url",
    "tag": "sort forcesignannotated gpgsign",
    "user": "*",
}
"""Keys, by section, that cannot make git run programs; any other key is reverted."""


class GitSettings:
    """The settings files of a workspace's repository, as they were before a command."""

    def __init__(self, workspace: Path, aside: Path) -> None:
        self._workspace = workspace
        self._aside = aside
        self._before: dict[Path, bytes | None] = {}

    def places(self) -> frozenset[Path]:
        """The settings files of the repository, which a command may have just created."""
        repository = git_folders(self._workspace)
        return frozenset(Path(folder, "config") for folder in (repository.folders if repository else ()))

    def remember(self) -> None:
        """Called before a command: records the current contents."""
        self._before = {path: _read(path) for path in self.places()}

    def revert(self) -> list[str]:
        """Restores files with a new setting that may run a program; returns messages about them."""
        messages: list[str] = []
        for path in sorted({*self._before, *self.places()}):
            before, after = self._before.get(path), _read(path)
            if after == before:
                continue
            risky = sorted(_risky_settings(before, after))
            if not risky:
                self._before[path] = after
                continue
            copy = private_dir(self._aside / new_id()) / "config"
            copy.write_bytes(after or b"")
            try:
                _restore_file(path, before)
            except OSError as error:
                messages.append(
                    f"{path} may now make git run programs, and could not be restored: {error.strerror}"
                )
                continue
            messages.append(
                f"{path} was restored: {', '.join(risky[:5])} may make git run programs, so only the user "
                f"may set it. The new file was saved as {copy}"
            )
        return messages


def _read(path: Path) -> bytes | None:
    """The contents; None if it is not a regular file."""
    try:
        with open_folder(path.parent) as folder:
            handle = folder.open_regular(path.name)
            with os.fdopen(handle, "rb") as file:
                return file.read(_MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return None


def _restore_file(path: Path, content: bytes | None) -> None:
    with open_folder(path.parent) as folder:
        if content is None:
            folder.remove(path.name)
            return
        mode = 0o644
        if folder.exists(path.name):
            status = folder.status(path.name)
            mode = stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else mode
            if stat.S_ISDIR(status.st_mode):
                folder.rename(path.name, f"config.{new_id()}")
        name = f"config.{new_id()}"
        os.close(folder.write_new(name, content, mode))
        folder.rename(name, path.name)


def _risky_settings(before: bytes | None, after: bytes | None) -> Iterator[str]:
    """The names of new settings in `after` that are not known to be harmless."""
    if after is None:
        yield "something that is not a settings file"
        return
    settings, previous = _parse_settings(after), _parse_settings(before or b"")
    if settings is None:
        yield "something that git cannot read"
        return
    for name, value in sorted(settings - (previous or set())):
        if not _is_harmless(name, value):
            yield name


def _parse_settings(text: bytes) -> set[tuple[str, str]] | None:
    """All settings of a file as git parses them, which runs no program; None if it cannot."""
    try:
        result = subprocess.run(
            ["git", "config", "--file", "-", "--null", "--no-includes", "--list"],
            input=text,
            capture_output=True,
            cwd="/",
            env=git_environment(),
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    pairs = (record.partition("\n") for record in os.fsdecode(result.stdout).split("\0") if record)
    return {(name, value) for name, _, value in pairs}


def _is_harmless(name: str, value: str) -> bool:
    section, _, rest = name.partition(".")
    key = rest.rpartition(".")[2]
    keys = _HARMLESS_KEYS.get(section, "")
    if section in ("diff", "merge") and "." in rest:
        return False  # a driver is a program
    if key.endswith("url") and (value.startswith("-") or "::" in value):
        return False  # a remote helper is a program
    return keys == "*" or key in keys.split()
