"""Whether a rule applies to a path. Patterns are gitignore-style, relative to the workspace or absolute."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from crushpy.core.access import Access, declared_tools
from crushpy.core.messages import first_names
from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import GUARDED_NAMES, WORKTREES
from crushpy.permissions.rules import FOLDER, READ, RIGHTS, WRITE, Rule, RuleSet, compiled, escaped
from crushpy.sandbox.hidden_paths import holds_variables, secrets
from crushpy.util.lazy_pattern import lazy_pattern

_LITERAL_HEAD = lazy_pattern(r"/([^*?\[\]\\!#]*)")
_IGNORES_CASE = sys.platform in ("darwin", "win32")


class TouchedPath:
    """A path a call would touch, as written and with links resolved."""

    def __init__(self, path: str, workspace: Path, folders: Sequence[Path] = ()) -> None:
        """`folders` count as the workspace for the paths in them: rules are relative to them."""
        self._path = os.path.join(workspace, path)  # noqa: PTH118  # on the path of every call: a third faster
        self.real = Path(os.path.realpath(self._path))
        self.workspace = workspace
        self.root = Path(os.path.realpath(workspace))
        around = [folder for folder in folders if self.real.is_relative_to(folder)]
        self._is_added = bool(around) and not self.real.is_relative_to(self.root)
        if self._is_added:
            self.root = self.workspace = around[0]

    @cached_property
    def written(self) -> Path:
        return Path(os.path.normpath(self._path))

    @cached_property
    def inside(self) -> bool:
        """True if the resolved path is in the workspace."""
        return self.real.is_relative_to(self.root)

    @property
    def in_workspace(self) -> bool:
        """As `inside`, without the folders that count as the workspace."""
        return self.inside and not self._is_added

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all folders on the way to it, relative to the workspace if it is inside."""
        real = self.real.relative_to(self.root) if self.inside else self.real
        is_relative = self.written.is_relative_to(self.workspace)
        written = self.written.relative_to(self.workspace) if is_relative else self.written
        return (*real.parts, *written.parts)

    @property
    def shown(self) -> str:
        """For display: relative if inside the workspace."""
        return str(self.real.relative_to(self.root)) if self.in_workspace else str(self.real)


def applies_to(rule: Rule, access: Access) -> bool:
    """Whether the rule is about this kind of access. `view` rules cover all reading, `write` all writing."""
    return rule.tool in (access.tool, WRITE if access.writes else READ)


def allows(rule: Rule, access: Access, target: TouchedPath) -> bool:
    """True if an allow rule covers the path with links resolved."""
    if not applies_to(rule, access) or (rule.foreign and not target.in_workspace):
        return False
    if access.writes and not _may_write_own_folder(rule.pattern, target):
        return False
    return not rule.pattern or _matches(
        rule.pattern, target.real, target.root, reads=not access.writes, forbids=False
    )


def forbids(rule: Rule, access: Access, target: TouchedPath) -> bool:
    """True if a deny or ask rule matches the path, as written or with links resolved."""
    if not applies_to(rule, access):
        return False
    if not rule.pattern:
        return True
    reads = not access.writes
    return _matches(rule.pattern, target.real, target.root, reads=reads, forbids=True) or _matches(
        rule.pattern, target.written, target.workspace, reads=reads, forbids=True
    )


MAX_SHOWN_RULES = 20


def describe_ignored(rules: RuleSet, workspace: Path) -> str:
    """Names the foreign rules that are about hosts, or folders and files outside the workspace; empty if
    there are none."""
    ignored = [str(rule) for rule in rules.allow if rule.foreign and _reaches_outside(rule, workspace)]
    if not ignored:
        return ""
    why = "the rules of a list count only in the checkout of a task"
    return f"Workers ignore these rules, because {why}: {first_names(ignored, MAX_SHOWN_RULES)}"


