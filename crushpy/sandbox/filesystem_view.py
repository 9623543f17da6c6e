"""The file system that the commands of one conversation see and may change."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.core.errors import SettingsError
from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder, own_code, own_links
from crushpy.core.paths import private_dir
from crushpy.sandbox.hidden_paths import hidden_around, listening_sockets, secrets, variable_files
from crushpy.sandbox.mounts import Mount, View, enclosing, is_writable, replaces, view
from crushpy.sandbox.protected_files import SYSTEM_FOLDERS, ProtectedFiles
from crushpy.sandbox.repository import git_folders
from crushpy.security.sanitize import clean
from crushpy.util.data_table import read_table
from crushpy.util.posix import lock_file

TMP, VAR_TMP = Path("/tmp"), Path("/var/tmp")  # noqa: S108


def is_temporary(path: Path) -> bool:
    """True for paths in a folder of which each conversation has its own."""
    return is_in_folder(str(path), str(TMP)) or is_in_folder(str(path), str(VAR_TMP))


def _remove_tree(folder: Path) -> None:
    for place in folder.glob("overlays/*/work/work"):  # the kernel makes these inaccessible
        with suppress(OSError):
            place.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


class PrivateTmp:
    """The private /tmp of one conversation, shared by its commands and file tools. Exists as long as this
    process; the next process removes what a killed one left."""

    def __init__(self, root: Path) -> None:
        """`root`: a folder that does not exist yet, beside those of other conversations."""
        private_dir(root.parent)
        self.root = root
        self._lock = os.open(f"{self.root}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lock_file(self._lock)
        self.root.mkdir(mode=0o700)
        self.tmp = self._make("tmp")
        self.var_tmp = self._make("var_tmp")
        self.overlays = self.root / "overlays"
        """Changes to folders that commands may write only privately."""
        self.empty = self.root / "empty"
        self.empty.touch(mode=0o444)

    def _make(self, name: str) -> Path:
        place = self.root / name
        place.mkdir()
        place.chmod(0o1777)
        return place

    def sweep(self) -> None:
        """Removes the folders of processes that have ended."""
        for lock in self.root.parent.glob("*.lock"):
            with suppress(OSError), lock.open("r+b") as file:
                lock_file(file.fileno(), wait=False)
                _remove_tree(lock.with_suffix(""))
                lock.unlink()

    def remove(self) -> None:
        if self._lock < 0:
            return
        _remove_tree(self.root)
        with suppress(OSError):
            Path(f"{self.root}.lock").unlink()
        os.close(self._lock)
        self._lock = -1


class _Cache(Data, frozen=True):
    """A cache of a program in the home folder, and the variable that names another place for it."""

    program: str
    place: str
    variable: str = ""
    private: bool = False
    """Its contents are executed, or shared with other projects by hard links: changes stay in the sandbox."""
    option: str = ""
    """What precedes the place in the variable."""


_CACHES = read_table(__file__, "caches", dict[str, tuple[_Cache, ...]])["caches"]


def _has_or_makes(home: Path, cache: _Cache) -> bool:
    """Whether a cache exists. One inside a tool's own folder is created, as the tool would."""
    place = home / cache.place
    if place.is_dir():
        return True
    is_own = place.parent.is_dir() and place.parent not in (home, home / ".cache")
    if is_own and shutil.which(cache.program):
        with suppress(OSError):
            place.mkdir()
    return place.is_dir()


_VISIBLE_IN_RUN = """
/run/systemd/resolve/resolv.conf /run/systemd/resolve/stub-resolv.conf /run/resolvconf/resolv.conf
/run/NetworkManager/resolv.conf /run/NetworkManager/no-stub-resolv.conf /run/connman/resolv.conf
/run/current-system /run/booted-system /run/opengl-driver
""".split()  # noqa: SIM905
"""What programs need from /run, which otherwise holds the host's sockets."""


