"""Whether a rule speaks of a path. Patterns are gitignore-style, relative to the workspace or absolute."""

import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.access import Access
from crushpy.permissions.rules import Rule

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

OWN_FOLDERS = frozenset((".git", ".crushpy"))
"""What is written here changes what git and crushpy do: only a rule that spells the folder covers it."""
_IGNORES_CASE = sys.platform in ("darwin", "win32")


class Target:
    """A path that a call would touch, as it was written and as it really is."""

    def __init__(self, path: str, workspace: Path) -> None:
        self.written = Path(os.path.normpath(workspace / path))
        self.real = Path(os.path.realpath(workspace / path))
        self.workspace = workspace
        self.root = Path(os.path.realpath(workspace))

    @property
    def inside(self) -> bool:
        """True where it really lies in the workspace."""
        return self.real == self.root or self.real.is_relative_to(self.root)

    @property
    def shown(self) -> str:
        """As a person reads it: relative inside the workspace."""
        return str(self.real.relative_to(self.root)) if self.inside else str(self.real)


def speaks_of(rule: Rule, access: Access) -> bool:
    """Whether the rule is about this kind of access. `view` is the right to read, `write` to change."""
    return rule.tool in (access.tool, "write" if access.writes else "view")


def allows(rule: Rule, access: Access, target: Target) -> bool:
    """True where an allow rule covers the path as it really is, links followed."""
    if not speaks_of(rule, access):
        return False
    if access.writes and not _spells_own_folder(rule.pattern, target):
        return False
    return not rule.pattern or _matches(rule.pattern, target.real, target.root, reads=not access.writes)


def forbids(rule: Rule, access: Access, target: Target) -> bool:
    """True where a deny or ask rule speaks of the path, as written or as it really is."""
    if not speaks_of(rule, access):
        return False
    if not rule.pattern:
        return True
    reads = not access.writes
    return _matches(rule.pattern, target.real, target.root, reads=reads, any_case=_IGNORES_CASE) or _matches(
        rule.pattern, target.written, target.workspace, reads=reads, any_case=_IGNORES_CASE
    )


def exact_pattern(target: Target) -> str | None:
    """The pattern for this one path; None where no rule can spell it."""
    shown = target.shown
    if not shown.isprintable() or shown != shown.strip():
        return None
    escaped = re.sub(r"([\\*?\[\]!#])", r"\\\1", shown)
    if not target.inside:
        return escaped
    return f"./{escaped}" if "/" not in escaped or escaped.startswith("~") else escaped


def _spells_own_folder(pattern: str, target: Target) -> bool:
    """True where the path is none of the guarded ones, or the pattern names the guarded folder."""
    spelled = {part.casefold() for part in pattern.split("/")}
    parts = {part.casefold() for path in (target.real, target.written) for part in path.parts}
    if not (parts & OWN_FOLDERS) <= spelled:
        return False
    if target.inside and not any(folder.is_relative_to(target.root) for folder in _crushpy_folders()):
        return True
    real_pattern = _real(_expanded(pattern)) if pattern.startswith(("/", "~")) else ""
    return all(
        real_pattern.startswith(str(folder))
        for folder in _crushpy_folders()
        if target.real == folder or target.real.is_relative_to(folder)
    )


def _crushpy_folders() -> tuple[Path, ...]:
    return _crushpy_folders_for(os.environ.get("CRUSHPY_HOME", ""), os.environ.get("HOME", ""))


@lru_cache(maxsize=8)
def _crushpy_folders_for(crushpy_home: str, home: str) -> tuple[Path, ...]:
    from crushpy.paths import Paths

    paths = Paths(crushpy_home)
    return tuple({Path(os.path.realpath(folder)) for folder in (paths.config_dir, paths.data_dir)})


def _matches(pattern: str, path: Path, root: Path, *, reads: bool, any_case: bool = False) -> bool:
    pattern = _expanded(pattern)
    if pattern.startswith("../") or "/../" in pattern:
        pattern = os.path.normpath(root / pattern)
    if pattern.startswith("/"):
        return any(_match(line, str(path).lstrip("/"), reads, any_case) for line in {pattern, _real(pattern)})
    if path == root:
        return pattern in (".", "./", "*", "**", "./*", "./**")
    if not path.is_relative_to(root):
        return False
    line = pattern[1:] if pattern.startswith("./") else pattern
    return _match(line, str(path.relative_to(root)), reads, any_case)


def _match(line: str, path: str, reads: bool, any_case: bool) -> bool:
    if any_case:
        line, path = line.casefold(), path.casefold()
    spec = _spec(line)
    # Reading a folder is reading what is in it: `src/**` speaks of listing `src` too.
    return spec.match_file(path) or spec.match_file(f"{path}/") or (reads and spec.match_file(f"{path}/\x01"))


def _expanded(pattern: str) -> str:
    """With the home folder in place of `~`."""
    return os.path.expanduser(pattern) if pattern.startswith("~") else pattern  # noqa: PTH111


def _real(pattern: str) -> str:
    """An absolute pattern with links resolved in the part before its first wildcard."""
    literal = re.match(r"(?:/[^/*?\[\\]+(?=/|$))*", pattern)
    head = literal[0] if literal else ""
    return os.path.realpath(head) + pattern[len(head) :] if head else pattern


@lru_cache(maxsize=512)
def _spec(line: str) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines([f"\\{line}" if line.startswith("#") else line])