def _reaches_outside(rule: Rule, workspace: Path) -> bool:
    access = declared_tools().get(rule.tool) or RIGHTS.get(rule.tool)
    kind = access.kind if access else "none"
    if kind != "path" or rule.tool == FOLDER:
        return kind == "host" or rule.tool == FOLDER
    root = os.path.realpath(workspace)
    lines, base = _as_lines(rule.pattern, root, forbids=True)
    return base == "/" and not any(is_in_folder(line, escaped(root)) for line in lines)


MAX_SEARCHED_FILES = 20_000


def is_forbidden_below(rule: Rule, folder: Path, names: Sequence[str], workspace: Path) -> bool:
    """Whether a deny or ask rule is about one of the files `names` in a folder, or there are too many."""
    lines, base = _as_lines(rule.pattern, os.path.realpath(workspace), forbids=True)
    prefix = f"{folder}/"[len(base) :].lstrip("/")
    if len(names) > MAX_SEARCHED_FILES:
        return True
    return is_in_folder(str(folder), base) and any(
        _match_line(line, prefix + name, reads=False, forbids=True) for line in lines for name in names
    )


def exact_pattern(target: TouchedPath) -> str | None:
    """The pattern for this one path; None if no rule can spell it."""
    pattern = escaped(target.shown)
    if not pattern.isprintable() or pattern.endswith(" "):
        return None
    if target.inside and ("/" not in pattern or pattern.startswith(("~", " "))):
        return f"./{pattern}"
    return pattern


def _may_write_own_folder(pattern: str, target: TouchedPath) -> bool:
    """True if the path is not in a guarded folder, or the pattern names that folder."""
    spelled = {part.casefold() for part in pattern.split("/")}
    parts = {part.casefold() for part in target.parts}
    if not (parts & GUARDED_NAMES) <= spelled:
        return False
    return all(
        pattern.startswith(("/", "~")) and folder.name in pattern.split("/")
        for folder in _own_folders_around(target)
    )


def is_guarded(target: TouchedPath) -> bool:
    """True if a file written there changes what git or crushpy do."""
    return any(part.casefold() in GUARDED_NAMES for part in target.parts) or bool(_own_folders_around(target))


def _own_folders_around(target: TouchedPath) -> list[Path]:
    """The folders of crushpy that contain the path; none for a task in its own worktree."""
    containing = [folder for folder in crushpy_folders() if target.real.is_relative_to(folder)]
    is_task_worktree = any(target.root.is_relative_to(folder / WORKTREES) for folder in containing)
    return [] if is_task_worktree and target.inside else containing


def crushpy_folders() -> tuple[Path, ...]:
    """The folders of crushpy's settings and conversations."""
    return _crushpy_folders_for(os.environ.get("CRUSHPY_HOME", ""), os.environ.get("HOME", ""))


@lru_cache(maxsize=8)
def _crushpy_folders_for(crushpy_home: str, home: str) -> tuple[Path, ...]:
    from crushpy.core.paths import Paths

    paths = Paths(crushpy_home)
    return tuple({Path(os.path.realpath(folder)) for folder in (paths.config_dir, paths.data_dir)})


def _matches(pattern: str, path: Path, root: Path, *, reads: bool, forbids: bool) -> bool:
    lines, base = _as_lines(pattern, str(root), forbids=forbids)
    if base != "/" and path == root:
        return pattern in (".", "./", "*", "**", "./*", "./**")
    if not is_in_folder(str(path), base):
        return False
    relative = str(path)[len(base) :].lstrip("/")
    return any(_match_line(line, relative, reads, forbids) for line in lines)