class SandboxConfig(Data, frozen=True):
    """The folders of a conversation, and what its commands are granted."""

    workspace: Path
    home: Path
    own_folders: tuple[Path, ...]
    """Crushpy's own folders, which are hidden."""
    outputs: Path
    """Full outputs of this conversation's commands, which are readable."""
    aside: Path
    """Where files are moved that commands were not allowed to create."""
    write: tuple[str, ...] = ()
    """Additional folders that every command may change."""
    opened: tuple[str, ...] = ()
    """Hidden places that the user's settings name, as real paths: only these can be granted."""
    shown: tuple[str, ...] = ()
    """Folders that every command sees even if they would be hidden, as real paths."""
    sockets: tuple[str, ...] = ()
    """Sockets of the host that commands may use."""
    locks_own_code: bool = True
    """Whether crushpy's own code and environment are read-only wherever they are."""
    read_only: bool = False
    """Whether commands may only read the workspace."""
    private_hosts: bool = False
    """Whether an allowed host may resolve to this machine or its network."""


def writable_folders(
    names: Iterable[str], own_folders: Iterable[Path], setting: str = "sandbox.write"
) -> tuple[str, ...]:
    """The folders of a setting or flag. Raises SettingsError for one that would open too much."""
    folders = [str(Path(name).expanduser()) for name in names]
    if not folders:  # there may be no home folder
        return ()
    home, own = os.path.realpath(Path.home()), [os.path.realpath(each) for each in own_folders]
    for folder in folders:
        real = "/" if "\0" in folder else os.path.realpath(folder)
        if is_in_folder(home, real) or any(is_in_folder(real, each) for each in own):
            raise SettingsError(
                f"{setting}: {clean(folder)} is a folder that commands must not change as a whole.",
                "Name folders of projects, not the home folder, one above it, or crushpy's own.",
            )
    return tuple(folders)


def _is_reachable(mount: Mount) -> bool:
    """Whether the path still exists and the sandbox can reach it, which mounting over it requires.

    In a user namespace root cannot enter the folders of other users.
    """
    if not os.path.exists(mount.place):  # noqa: PTH110
        return False
    groups = (os.getgid(), *os.getgroups())
    for folder in Path(mount.place).parents if os.getuid() == 0 else ():
        try:
            status = folder.stat()
        except OSError:
            return False
        enter = stat.S_IXGRP if status.st_gid in groups else stat.S_IXOTH
        if status.st_uid != 0 and not status.st_mode & enter:
            return False
    return True


