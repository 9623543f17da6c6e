"""What the commands of one conversation see and may change, given what one of them needs."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.core.messages import Data
from crushpy.sandbox.caches import package_caches
from crushpy.sandbox.hidden_paths import listening_sockets, secrets, variable_files
from crushpy.sandbox.mounts import Mount, View, enclosing, replaces, view
from crushpy.sandbox.private_tmp import TMP, VAR_TMP, PrivateTmp
from crushpy.sandbox.protected_files import ProtectedFiles
from crushpy.sandbox.repository import git_folders
from crushpy.sandbox.supervisor_handle import needed_folders

_RUN_SHOWN = """
/run/systemd/resolve/resolv.conf /run/systemd/resolve/stub-resolv.conf /run/resolvconf/resolv.conf
/run/NetworkManager/resolv.conf /run/NetworkManager/no-stub-resolv.conf /run/connman/resolv.conf
/run/current-system /run/booted-system /run/opengl-driver
""".split()  # noqa: SIM905
"""What programs need of /run, where the host's sockets are."""
_SYSTEM_FOLDERS = frozenset(
    map(Path, ("/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var", "/opt", "/home"))
)
"""Never writable as a workspace: what they hold is the machine, not a project."""


class SandboxConfig(Data, frozen=True):
    """Where a conversation works, and what is its own."""

    workspace: Path
    home: Path
    own_folders: tuple[Path, ...]
    """Where crushpy keeps things: hidden."""
    outputs: Path
    """Whole outputs of this conversation's commands: readable."""
    aside: Path
    """Where goes what commands made and may not have made."""
    write: tuple[str, ...] = ()
    """Further folders that every command may change."""
    shown: tuple[str, ...] = ()
    """Folders that every command sees, wherever they are: real paths."""
    sockets: tuple[str, ...] = ()
    """Sockets of the host that commands were given, by name."""
    private_hosts: bool = False
    """Whether a host that was allowed may be one of this machine or network."""


def _is_reached(mount: Mount) -> bool:
    """Whether it is still there and the sandbox can get to it: on what it cannot it could not mount anything.

    In a namespace root is not above the folders of others.
    """
    if not os.path.exists(mount.place):  # noqa: PTH110
        return False
    return os.getuid() != 0 or all(map(_is_passed_without_privilege, Path(mount.place).parents))


def _is_passed_without_privilege(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    if status.st_uid == 0:
        return True
    is_of_group = status.st_gid in (os.getgid(), *os.getgroups())
    return bool(status.st_mode & (stat.S_IXGRP if is_of_group else stat.S_IXOTH))


class FilesystemView:
    """Makes a view for each set of needs. What takes time is looked for once."""

    def __init__(
        self,
        grounds: SandboxConfig,
        private: PrivateTmp,
        guards: ProtectedFiles,
        git_settings: Callable[[], Iterable[Path]],
    ) -> None:
        """`git_settings`: what git may write where it may change the repository; it is looked at after."""
        self._git_settings = git_settings
        self._grounds = grounds
        self._private = private
        self._guards = guards
        self._workspace = Path(os.path.realpath(grounds.workspace))
        self._home = Path(os.path.realpath(grounds.home))

    def signature(self) -> tuple[object, ...]:
        """Changes where a view made before does not fit any more."""
        found = os.stat(self._workspace)  # noqa: PTH116
        return (found.st_dev, found.st_ino, *sorted(self._guards.existing()))

    def view(self, needs: Privileges, given: tuple[Mount, ...] = ()) -> View:
        """`given`: what these commands see beyond that, such as a socket of the host."""
        mounts = [*filter(_is_reached, self._hidden), *self._changeable(needs)]
        given_sockets = (Mount(os.path.realpath(socket), "write") for socket in self._grounds.sockets)
        mounts += (*given, *given_sockets, *self._kept(needs))
        places = {mount.place: mount for mount in mounts}
        for folder in map(os.path.realpath, needed_folders()):
            around = enclosing(folder, places)
            if folder not in places and around and replaces(around):
                mounts.append(Mount(folder, "read"))
        return view(mounts, str(self._private.empty))

    @cached_property
    def _hidden(self) -> tuple[Mount, ...]:
        own = [os.path.realpath(folder) for folder in self._grounds.own_folders if folder.exists()]
        found = [*secrets(self._home), *own, *variable_files(self._home, self._workspace), "/run"]
        if not os.path.islink("/var/run") and os.path.isdir("/var/run"):  # noqa: PTH112, PTH114
            found.append("/var/run")
        found += listening_sockets(("/run", "/tmp", "/proc", str(self._workspace)))  # noqa: S108
        shown = [Mount(place, "read") for place in _RUN_SHOWN if os.path.exists(place)]  # noqa: PTH110
        return (*(Mount(place, "hide") for place in found if os.path.exists(place)), *shown)  # noqa: PTH110

    def _changeable(self, needs: Privileges) -> Iterator[Mount]:
        yield Mount(str(TMP), "write", str(self._private.tmp))
        yield Mount(str(VAR_TMP), "write", str(self._private.var_tmp))
        yield Mount(os.path.realpath(self._grounds.outputs), "read")
        yield from (Mount(place, "read") for place in self._grounds.shown)
        named = (Path(place).expanduser() for place in (*self._grounds.write, *needs.write))
        for place in (*self._caches, *named):
            if place.exists():
                yield Mount(os.path.realpath(place), "write")
        if self._workspace not in _SYSTEM_FOLDERS:
            yield Mount(str(self._workspace), "write")

    @cached_property
    def _caches(self) -> tuple[Path, ...]:
        return tuple(package_caches(self._home))

    def _kept(self, needs: Privileges) -> Iterator[Mount]:
        """What runs by itself stays as it is, unless it was named itself."""
        repository = git_folders(self._workspace)
        folders = repository.folders if repository and needs.git else ()
        yield from (Mount(folder, "write") for folder in folders)
        git = {*folders, *map(str, self._git_settings())} if folders else set[str]()
        asked = {os.path.realpath(Path(place).expanduser()) for place in needs.write}
        asked |= {mount.place for mount in self._hidden}
        for place in map(os.path.realpath, self._guards.existing()):
            if place not in git and place not in asked and os.path.exists(place):  # noqa: PTH110
                yield Mount(place, "read")
        if repository and git:
            for place in repository.protected():
                if os.path.realpath(place) not in git:
                    yield Mount(os.path.realpath(place), "read")
