"""Whether a rule speaks of a path. Patterns are gitignore-style, relative to the workspace or absolute."""

import os
import re
import sys
from functools import cached_property, lru_cache
from pathlib import Path

from crushpy.core.access import Access
from crushpy.core.paths import WORKTREES
from crushpy.permissions.patterns import compiled, escaped
from crushpy.permissions.rules import READ, WRITE, Rule

OWN_FOLDERS = frozenset((".git", ".crushpy"))
"""What is written here changes what git and crushpy do: only a rule that spells the folder covers it."""
_IGNORES_CASE = sys.platform in ("darwin", "win32")


class TouchedPath:
    """A path that a call would touch, as it was written and as it really is."""

    def __init__(self, path: str, workspace: Path) -> None:
        self._path = os.path.join(workspace, path)  # noqa: PTH118  # every call is judged by it: a third of the time
        self.real = Path(os.path.realpath(self._path))
        self.workspace = workspace
        self.root = Path(os.path.realpath(workspace))

    @cached_property
    def written(self) -> Path:
        return Path(os.path.normpath(self._path))

    @cached_property
    def inside(self) -> bool:
        """True where it really lies in the workspace."""
        return self.real == self.root or self.real.is_relative_to(self.root)

    @property
    def parts(self) -> tuple[str, ...]:
        """Every folder's name on the way to it, from the workspace on where it lies there."""
        real = self.real.relative_to(self.root) if self.inside else self.real
        from_here = self.written.is_relative_to(self.workspace)
        written = self.written.relative_to(self.workspace) if from_here else self.written
        return (*real.parts, *written.parts)

    @property
    def shown(self) -> str:
        """As a person reads it: relative inside the workspace."""
        return str(self.real.relative_to(self.root)) if self.inside else str(self.real)


def speaks_of(rule: Rule, access: Access) -> bool:
    """Whether the rule is about this kind of access. `view` is the right to read, `write` to change."""
    return rule.tool in (access.tool, WRITE if access.writes else READ)


def allows(rule: Rule, access: Access, target: TouchedPath) -> bool:
    """True where an allow rule covers the path as it really is, links followed."""
    if not speaks_of(rule, access):
        return False
    if access.writes and not _spells_own_folder(rule.pattern, target):
        return False
    return not rule.pattern or _matches(
        rule.pattern, target.real, target.root, reads=not access.writes, forbids=False
    )


def forbids(rule: Rule, access: Access, target: TouchedPath) -> bool:
    """True where a deny or ask rule speaks of the path, as written or as it really is."""
    if not speaks_of(rule, access):
        return False
    if not rule.pattern:
        return True
    reads = not access.writes
    return _matches(rule.pattern, target.real, target.root, reads=reads, forbids=True) or _matches(
        rule.pattern, target.written, target.workspace, reads=reads, forbids=True
    )


def exact_pattern(target: TouchedPath) -> str | None:
    """The pattern for this one path; None where no rule can spell it."""
    pattern = escaped(target.shown)
    if not pattern.isprintable() or pattern.endswith(" "):
        return None
    if target.inside and ("/" not in pattern or pattern.startswith(("~", " "))):
        return f"./{pattern}"
    return pattern


def _spells_own_folder(pattern: str, target: TouchedPath) -> bool:
    """True where the path is none of the guarded ones, or the pattern names the guarded folder."""
    spelled = {part.casefold() for part in pattern.split("/")}
    parts = {part.casefold() for part in target.parts}
    if not (parts & OWN_FOLDERS) <= spelled:
        return False
    return all(
        pattern.startswith(("/", "~")) and folder.name in pattern.split("/")
        for folder in _folders_around(target)
    )


def is_guarded(target: TouchedPath) -> bool:
    """True where what is written there changes what git or crushpy do."""
    return any(part.casefold() in OWN_FOLDERS for part in target.parts) or bool(_folders_around(target))


def _folders_around(target: TouchedPath) -> list[Path]:
    """Crushpy's own folders that the path lies in. The worktree of a task is there, and is the task's."""
    around = [
        folder for folder in crushpy_folders() if target.real == folder or target.real.is_relative_to(folder)
    ]
    of_task = any(target.root.is_relative_to(folder / WORKTREES) for folder in around)
    return [] if of_task and target.inside else around


def crushpy_folders() -> tuple[Path, ...]:
    """Where crushpy keeps settings and conversations."""
    return _crushpy_folders_for(os.environ.get("CRUSHPY_HOME", ""), os.environ.get("HOME", ""))


@lru_cache(maxsize=8)
def _crushpy_folders_for(crushpy_home: str, home: str) -> tuple[Path, ...]:
    from crushpy.core.paths import Paths

    paths = Paths(crushpy_home)
    return tuple({Path(os.path.realpath(folder)) for folder in (paths.config_dir, paths.data_dir)})


def _matches(pattern: str, path: Path, root: Path, *, reads: bool, forbids: bool) -> bool:
    if pattern.startswith("~"):
        home = os.path.expanduser(pattern.partition("/")[0])  # noqa: PTH111
        pattern = escaped(home) + "".join(pattern.partition("/")[1:])
    elif pattern.startswith("../") or "/../" in pattern:
        pattern = os.path.normpath(f"{escaped(str(root))}/{pattern}")
    if pattern.startswith("/"):
        # What is allowed stays what it was when the rule was first used; what is forbidden follows links.
        real = _real if forbids else _real_at_first
        lines = {pattern, real(pattern)} if pattern != "/" else {"/**"}
        return any(_match(line, str(path).lstrip("/"), reads, forbids) for line in lines)
    if path == root:
        return pattern in (".", "./", "*", "**", "./*", "./**")
    if not path.is_relative_to(root):
        return False
    line = pattern[1:] if pattern.startswith("./") else pattern
    return _match(line, str(path.relative_to(root)), reads, forbids)


def _match(line: str, path: str, reads: bool, forbids: bool) -> bool:
    if forbids and _IGNORES_CASE:
        line, path = line.casefold(), path.casefold()
    spec = compiled(line)
    if spec is None:
        return forbids
    # Reading a folder is reading what is in it: `src/**` speaks of listing `src` too.
    return spec.match_file(path) or spec.match_file(f"{path}/") or (reads and spec.match_file(f"{path}/\x01"))


def _real(pattern: str) -> str:
    """An absolute pattern with links resolved in the part before its first wildcard."""
    literal = re.match(r"(?:/[^/*?\[\]\\!#]+(?=/|$))*", pattern)
    head = literal[0] if literal else ""
    return escaped(os.path.realpath(head)) + pattern[len(head) :] if head else pattern


_real_at_first = lru_cache(maxsize=256)(_real)
