"""The git folders of a workspace, as git finds them, and which of them commands may be granted.

A `.git` file and a `commondir` may come with a project and name any folder, so both are read byte for byte as
git reads them, and what they name counts only if git made it for this working tree.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.security.safe_git import git_output, parse_settings
from crushpy.security.safe_open import open_regular
from crushpy.util.data_table import read_table
from crushpy.util.lazy_pattern import lazy_pattern

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


# --- what decides which programs git runs for the user, outside any sandbox, and which changes are harmless
#
# `git remote add`, `git push -u` and `git config user.name` write `.git/config`, so it must be writable. The
# same file can name programs; so can files it includes, hooks, attributes, and pointers to other git folders.

Role = Literal[
    "entry",
    "pointer",
    "folder",
    "settings",
    "attributes",
    "alternates",
    "todo",
    "program",
    "code",
    "instructions",
]
"""What a protected path is: entries and pointers lead to git folders; `todo` says how a rebase goes on."""
_MAX_HOOK_FOLDERS = 50
_COMMITS_TIMEOUT_S = 5.0
_USER_FILES = ("/etc/gitconfig", "~/.gitconfig", "~/.config/git/config", "$XDG_CONFIG_HOME/git/config")
_NOTABLE = lazy_pattern(r"(?is)remote\..*\.(?:push)?url|branch\..*\.(?:push)?remote|user\..*")
_HARMLESS_KEYS = read_table(__file__, "harmless_git_keys", dict[str, str])
"""Keys, by section, that cannot make git run or trust anything; only the user may change any other."""
_DRIVER = lazy_pattern(r"(filter|diff|merge)\.(.+)\.(?:clean|smudge|process|command|textconv|driver)")
_MACRO = lazy_pattern(rb"^\[attr\](\S+)(.*)", re.MULTILINE)
_ATTRIBUTE = lazy_pattern(rb"[^\s\0]+")
"""For git, a NUL ends the line."""
_ATTRIBUTE_FILES = (
    "/etc/gitattributes",
    "~/.config/git/attributes",
    "$XDG_CONFIG_HOME/git/attributes",
)
_WORD = lazy_pattern(r"[^\s'\"`;|&()<>=!$]+")
_EXECUTES = lazy_pattern(
    rb"^[ \t]*(?:x|exec)[ \t].*$|^(?:[ \t]*strategy[ \t]*=[ \t]*)?[^\s]*/[^\s]*$", re.MULTILINE
)
"""A step that runs a command, or a merge strategy with a slash, which git runs as a path."""

AddPath = Callable[[str, Role], bytes | None]
"""Protects a path if commands may change it; returns its content, None if it is not a readable file."""


class HostGit:
    """Finds everything that decides what git runs in a workspace."""

    def __init__(self, add: AddPath) -> None:
        self._add = add
        self._seen: set[tuple[str, str]] = set()
        self.drivers: set[bytes] = set()
        """The filters, diff and merge drivers that run a program, and macros for them, as attributes name
        them."""
        self.folders: list[str] = []

    def add_entry(self, entry: str) -> None:
        """Adds the `.git` of a working tree, or a bare repository, with all that belongs to it."""
        self._add(entry, "entry")
        is_bare = os.path.basename(entry).casefold() != ".git"  # noqa: PTH119
        target = entry if is_bare else entry_target(entry)
        if target is not None:
            self.add_folder(target, entry if is_bare else os.path.dirname(entry))  # noqa: PTH120

    def add_folder(self, folder: str, top: str) -> None:
        """Adds a git folder; `top`: its working tree, which relative names in settings refer to."""
        if not self._is_new(folder, top):
            return
        self.folders.append(folder)
        self._add(f"{folder}/commondir", "pointer")
        for name in ("rebase-merge/git-rebase-todo", "rebase-merge/strategy", "sequencer/opts"):
            self._add(f"{folder}/{name}", "todo")
        common = common_folder(folder) or folder
        for origin, name, value in user_settings():
            if self._is_new(origin, ""):
                self._add(origin, "settings")
            self._add_named(origin, name, value, top)
        for file in (f"{common}/config", f"{folder}/config.worktree", f"{common}/config.worktree"):
            self._add_settings(file, top)
        self._add_hooks(f"{common}/hooks")
        for file in (*map(_expand_user, _ATTRIBUTE_FILES), f"{common}/info/attributes"):
            self.add_attributes(file)
        self._add(f"{common}/objects/info/alternates", "alternates")
        for module in (*module_folders(common), *(module_folders(folder) if folder != common else ())):
            self.add_folder(module, top)
        for name in list_names(f"{common}/worktrees"):
            self.add_folder(f"{common}/worktrees/{name}", top)

    def _is_new(self, path: str, top: str) -> bool:
        is_new = (path, top) not in self._seen
        self._seen.add((path, top))
        return is_new

    def _add_settings(self, file: str, top: str) -> None:
        if self._is_new(file, top) and (content := self._add(file, "settings")):
            for name, value in parse_settings(content) or ():
                self._add_named(file, name, value, top)

    def _add_named(self, origin: str, name: str, value: str, top: str) -> None:
        """Adds what one setting of the file `origin` names."""
        if name == "include.path" or (name.startswith("includeif.") and name.endswith(".path")):
            self._add_settings(_expand(os.path.dirname(origin), value), top)  # noqa: PTH120
        elif name == "core.hookspath":
            folder = _expand(top, value)
            # husky keeps the hooks that people write one folder above those that git runs.
            self._add_hooks(os.path.dirname(folder) if folder.endswith("/_") else folder)  # noqa: PTH120
        elif name == "core.attributesfile":
            self.add_attributes(_expand(top, value))
        elif not is_harmless(name, value):
            if (driver := _DRIVER.fullmatch(name)) and driver[2] != "lfs":
                self.drivers.add(os.fsencode(f"{driver[1]}={driver[2]}"))
            for word in _WORD.findall(value):
                path = _expand(top, word)
                if ("/" in word or os.path.isfile(path)) and not os.path.isdir(path):  # noqa: PTH112, PTH113
                    self._add(path, "program")

    def add_attributes(self, file: str) -> None:
        """Adds a file of attributes, which may define macros that name drivers."""
        for macro, attributes in _MACRO.findall(self._add(file, "attributes") or b""):
            if self.drivers & set(_ATTRIBUTE.findall(attributes)):
                self.drivers.add(macro)

    def _add_hooks(self, folder: str) -> None:
        """Adds all files of a folder of hooks, except the samples that git creates in every repository.

        Git runs only those at its top, which all count; those may use files in folders below it.
        """
        self._add(folder, "folder")
        queue = [os.path.realpath(folder)]
        for current in queue:  # it grows
            for name in list_names(current):
                path = f"{current}/{name}"
                if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                    queue += [path] if len(queue) < _MAX_HOOK_FOLDERS else []
                elif not name.endswith(".sample"):
                    self._add(path, "program")


def user_settings() -> tuple[tuple[str, str, str], ...]:
    """The user's own settings, each as file, name and value."""
    return _list_user_settings(tuple((file, _signature(file)) for file in map(_expand_user, _USER_FILES)))


