"""What the user has consented to: the exact definition that was shown, where, who answered and when."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import file_digest, sha256
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from crushpy.core.errors import CrushpyError, SettingsError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.security.private_files import locked, write_private
from crushpy.util.posix import login_name

Kind = Literal["project", "hooks", "worktree.setup", "mcp server", "mcp tools", "plugin"]
_WORD = re.compile(r"[^\s=;|&()<>`\"']+")
_PROJECT_VARIABLE = re.compile(r"\"?\$\{?CLAUDE_PROJECT_DIR\}?\"?/?")
_SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php")
_IMPLIED = {
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun"), "package.json"),
    **{"make": "Makefile", "just": "justfile", "uv": "pyproject.toml", "poetry": "pyproject.toml"},
}
"""The files in which these programs find what to run."""


class Consent(Data, frozen=True):
    """It holds as long as the definition is what the user saw."""

    kind: Kind
    where: str
    """The real path of the project or plugin; empty for something of the user's own."""
    name: str = ""
    definition: str = ""
    """With the hash of every script that it starts."""
    who: str = ""
    when: float = 0.0

    @property
    def id(self) -> str:
        named = f"{self.kind}\0{self.where}\0{self.name}".encode(errors="surrogateescape")
        return sha256(named).hexdigest()[:8]


def all_consents(paths: Paths) -> list[Consent]:
    """Raises SettingsError if they cannot be read: nothing is accepted then."""
    try:
        return msgspec.json.decode(paths.consents.read_bytes(), type=list[Consent])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise SettingsError(
            f"The list of your consents {paths.consents} cannot be read: {error}",
            "No project is trusted until it is fixed. Delete it to start with an empty list.",
        ) from error


def find_consent(paths: Paths, kind: Kind, where: str, name: str = "") -> Consent | None:
    """The last one about this, whatever its definition was."""
    try:
        found = all_consents(paths)
    except CrushpyError:
        return None
    return next((each for each in found if (each.kind, each.where, each.name) == (kind, where, name)), None)


def has_consent(paths: Paths, kind: Kind, where: str, definition: str, name: str = "") -> bool:
    found = find_consent(paths, kind, where, name)
    return found is not None and found.definition == definition


def add_consent(
    paths: Paths, kind: Kind, where: str, definition: str, name: str = "", how: str = "a question"
) -> None:
    """Replaces the one about an earlier definition. `how`: where the user answered."""
    new = Consent(kind, where, name, definition, f"{login_name()} ({how})", time.time())
    _change(paths, lambda known: [*(each for each in known if each.id != new.id), new])


def remove_consents(paths: Paths, is_meant: Callable[[Consent], bool]) -> list[Consent]:
    removed = list(filter(is_meant, all_consents(paths)))
    if removed:
        _change(paths, lambda known: [each for each in known if each not in removed])
    return removed


def _change(paths: Paths, change: Callable[[list[Consent]], list[Consent]]) -> None:
    try:
        with locked(paths.consents.with_suffix(".lock")):
            data = msgspec.json.encode(sorted(change(all_consents(paths)), key=lambda each: each.where))
            write_private(paths.consents, msgspec.json.format(data) + b"\n")
    except OSError as error:
        raise CrushpyError(
            f"{paths.consents} cannot be written: {error.strerror}",
            "Check the folder's permissions and free space.",
        ) from error


def define(lines: Iterable[str], commands: Iterable[str], root: Path, cwd: str = "") -> str:
    """A definition as it is shown and compared: its lines, and the hash of each script of the project at
    `root` that its commands name. `cwd`: where they run, if not there."""
    scripts = dict.fromkeys(script for command in commands for script in _scripts(command, root, cwd))
    return "\n".join((*lines, *hash_lines(scripts, root)))


def hash_lines(files: Iterable[Path], root: Path) -> Iterator[str]:
    for file in files:
        try:
            with file.open("rb") as content:
                yield f"{file.relative_to(root)} sha256:{file_digest(content, 'sha256').hexdigest()}"
        except OSError as error:
            yield f"{file.relative_to(root)}: {error.strerror}"


def is_script(file: Path) -> bool:
    return file.is_file() and (file.name.endswith(_SCRIPTS) or os.access(file, os.X_OK))


def _scripts(command: str, root: Path, cwd: str) -> Iterator[Path]:
    """The files of the project that a command starts: those it names, modules of Python, and those in which
    its programs look."""
    words = _WORD.findall(_PROJECT_VARIABLE.sub("", command))
    named = [*words, *(_IMPLIED[word] for word in words if word in _IMPLIED)]
    modules = (after.replace(".", "/") for word, after in pairwise(words) if word == "-m")
    named += (f"{module}{end}" for module in modules for end in (".py", "/__main__.py"))
    for name in named:
        file = Path(os.path.normpath(root / cwd / name))
        if file.is_relative_to(root) and (is_script(file) or (name in _IMPLIED.values() and file.is_file())):
            yield file


def show_difference(before: str, after: str) -> str:
    """How a definition has changed, as a unified diff; all of it if it is new."""
    from difflib import unified_diff

    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm=""))
    return "\n".join(lines[2:])
