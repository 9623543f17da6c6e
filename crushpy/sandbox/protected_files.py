"""Protects files of a workspace that other programs execute or trust: what git runs, `.envrc`, editor tasks.

Existing ones are read-only for commands if the sandbox can do that. The others are compared after each
command: what would make a program run something new is put back, or moved out of the project, and reported.
"""

import errno
import os
import shutil
import stat
import time
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, get_args

from crushpy.core.ids import new_id
from crushpy.core.messages import Data, counted
from crushpy.core.own_code import is_in_folder, own_code, startup_modules
from crushpy.core.paths import CODE_FILES, CODE_FOLDERS, GUARDED_NAMES, private_dir
from crushpy.sandbox import repository as host_git
from crushpy.security.safe_open import open_folder

_IN_WORKSPACE = (".git", ".git/hooks", ".envrc", ".crushpy", ".vscode/tasks.json")
"""Read-only for commands if the sandbox can do that."""
_IN_HOME = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
.zlogout .inputrc .xinitrc .xprofile .xsessionrc .pam_environment .gitconfig .config/git .config/fish
.config/autostart .config/systemd .config/environment.d .local/bin .local/share/applications .vimrc .vim
.config/nvim .emacs .emacs.d .tmux.conf .gdbinit .pythonrc.py .crontab bin Library/LaunchAgents
""".split()  # noqa: SIM905
INSTRUCTION_FILES = ("AGENTS.md", "CRUSH.md", "CLAUDE.md")
_TEXT_IN_CODE_FOLDERS = ("extensions.json", ".md", ".code-snippets")
"""What editors and agents read there without running it."""
_DEPENDENCIES = frozenset(("node_modules", "site-packages", "vendor", ".venv", "venv", ".tox", "target"))
"""Only git is looked for in what package managers install: no one opens it as a project."""
_BARE, _POINTED = {"HEAD", "objects", "refs"}, {"HEAD", "commondir"}
_CLOCK_STEP_NS = 50_000_000
_MAX_BYTES = 1_000_000
_MAX_FOLDERS = 20_000
_WATCHED_EVENTS = 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000000 | 0x2000000
"""Attributes changed; entries or the folder itself created, moved or deleted. Links are not followed."""
SYSTEM_FOLDERS = frozenset(
    map(Path, ("/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var", "/opt", "/home"))
)
"""Never writable as a workspace: they hold the system, not a project."""
IN_BACKGROUND = "while commands ran in the background"
_MAX_PASSES = 20
_MAX_MESSAGES = 5
_EXECUTABLE = 0o111
_STAGES: tuple[tuple[host_git.Role, ...], ...] = (("entry",), ("pointer", "folder"), ("settings",))
"""What leads to other files is put back first: those then no longer count."""


class PathState(NamedTuple):
    """A protected path at one time."""

    kind: str
    """`missing`, `file`, `link`, `folder` or `other`."""
    data: bytes | None = None
    """The content of a file, or the target of a link; None if it cannot be read completely."""
    mode: int = 0
    mark: tuple[int, ...] = ()
    """Identifies a folder, or what cannot be read."""


_MISSING = PathState("missing")


def _read_state(path: str) -> PathState:
    try:
        found = os.lstat(path)
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            return PathState("link", os.fsencode(os.readlink(path)))  # noqa: PTH115
        if stat.S_ISDIR(found.st_mode):
            return PathState("folder", None, mode, (found.st_dev, found.st_ino))
        mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if not stat.S_ISREG(found.st_mode):
            return PathState("other", None, mode, mark)
        if found.st_size > _MAX_BYTES:
            return PathState("file", None, mode, mark)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return _MISSING if missing else PathState("other", None, 0, (error.errno or 0,))
    with os.fdopen(handle, "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    return PathState("file", data, mode) if len(data) <= _MAX_BYTES else PathState("file", None, mode, mark)


class _FolderWatch:
    """Tells whether anything in a set of folders changed: inotify, if the system has it."""

    def __init__(self) -> None:
        import ctypes

        self._library = ctypes.CDLL(None)
        has_inotify = hasattr(self._library, "inotify_init1")
        self._handle = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if has_inotify else -1
        if self._handle >= 0:
            weakref.finalize(self, os.close, self._handle)

    def add(self, folder: str) -> bool:
        """Adds a folder; False if it cannot be watched."""
        if self._handle < 0:
            return False
        return self._library.inotify_add_watch(self._handle, os.fsencode(folder), _WATCHED_EVENTS) >= 0

    def has_changes(self) -> bool:
        """Whether anything changed since the last call."""
        try:
            return bool(os.read(self._handle, 1 << 20))  # more events than that are found by the next call
        except BlockingIOError:
            return False


class _Folder(NamedTuple):
    is_watched: bool
    changed_at: int
    inode: int
    folders: tuple[str, ...]
    marked: tuple[str, ...]
    """The paths of interest in it."""


class _FolderIndex:
    """Finds repositories and other files of interest in a workspace. Only changed folders are listed again.

    A folder's status change time, unlike its modification time, cannot be set by a command.
    """

    def __init__(self, root: str, own_folders: Collection[str]) -> None:
        """`own_folders`: crushpy's own, which it changes itself while commands run."""
        self._root, self._own_folders = root, own_folders
        self._known: dict[str, _Folder] = {}
        self._found: list[str] | None = None
        """What the last search found; None if its folders are not watched."""
        self.is_complete = True
        """False if there are more folders than are searched."""

    @cached_property
    def _watch(self) -> _FolderWatch:
        return _FolderWatch()

    def find(self) -> list[str]:
        if self._found is not None and not self._watch.has_changes():
            return self._found
        self._found = None
        known, current = self._known, dict[str, _Folder]()
        now, lstat = time.time_ns(), os.lstat
        found: list[str] = []
        queue = [self._root] if Path(self._root) not in SYSTEM_FOLDERS else []
        is_watched = bool(queue)
        for path in queue:  # it grows: outer folders come first
            try:
                status = lstat(path)
            except OSError:
                continue
            folder = known.get(path)
            if folder is None or folder.changed_at != status.st_ctime_ns or folder.inode != status.st_ino:
                is_old = now - status.st_ctime_ns > _CLOCK_STEP_NS
                folder = self._list(path, status.st_ctime_ns if is_old else -1, status.st_ino)
            current[path] = folder
            is_watched = is_watched and folder.is_watched
            if folder.marked:
                found += folder.marked
            if folder.folders:
                queue += folder.folders[: _MAX_FOLDERS - len(queue)]
        self.is_complete = len(queue) < _MAX_FOLDERS
        self._known = current
        self._found = found if is_watched else None
        return found

    def _list(self, path: str, changed_at: int, inode: int) -> _Folder:
        is_watched = self._watch.add(path)
        folders: list[str] = []
        marked: list[str] = []
        names: set[str] = set()
        parts = path[len(self._root) :].split("/")
        is_code = not CODE_FOLDERS.isdisjoint(parts)
        is_dependency = not _DEPENDENCIES.isdisjoint(parts)
        prefix = path.rstrip("/")
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                names.add(name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if name.casefold() == ".git" or name == ".gitattributes":
                    marked.append(f"{prefix}/{name}")
                elif is_folder:
                    folders += [f"{prefix}/{name}"] if f"{prefix}/{name}" not in self._own_folders else []
                elif not is_dependency and (
                    is_code
                    or name.startswith(".envrc")  # it may load `.envrc.local`
                    or name in CODE_FILES | CODE_FOLDERS
                    or name in INSTRUCTION_FILES
                ):
                    marked.append(f"{prefix}/{name}")
        if names >= _BARE or names >= _POINTED:
            marked.append(prefix)
        return _Folder(is_watched, changed_at, inode, tuple(folders), tuple(marked))


class _Snapshot:
    """The protected paths of a workspace at one time."""

    def __init__(self, workspace: str, writable: tuple[str, ...]) -> None:
        """`writable`: the folders in which commands may change something."""
        self.workspace = workspace
        self._writable = writable
        self._parents: dict[str, str] = {}
        self.roles: dict[str, host_git.Role] = {}
        self.states: dict[str, PathState] = {}
        self.drivers: Collection[bytes] = ()
        self.commits: dict[str, host_git.Commits] = {}
        """By git folder, if there are drivers."""

    def add(self, path: str, role: host_git.Role) -> bytes | None:
        """Adds a path if commands may change it, and what it links to; returns the content of the file."""
        for _ in range(10):
            parent, _, name = path.rpartition("/")
            path = f"{self._real_folder(parent)}/{name}"
            state = self.states.get(path) or _read_state(path)
            if path.startswith(self._writable):
                self.states[path] = state
                self.roles.setdefault(path, role)
            if state.kind != "link":
                return state.data
            path = os.path.join(os.path.dirname(path), os.fsdecode(state.data or b""))  # noqa: PTH118, PTH120
            path = os.path.normpath(path)
        return None

    def _real_folder(self, folder: str) -> str:
        """The real path of a folder; empty for the root. Each folder above it is looked at once."""
        if folder and folder not in self._parents:
            parent, _, name = folder.rpartition("/")
            real = f"{self._real_folder(parent)}/{name}"
            is_plain = name not in ("", ".", "..") and not os.path.islink(real)  # noqa: PTH114
            self._parents[folder] = real if is_plain else os.path.realpath(real).rstrip("/")
        return self._parents.get(folder, "")

    def is_writable(self, path: str) -> bool:
        return f"{path}/".startswith(self._writable)


class _Change(NamedTuple):
    """A change that must be put back, or reported."""

    path: str
    role: host_git.Role
    before: PathState
    why: str
    can_restore: bool = True

    @property
    def how(self) -> str:
        return "created" if self.before.kind == "missing" else "changed"


class GuardRecord(Data, frozen=True):
    """What is guarded while a command runs. Paths need not be valid Unicode."""

    workspace: bytes
    folders: tuple[bytes, ...]
    """The workspace, and others that commands were allowed to change."""
    paths: tuple[tuple[bytes, host_git.Role, PathState], ...]
    drivers: tuple[bytes, ...]
    commits: dict[bytes, host_git.Commits]
    git: bool
    """The command may change the repository itself."""
    granted: tuple[bytes, ...]


class ProtectedFiles:
    """The protected paths of one workspace, and how they were when a command began."""

    def __init__(self, workspace: Path, home: Path, aside: Path, own_folders: Iterable[Path] = ()) -> None:
        """`aside`: where files are moved that commands were not allowed to create. `own_folders`: crushpy's
        own, wherever they are: they are hidden from commands, and crushpy itself changes them."""
        self._workspace = os.path.realpath(workspace)
        self._aside = aside
        self._read_only = [f"{self._workspace}/{name}" for name in _IN_WORKSPACE]
        self._in_home: list[str] = []
        real_home = os.path.realpath(home)
        if f"{real_home}/".startswith(f"{self._workspace.rstrip('/')}/"):
            self._in_home = [f"{real_home}/{name}" for name in _IN_HOME]
        self._own_folders = frozenset(map(os.path.realpath, own_folders))
        self._indexes = {self._workspace: _FolderIndex(self._workspace, self._own_folders)}
        """By folder: the workspace, and others that commands were allowed to change."""
        self._before: _Snapshot | None = None
        self._nested: list[str] | None = None
        """The repositories inside the workspace when the conversation began."""
        self._reported: set[str] = set()
        """The folders that were reported as too large."""

    @cached_property
    def _startup_modules(self) -> list[str]:
        """What crushpy itself would import at its next start, from folders that are not its own."""
        own = own_code(self._workspace)
        return [path for path in startup_modules() if not any(is_in_folder(path, each) for each in own)]

    def existing(self) -> Iterator[Path]:
        """The protected paths that exist and can be read-only, including repositories in the workspace."""
        if self._nested is None:
            found = self._indexes[self._workspace].find()
            git = (path for path in found if path.casefold().endswith("/.git"))
            self._nested = [path for path in git if path != self._read_only[0]]
        places = (*self._read_only, *self._in_home, *self._nested)
        return (Path(place) for place in places if os.path.lexists(place))

    def begin(
        self, *, busy: bool = False, locked: Iterable[str] = (), write: Iterable[str] = ()
    ) -> list[str]:
        """Called before a command: what is there now was not made by it.

        `busy`: other commands have been running since the last check. Returns messages about what they may
        have changed; not below `locked`, which was read-only for them. `write`: folders outside the workspace
        that the command may change.
        """
        messages: list[str] = []
        if busy and self._before is not None:
            messages = self.check(git=True, granted=tuple(locked), reported=("code",), how=IN_BACKGROUND)
        folders = {os.path.realpath(os.path.expanduser(folder)) for folder in write}  # noqa: PTH111
        new = [each for each in folders if not any(is_in_folder(each, known) for known in self._indexes)]
        self._indexes |= {folder: _FolderIndex(folder, self._own_folders) for folder in new}
        if new or not busy or self._before is None:
            self._before = self._look()
        unsearched = [root for root, index in self._indexes.items() if not index.is_complete]
        for root in (root for root in unsearched if root not in self._reported):
            self._reported.add(root)
            messages.append(
                f"only the first {_MAX_FOLDERS:,} folders of {root} are compared:"
                " look for new repositories in the others before you use git there"
            )
        return messages

    def report(self, how: str = "by the command") -> list[str]:
        """Messages about what a command without a sandbox changed; nothing is put back."""
        return self.check(git=True, reported=get_args(host_git.Role), how=how)

    def record(self, *, git: bool, granted: Iterable[str]) -> GuardRecord | None:
        """What a command may not change, for `recover`; None before the first command."""
        if (before := self._before) is None:
            return None
        return GuardRecord(
            os.fsencode(self._workspace),
            tuple(map(os.fsencode, self._indexes)),
            tuple((os.fsencode(path), before.roles[path], state) for path, state in before.states.items()),
            tuple(before.drivers),
            {os.fsencode(folder): commits for folder, commits in before.commits.items()},
            git,
            tuple(map(os.fsencode, granted)),
        )

    def recover(self, record: GuardRecord, how: str) -> list[str]:
        """Puts aside what has changed since a record was made; returns messages about it."""
        for folder in map(os.fsdecode, record.folders):
            self._indexes.setdefault(folder, _FolderIndex(folder, self._own_folders))
        self._before = before = self._look()
        before.roles = {os.fsdecode(path): role for path, role, _ in record.paths}
        before.states = {os.fsdecode(path): state for path, _, state in record.paths}
        before.drivers = record.drivers
        before.commits = {os.fsdecode(folder): commits for folder, commits in record.commits.items()}
        return self.check(git=record.git, granted=tuple(map(os.fsdecode, record.granted)), how=how)

    # --- looking ------------------------------------------------------------------------------------------

    def _look(self) -> _Snapshot:
        repository = host_git.git_folders(Path(self._workspace))
        folders = repository.folders if repository else ()
        writable = tuple(f"{each.rstrip('/')}/" for each in (*self._indexes, *folders))
        snapshot = _Snapshot(self._workspace, writable)
        git = host_git.HostGit(snapshot.add)
        attributes: list[str] = []
        for path in (path for index in self._indexes.values() for path in index.find()):
            name = path.rpartition("/")[2]
            if name in INSTRUCTION_FILES:
                snapshot.add(path, "instructions")
            elif name == ".gitattributes":
                attributes.append(path)
            elif name.casefold() == ".git" or os.path.isdir(path):  # noqa: PTH112
                git.add_entry(path)
            elif not name.endswith(_TEXT_IN_CODE_FOLDERS):
                snapshot.add(path, "code")
        for folder in folders:
            git.add_folder(folder, os.path.dirname(repository.entry if repository else folder))  # noqa: PTH120
        for path in (*self._in_home, *self._startup_modules):
            snapshot.add(path, "code")
            for name in host_git.list_names(path):
                snapshot.add(f"{path}/{name}", "code")
        if git.drivers:
            for path in attributes:
                git.add_attributes(path)
            snapshot.commits = {folder: host_git.read_commits(folder) for folder in git.folders}
        snapshot.drivers = git.drivers
        return snapshot

    def _changes(self, now: _Snapshot, *, git: bool) -> Iterator[_Change]:
        before = self._before or now
        for path in before.roles.keys() - now.roles.keys():  # no setting names them any longer
            now.add(path, before.roles[path])
        moved = dict(_moved_entries(before, now))
        for path in {**before.roles, **now.roles}:
            role = now.roles.get(path) or before.roles[path]
            old, new = before.states.get(path, _MISSING), now.states.get(path, _MISSING)
            for source, target in moved.items():
                tree = os.path.dirname(source)  # noqa: PTH120
                is_gone = not os.path.isdir(tree) or os.path.realpath(tree) != tree  # noqa: PTH112
                if path.startswith(f"{target}/") and is_gone:
                    old = before.states.get(source + path[len(target) :], old)  # its working tree was renamed
            made_executable = role == "program" and new.mode & ~old.mode & _EXECUTABLE
            if (old.kind, old.data, old.mark) == (new.kind, new.data, new.mark) and not made_executable:
                continue
            if why := _risk(path, role, old, new, now, git=git):
                yield _Change(path, role, old, why)
            elif role == "settings" and (names := host_git.notable_settings(old.data, new.data)):
                yield _Change(path, role, old, f"it sets {', '.join(names[:5])}", can_restore=False)
        yield from self._committed_changes(before, now)

    def _committed_changes(self, before: _Snapshot, now: _Snapshot) -> Iterator[_Change]:
        """Attribute files in new commits and in the index, which a checkout would use."""
        in_tree = b"\n".join(
            state.data or b"" for path, state in before.states.items() if before.roles[path] == "attributes"
        )
        for folder, commits in now.commits.items():
            known = before.commits.get(folder, host_git.Commits())
            added = host_git.added_attributes(folder, known, commits) if commits != known else b""
            names = ["something that could not be compared"]
            if added is not None:
                names = host_git.new_drivers(in_tree, added, now.drivers)
            if names:
                why = (
                    f"{', '.join(names[:5])} in a committed or staged .gitattributes makes git run a program"
                )
                yield _Change(f"{folder}/objects", "attributes", PathState("folder"), why, can_restore=False)

    # --- putting back -------------------------------------------------------------------------------------

    def check(
        self,
        *,
        git: bool = False,
        granted: Collection[str] = (),
        reported: Collection[str] = (),
        how: str = "by the command",
    ) -> list[str]:
        """Called after a command: puts back what it was not allowed to change; returns messages about it.

        `git`: it may change the repository itself; `granted`: other paths that it may change; `reported`:
        roles of paths that are not put back.
        """
        messages: dict[str, str] = {}
        now = self._look()
        for _ in range(_MAX_PASSES):
            changes = [
                change
                for change in self._changes(now, git=git)
                if change.path not in messages and not _is_granted(change.path, granted)
            ]
            if not changes:
                break
            first = min(map(_stage, changes))
            for change in changes:
                if change.role in ("instructions", *reported) or not change.can_restore:
                    messages[change.path] = f"{change.path} was {change.how} {how}: {change.why}"
                elif _stage(change) == first:
                    messages[change.path] = self._restore(change)
            now = self._look()
        self._before = now
        lines = list(messages.values())
        more = len(lines) - _MAX_MESSAGES
        return [*lines[:_MAX_MESSAGES], f"and {counted(more, 'more file')}"] if more > 1 else lines

    def _restore(self, change: _Change) -> str:
        name = os.path.basename(change.path)  # noqa: PTH119
        before = change.before
        copy = None
        try:
            with open_folder(Path(change.path).parent) as folder:
                if folder.exists(name):
                    copy = private_dir(self._aside / new_id()) / name
                    shutil.move(f"{folder.as_cwd()}/{name}", copy)
                if before.kind == "file" and before.data is not None:
                    handle = folder.write_new(name, before.data, before.mode)
                    os.fchmod(handle, before.mode)
                    os.close(handle)
                elif before.kind == "link" and before.data is not None:
                    os.symlink(before.data, os.fsencode(name), dir_fd=folder.handle)
                elif before.kind == "folder" and change.role == "folder":
                    folder.make_folder(name)
        except OSError as error:
            reason = error.strerror or error
            return f"{change.path} was {change.how} and could not be put back ({reason}): {change.why}"
        if before.kind == "missing":
            return f"{change.path} was {change.how} and was moved to {copy}: {change.why}"
        saved = f". The new version was saved as {copy}" if copy else ""
        return f"{change.path} was restored: {change.why}{saved}"


def _stage(change: _Change) -> int:
    return next((index for index, roles in enumerate(_STAGES) if change.role in roles), len(_STAGES))


def _is_granted(path: str, granted: Collection[str]) -> bool:
    """Whether a path was granted by name, not only with the project that contains it."""
    return any(
        path == each or (is_in_folder(path, each) and not GUARDED_NAMES.isdisjoint(each.split("/")))
        for each in granted
    )


def _moved_entries(before: _Snapshot, now: _Snapshot) -> Iterator[tuple[str, str]]:
    """The git folders that have another path now, each with that path."""
    new = {
        state.mark: path
        for path, state in now.states.items()
        if state.kind == "folder" and now.roles[path] == "entry" and path not in before.states
    }
    for path, state in before.states.items():
        if state.mark in new and state.kind == "folder" and now.states.get(path, _MISSING).mark != state.mark:
            yield path, new[state.mark]


def _entry_risk(path: str, old: PathState, new: PathState, now: _Snapshot, *, git: bool) -> str:
    """Why a new or changed `.git` must be put back; empty if it need not be."""
    if new.kind == "missing":
        return ""
    if path == f"{now.workspace}/.git" and old.kind == "missing" and not git:
        return "git would run what it names"
    if new.kind == "folder" and (git or old.kind in ("missing", "folder")):
        return ""
    if old.kind != "missing" and not git:
        return "git would use another repository"
    target = host_git.entry_target(path)
    return "" if target and now.is_writable(target) else "it leads out of the workspace"


def _risk(
    path: str, role: host_git.Role, old: PathState, new: PathState, now: _Snapshot, *, git: bool
) -> str:
    """Why a new or changed file must be put back, or reported; empty if it need not be."""
    if role == "entry":
        return _entry_risk(path, old, new, now, git=git)
    before, after = (state.data or b"" if state.kind == "file" else b"" for state in (old, new))
    if new.kind == "missing":
        is_lost = role == "settings" and os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120
        return (
            "only the user may remove these settings"
            if is_lost and any(host_git.changed_settings(before, b"", path, now.workspace))
            else ""
        )
    match role:
        case "instructions":
            return "agents follow it"
        case "program" | "code":
            return "other programs execute it"
        case "folder":
            is_folder = new.kind == "folder" and old.kind in ("folder", "missing")
            return "" if is_folder else "git would run hooks from elsewhere"
        case _ if new.kind != "file" or new.data is None:
            return "it is not a file that can be read completely, and git may run what it names"
        case "settings":
            names = list(host_git.changed_settings(before, after, path, now.workspace))
            verb = "may make git run programs, so only the user may set it"
            return f"{', '.join(names[:5])} {verb}" if names else ""
        case "pointer":
            repository = os.path.dirname(os.path.dirname(os.path.dirname(path)))  # noqa: PTH120
            is_worktree = path == f"{repository}/worktrees/{path.split('/')[-2]}/commondir"
            is_known = is_worktree and host_git.common_folder(os.path.dirname(path)) == repository  # noqa: PTH120
            return "" if is_known else "git would take its settings from elsewhere"
        case "attributes":
            drivers = host_git.new_drivers(before, after, now.drivers)
            return f"{', '.join(drivers[:5])} makes git run a program" if drivers else ""
        case "alternates":
            folders = host_git.new_alternates(before, after, path, now.workspace)
            return f"git would trust the objects in {', '.join(folders[:5])}" if folders else ""
        case "todo":
            return "continuing it would run a command" if host_git.new_executions(before, after) else ""