@lru_cache(maxsize=4)
def _list_user_settings(_files: tuple[object, ...]) -> tuple[tuple[str, str, str], ...]:
    printed = git_output(Path("/"), "config", "--list", "--show-origin", "--includes", "--null")
    fields = os.fsdecode(printed or b"").split("\0")
    pairs = zip(fields[::2], (field.partition("\n") for field in fields[1::2]), strict=False)
    return tuple(
        (origin.removeprefix("file:"), name, value)
        for origin, (name, _, value) in pairs
        if origin.startswith("file:")
    )


def _signature(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _expand_user(file: str) -> str:
    return os.path.expandvars(os.path.expanduser(file))  # noqa: PTH111


def _expand(folder: str, name: str) -> str:
    """The path of a name in a setting, relative to `folder`."""
    return os.path.normpath(os.path.join(folder, os.path.expanduser(name)))  # noqa: PTH111, PTH118


# --- which changes are harmless ---------------------------------------------------------------------------


def changed_settings(before: bytes, after: bytes, file: str, workspace: str) -> Iterator[str]:
    """The names of settings that only the user may change, and that differ."""
    settings, previous = parse_settings(after), parse_settings(before)
    if settings is None:
        yield "something that git cannot read"
        return
    folder = os.path.dirname(file)  # noqa: PTH120
    for name, value in sorted(set(settings) ^ set(previous or ())):
        tree = os.path.realpath(os.path.join(folder, value))  # noqa: PTH118
        # What git writes for a submodule of this workspace.
        is_module = name == "core.worktree" and "/modules/" in folder and tree.startswith(f"{workspace}/")
        if not is_harmless(name, value) and not is_module:
            yield name


def notable_settings(before: bytes | None, after: bytes | None) -> list[str]:
    """The names of changed settings that say where commits come from, go to, and whose they are; none if a
    repository is new or gone."""
    if before is None or after is None:
        return []
    changed = set(parse_settings(after) or ()) ^ set(parse_settings(before) or ())
    return sorted({name for name, _ in changed if _NOTABLE.fullmatch(name)})


def is_harmless(name: str, value: str) -> bool:
    """Whether a setting cannot make git run or trust anything."""
    section, _, rest = name.partition(".")
    key = rest.rpartition(".")[2]
    keys = _HARMLESS_KEYS.get(section, "")
    if section in ("diff", "merge") and "." in rest:
        return False  # a driver is a program
    if key.endswith("url") and (value.startswith("-") or "::" in value):
        return False  # a remote helper is a program
    return keys == "*" or key in keys.split()


def runs_no_program(folder: Path) -> bool:
    """True if no setting of the repository around `folder` makes git's reading commands run a program.

    A setting that is not known to be harmless counts as a program. The user's own settings are not checked.
    """
    repository = next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if repository is None:
        return True
    hook = repository / "hooks" / "post-index-change"
    risky = (repository / "modules", repository / "config.worktree", repository.parent / ".gitmodules", hook)
    if any(os.path.lexists(each) for each in risky):  # submodules have their own settings
        return False
    settings = parse_settings((read_pointer(f"{repository}/config") or b"[") + b"\n")  # as its reader later
    return settings is not None and all(is_harmless(*each) for each in settings)


def new_drivers(before: bytes, after: bytes, drivers: Collection[bytes]) -> list[str]:
    """The drivers that run a program and are newly named in a file of attributes."""
    named = set(_ATTRIBUTE.findall(after)) - set(_ATTRIBUTE.findall(before))
    return sorted(os.fsdecode(name) for name in named & set(drivers))


class Commits(NamedTuple):
    """What a git folder has committed and staged."""

    refs: frozenset[str] = frozenset()
    """Each as object and name."""
    staged: frozenset[bytes] = frozenset()
    """The lines of attribute files that the index adds to the last commit."""


def read_commits(folder: str) -> Commits:
    """What is committed and staged. git runs only if a file of the git folder changed since the last call."""
    places = {folder, common_folder(folder) or folder}
    files = {f"{place}/{name}" for place in places for name in list_names(place)}
    walks = (os.walk(f"{place}/{name}") for place in places for name in ("refs", "reftable"))
    files |= {f"{current}/{name}" for walk in walks for current, _, names in walk for name in names}
    return _read_commits(folder, tuple((file, _signature(file)) for file in sorted(files)))


@lru_cache(maxsize=64)
def _read_commits(folder: str, _files: tuple[object, ...]) -> Commits:
    refs = git_output(Path("/"), f"--git-dir={folder}", "show-ref", "--head") or b""
    staged = _diff_attributes(folder, "diff", "--cached")
    return Commits(frozenset(os.fsdecode(refs).splitlines()), frozenset(staged or ()))


def _diff_attributes(folder: str, *words: str, text: bytes = b"") -> list[bytes] | None:
    """The lines that a diff of git adds to attribute files; None if it takes too long."""
    options = ("--patch", "--unified=0", "--text", "--no-ext-diff", "--no-textconv", "--no-renames")
    files = ("--", ":(top,glob)**/.gitattributes")
    command = (f"--git-dir={folder}", *words, *options, *files)
    printed = git_output(Path("/"), *command, text=text, timeout_s=_COMMITS_TIMEOUT_S)
    return None if printed is None else re.findall(rb"^\+(.*)", printed, re.MULTILINE)


def added_attributes(folder: str, before: Commits, after: Commits) -> bytes | None:
    """The lines of attribute files committed or staged since `before`; None if git cannot tell."""
    lines: list[bytes] | None = []
    if new := after.refs - before.refs:
        known = "".join(f"^{ref.partition(' ')[0]}\n" for ref in before.refs)
        options = ("--all", "--full-history", "-c", "--root", "--format=", "--stdin")
        lines = _diff_attributes(folder, "log", *options, text=known.encode())
    is_replaced = any(" refs/replace/" in ref for ref in new)
    return None if lines is None or is_replaced else b"\n".join((*lines, *after.staged - before.staged))


def new_executions(before: bytes, after: bytes) -> list[str]:
    """The commands that the rest of a rebase or a cherry-pick would run."""
    return [os.fsdecode(line) for line in set(_EXECUTES.findall(after)) - set(_EXECUTES.findall(before))]


def new_alternates(before: bytes, after: bytes, file: str, workspace: str) -> list[str]:
    """The folders outside the workspace that git would newly take objects from."""
    objects = os.path.dirname(os.path.dirname(file))  # noqa: PTH120
    lines = set(after.splitlines()) - set(before.splitlines())
    named = [os.path.realpath(os.path.join(objects, os.fsdecode(line))) for line in lines if line]  # noqa: PTH118
    return [path for path in named if not path.startswith(f"{workspace}/")]