class FilesystemView:
    """Builds a view for each set of privileges. Slow lookups are cached."""

    def __init__(self, config: SandboxConfig, private: PrivateTmp, protected: ProtectedFiles) -> None:
        self._config = config
        self._private = private
        self._protected = protected
        self._workspace = Path(os.path.realpath(config.workspace))
        self._home = Path(os.path.realpath(config.home))
        self._is_awaited = False

    def prepare(self) -> None:
        """Looks up what is slow, and takes its time as long as no command waits for a view."""
        _ = self._hidden

    def signature(self) -> tuple[object, ...]:
        """Changes whenever views built before are out of date."""
        found = os.stat(self._workspace)  # noqa: PTH116
        return (found.st_dev, found.st_ino, *sorted(self._protected.existing()))

    def view(self, needs: Privileges, extra: tuple[Mount, ...] = ()) -> View:
        """`extra`: additional mounts of these commands, such as a socket of the host."""
        self._is_awaited = True
        mounts = [*filter(_is_reachable, self._hidden), *self._writable_mounts(needs)]
        sockets = (Mount(os.path.realpath(socket), "write") for socket in self._config.sockets)
        mounts += (*extra, *sockets, *self._read_only_mounts(needs))
        places = {mount.place: mount for mount in mounts}
        locks = self._config.locks_own_code
        for place in own_code(str(self._workspace)):
            parent = None if place in places else enclosing(place, places)
            if (locks and is_writable(place, places)) or (parent and replaces(parent)):
                mounts.append(Mount(place, "read", locked=locks))
        links = (link for link in own_links() if locks and is_writable(link, places))
        mounts += (Mount(link, "read", locked=True) for link in links)
        return view(mounts, str(self._private.empty))

    def own_code_in_workspace(self) -> list[str]:
        """The paths of crushpy's own code that are read-only although they are in the workspace."""
        places = [*own_code(str(self._workspace)), *own_links()] if self._config.locks_own_code else []
        return [place for place in places if Path(place).is_relative_to(self._workspace)]

    @cached_property
    def _hidden(self) -> tuple[Mount, ...]:
        own_folders = [os.path.realpath(folder) for folder in self._config.own_folders if folder.exists()]
        variables, _ = variable_files(self._home, self._workspace, lambda: self._is_awaited)
        found = [*secrets(self._home), *own_folders, *variables, "/run"]
        if not os.path.islink("/var/run") and os.path.isdir("/var/run"):  # noqa: PTH112, PTH114
            found.append("/var/run")
        found += listening_sockets(("/run", "/tmp", "/proc", str(self._workspace)))  # noqa: S108
        shown = [Mount(place, "read") for place in _VISIBLE_IN_RUN if os.path.exists(place)]  # noqa: PTH110
        return (*(Mount(place, "hide") for place in found if os.path.exists(place)), *shown)  # noqa: PTH110

    def _writable_mounts(self, needs: Privileges) -> Iterator[Mount]:
        yield Mount(str(TMP), "write", str(self._private.tmp))
        yield Mount(str(VAR_TMP), "write", str(self._private.var_tmp))
        yield Mount(os.path.realpath(private_dir(self._config.outputs)), "read")
        yield from (Mount(place, "read") for place in self._config.shown)
        for cache in self._caches:
            cache_place = os.path.realpath(self._home / cache.place)
            if not self._is_hidden(cache_place):
                yield Mount(cache_place, "private" if cache.private else "write")
        for place in (*self._config.write, *needs.write):
            real = os.path.realpath(Path(place).expanduser())
            opened = (*self._config.write, *self._config.opened)
            if os.path.exists(real) and not hidden_around(real, self._secrets, str(self._workspace), opened):  # noqa: PTH110
                yield Mount(real, "write")
        if self._workspace not in SYSTEM_FOLDERS:
            yield Mount(str(self._workspace), "read" if self._config.read_only else "write")

    @cached_property
    def _caches(self) -> tuple[_Cache, ...]:
        return tuple(cache for cache in _CACHES if _has_or_makes(self._home, cache))

    def private_places(self) -> list[str]:
        """The caches whose changes stay in the sandbox."""
        return [os.path.realpath(self._home / cache.place) for cache in self._caches if cache.private]

    def cache_variables(self, folder: Path, *, overlays: bool) -> dict[str, str]:
        """Variables that place the caches in `folder` that are missing, or that cannot be written.

        A tool would create its own in the home folder, where it would stay, or fail.
        """
        variables: dict[str, str] = {}
        for cache in self._missing_caches:
            variables[cache.variable] = f"{cache.option}{folder}/caches/{cache.program}-{cache.variable}"
        if not overlays and any(cache.program == "uv" for cache in self._caches):
            variables["UV_CACHE_DIR"] = f"{folder}/caches/uv"  # it does not work with a read-only one
        return variables

    @cached_property
    def _missing_caches(self) -> tuple[_Cache, ...]:
        # A program that the project brings counts: commands run it, crushpy does not.
        missing = (cache for cache in _CACHES if cache.variable and cache not in self._caches)
        return tuple(cache for cache in missing if shutil.which(cache.program))

    def _read_only_mounts(self, needs: Privileges) -> Iterator[Mount]:
        """Files that other programs execute are read-only, unless they were granted by name."""
        repository = git_folders(self._workspace)
        folders = [
            folder
            for folder in (repository.folders if repository and needs.git else ())
            if not self._is_hidden(folder) and not any(is_in_folder(place, folder) for place in self._secrets)
        ]
        yield from (Mount(folder, "write") for folder in folders)
        git = set(folders)
        granted = {os.path.realpath(Path(place).expanduser()) for place in needs.write}
        for place in map(os.path.realpath, self._protected.existing()):
            is_granted = place in git or place in granted
            if not is_granted and not self._is_hidden(place) and os.path.exists(place):  # noqa: PTH110
                yield Mount(place, "read")
        if repository and git:
            for place in repository.protected():
                if os.path.realpath(place) not in git and not self._is_hidden(os.path.realpath(place)):
                    yield Mount(os.path.realpath(place), "read")

    @cached_property
    def _secrets(self) -> list[str]:
        """The hidden places that hold something, unlike sockets."""
        hidden = (mount.place for mount in self._hidden if mount.kind == "hide")
        return [place for place in hidden if not Path(place).is_socket()]

    def _is_hidden(self, place: str) -> bool:
        """Whether a path is hidden: that wins over every mount that the user did not name."""
        return bool(hidden_around(place, self._secrets, str(self._workspace)))