def _as_lines(pattern: str, root: str, *, forbids: bool) -> tuple[set[str], str]:
    """A pattern as lines of a `.gitignore`, and the folder that they are relative to."""
    if pattern.startswith("~"):
        home = os.path.expanduser(pattern.partition("/")[0])  # noqa: PTH111
        pattern = escaped(home) + "".join(pattern.partition("/")[1:])
    elif pattern.startswith("../") or "/../" in pattern:
        pattern = os.path.normpath(f"{escaped(root)}/{pattern}")
    if pattern.startswith("/"):
        # An allow rule keeps the target it had when first used; a deny rule follows links each time.
        real = _resolve_pattern if forbids else _resolve_pattern_once
        return {pattern, real(pattern)} if pattern != "/" else {"/**"}, "/"
    return {pattern[1:] if pattern.startswith("./") else pattern}, root


def _match_line(line: str, path: str, reads: bool, forbids: bool) -> bool:
    if forbids and _IGNORES_CASE:
        line, path = line.casefold(), path.casefold()
    if (literal := _LITERAL_HEAD.match(line)) and "//" not in line:  # pathspec takes long to load
        head = literal[1].rstrip()
        if not f"{path}/".startswith(head):
            return False
        if path.startswith(head) and head.endswith("/") and line == f"/{head}**":
            return True
    spec = compiled(line)
    if spec is None:
        return forbids
    # Reading a folder is reading its contents: `src/**` also matches listing `src`.
    return spec.match_file(path) or spec.match_file(f"{path}/") or (reads and spec.match_file(f"{path}/\x01"))


def _resolve_pattern(pattern: str) -> str:
    """An absolute pattern with links resolved in the part before its first wildcard."""
    prefix_match = re.match(r"(?:/[^/*?\[\]\\!#]+(?=/|$))*", pattern)
    head = prefix_match[0] if prefix_match else ""
    return escaped(os.path.realpath(head)) + pattern[len(head) :] if head else pattern


_resolve_pattern_once = lru_cache(maxsize=256)(_resolve_pattern)


def unreadable_below(
    tool: str, place: Path, real: Path, rules: RuleSet, workspace: Path, *, yolo: bool
) -> Callable[[str], bool] | None:
    """Which files below `real`, which the call named `place`, a search must skip; None if none.

    Rules about the folder itself were applied when the search was decided.
    """
    reading = Access(tool, "path", str(real))
    folder = TouchedPath(str(place), workspace, rules.folders)
    ask_rules = () if yolo else (rule for rule in rules.ask if not forbids(rule, reading, folder))
    applicable = [rule for rule in (*rules.deny, *ask_rules) if applies_to(rule, reading)]
    hidden = secret_places_in(real)
    # An answer for a folder elsewhere was not meant for the passwords in it; a rule is.
    outside = not folder.inside and not any(allows(rule, reading, folder) for rule in rules.allow)
    if not applicable and not hidden and not outside:
        return None

    def is_skipped(path: str) -> bool:
        found = str(real / path)
        if any(is_in_folder(found, secret) for secret in hidden) or (
            outside and holds_variables(Path(path).name)
        ):
            return True
        targets = [TouchedPath(each, workspace, rules.folders) for each in {found, str(place / path)}]
        return any(forbids(rule, reading, target) for rule in applicable for target in targets)

    return is_skipped


def hidden_from_commands() -> tuple[str, ...]:
    """Known locations of secrets, crushpy's own folders, and the folder of the host's sockets."""
    return (*secrets(Path.home()), *map(str, crushpy_folders()), *map(os.path.realpath, ("/run", "/var/run")))


def secret_places_in(folder: Path) -> list[str]:
    """Known locations of secrets below a folder and crushpy's own files; none if the folder is one itself."""
    containing = str(folder)
    places = hidden_from_commands()
    return [place for place in places if is_in_folder(place, containing) and place != containing]


def is_secret(real: Path, workspace: Path) -> bool:
    """Whether a path is a known location of secrets, in a workspace that contains the home folder."""
    home = os.path.realpath(Path.home())
    places = secrets(Path(home)) if is_in_folder(home, str(workspace)) else ()
    return any(is_in_folder(str(real), place) for place in places)
