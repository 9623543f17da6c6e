"""Runs the commands of one conversation in a sandbox: one supervisor for each set of privileges."""

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.access import Privileges
from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import private_dir
from crushpy.sandbox.filesystem_view import TMP, VAR_TMP, FilesystemView, PrivateTmp, SandboxConfig
from crushpy.sandbox.finding import NAMESPACES, Sandbox, find_overlay_kind
from crushpy.sandbox.killed_commands import RecordFile
from crushpy.sandbox.mounts import Mount, OverlayKind, landlock_rules, seatbelt_profile
from crushpy.sandbox.protected_files import IN_BACKGROUND, ProtectedFiles
from crushpy.sandbox.repository import is_git_folder
from crushpy.sandbox.supervisor.process_control import HAS_PROC
from crushpy.sandbox.supervisor_handle import Supervisor, Wrapper
from crushpy.security.safe_open import make_folders

if TYPE_CHECKING:
    from crushpy.sandbox.host_proxy import HostProxy

_JOIN_NETWORK_SCRIPT = """
import ctypes, fcntl, os, sys, time
pid, command = sys.argv[1], sys.argv[2:]
call = ctypes.CDLL(None, use_errno=True)
for _ in range(1000):
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    if children:
        break
    time.sleep(0.005)
network = os.open(f"/proc/{children[0]}/ns/net", os.O_RDONLY)
owner = fcntl.ioctl(network, 0xB701)
for namespace, kind in ((owner, 0x10000000), (network, 0x40000000)):
    if call.setns(namespace, kind):
        sys.exit(f"the network could not be joined: {os.strerror(ctypes.get_errno())}")
os.closerange(owner, owner + 1)
os.execv(command[0], command)
"""
"""The other sandbox may still be starting. Its user namespace must be entered before its network."""


HOSTS_SOCKET, HOSTS_PORTS = "/run/crushpy-hosts", range(31_280, 32_768)
"""Where commands find the proxy to their hosts: a socket, and a loopback port."""


class ResourceLimits(Data, frozen=True):
    """Limits of one command; 0 means unlimited."""

    processes: int = 4_000
    memory_mb: int = 0
    """0: nine tenths of the machine's memory."""
    file_mb: int = 20_000

    def words(self) -> list[str]:
        """As arguments of the supervisor."""
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = self.memory_mb * 1_000_000 or machine * 9 // 10
        return [f"processes={self.processes}", f"memory={memory}", f"file_size={self.file_mb * 1_000_000}"]


class Unconfined:
    """Runs commands without a sandbox; they still end with the conversation."""

    def __init__(self, sandbox: Sandbox | None = None, protected: ProtectedFiles | None = None) -> None:
        """`protected`: without a sandbox, changes to these files are only reported."""
        self.sandbox = sandbox or Sandbox("none", "it was not requested")
        self._protected = protected
        self._current: dict[Privileges, Supervisor] = {}
        """Those that run new commands."""
        self._started: list[tuple[Privileges, Supervisor]] = []
        self._was_busy = False
        """Whether commands were left running unchecked."""

    @property
    def own_code_note(self) -> str:
        """What a command that was refused writing may have to know about crushpy's own code."""
        return ""

    @property
    def supervisors(self) -> list[Supervisor]:
        """The supervisors that are alive."""
        return [supervisor for _, supervisor in self._started if supervisor.alive]

    def supervisor(self, needs: Privileges) -> Supervisor:
        """The supervisor for commands with these privileges, started if needed."""
        found = self._current.get(needs)
        if found is None or not found.alive:
            found = self._current[needs] = self._start(needs)
            self._started.append((needs, found))
        return found

    def _start(self, needs: Privileges) -> Supervisor:
        return Supervisor()

    def _is_busy(self, *, git: bool = False) -> bool:
        """Whether a command is running; with `git`, one that may change the repository."""
        return any(supervisor.busy and needs.git >= git for needs, supervisor in self._started)

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        """The environment of a command. Call it after `supervisor`."""
        return dict(environment)

    def begin(self, needs: Privileges) -> list[str]:
        """Called before a command; returns messages about earlier ones."""
        if self._protected is None:
            return []
        messages = self._protected.report(IN_BACKGROUND) if self._was_busy else []
        self._was_busy = True  # until it was checked
        return [*messages, *self._protected.begin(write=needs.write)]

    def check(self, needs: Privileges) -> list[str]:
        """Called after a command; returns messages about what it changed or was refused."""
        messages = self._protected.report() if self._protected else []
        self._was_busy = self._is_busy()
        return messages

    def wrapper(self, needs: Privileges) -> Wrapper:
        """The sandbox for a single program. Raises OSError if it runs none."""
        raise OSError(f"there is no sandbox for it: {self.sandbox.why_not}")

    def inside(self, path: Path) -> Path:
        return path

    def outside(self, path: Path) -> Path:
        return path

    async def warm_up(self) -> None:
        """Starts what the first command would have to wait for."""
        self.supervisor(Privileges())

    async def close(self, grace: float) -> list[int]:
        """Ends all commands; returns the processes that could not be ended."""
        ended = await asyncio.gather(*(supervisor.close(grace) for supervisor in self.supervisors))
        return [pid for survivors in ended for pid in survivors]


class Bubblewrap(Unconfined):
    """Runs commands in namespaces: one private /tmp, a supervisor for each set of privileges."""

    def __init__(
        self, sandbox: Sandbox, config: SandboxConfig, folder: Path, limits: ResourceLimits | None = None
    ) -> None:
        """`folder`: private to this conversation."""
        super().__init__(sandbox)
        self._config = config
        self._limits = limits or ResourceLimits()
        self._private = PrivateTmp(folder)
        self._files = ProtectedFiles(config.workspace, config.home, config.aside, config.own_folders)
        self._record = RecordFile(folder, self._files)
        self._was_git_busy = False
        """Whether any of the commands that were left running may change the repository."""
        self._view = FilesystemView(config, self._private, self._files)
        self._proxies: dict[tuple[str, ...], HostProxy] = {}
        self._next_ports = cycle(HOSTS_PORTS)
        self._ports: dict[Privileges, int] = {}
        """The loopback ports of the proxy, by privileges."""
        self._signature: tuple[object, ...] = ()

    @property
    def own_code_note(self) -> str:
        places = self._view.own_code_in_workspace()
        if not places:
            return ""
        workspace = Path(os.path.realpath(self._config.workspace))
        at_top = any(Path(place).is_symlink() and Path(place).parent == workspace for place in places)
        is_open = self.sandbox.has_mounts and not at_top
        top = "" if is_open else "the top of the workspace takes no new files, since "
        return f"; {top}crushpy's own code is read-only ({', '.join(places)}; sandbox.own_code)"

    def supervisor(self, needs: Privileges) -> Supervisor:
        signature = self._view.signature()
        if signature != self._signature:
            # Running commands keep their view; new ones see the workspace as it is now.
            self._current.clear()
            self._signature = signature
        return super().supervisor(needs)

    def _start(self, needs: Privileges) -> Supervisor:
        arguments = [*self._limits.words(), "sockets=1"]
        mounts: tuple[Mount, ...] = ()
        wrapper = [self.sandbox.program]
        network: list[str] = []
        if needs.network:
            arguments.append("scoped=1")
        else:
            mounts = (Mount(HOSTS_SOCKET, "read", str(self._proxy(needs.hosts).place)),)
            self._ports[needs] = next(self._next_ports)
            arguments += [f"proxy={HOSTS_SOCKET}", f"port={self._ports[needs]}"]
            # All without the network share the conversation's loopback.
            peers = (each for known, each in self._started if each.alive and not known.network)
            if HAS_PROC and (peer := next(peers, None)):
                wrapper = [sys.executable, "-I", "-S", "-c", _JOIN_NETWORK_SCRIPT, str(peer.pid), *wrapper]
                # The joined user namespace maps us to root: restore the real user.
                network = ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
            else:
                network = ["--unshare-net"]

        def options() -> list[str]:
            return [*network, *NAMESPACES, *self._view_options(needs, mounts), "--as-pid-1"]

        return Supervisor(arguments, wrapper, options)

    def _view_options(self, needs: Privileges, mounts: tuple[Mount, ...] = ()) -> list[str]:
        return self._view.view(needs, mounts).arguments(self._private.overlays, self._overlay_kind())

    def _overlay_kind(self) -> OverlayKind:
        places = self._view.private_places()
        return find_overlay_kind(self.sandbox.program, self._private.overlays, places)

    def _proxy(self, hosts: tuple[str, ...]) -> "HostProxy":
        """The proxy for these hosts; only supervisors that were given its socket see it."""
        from crushpy.sandbox.host_proxy import HostProxy

        if hosts not in self._proxies:
            proxy = HostProxy(hosts, allow_private=self._config.private_hosts)
            proxy.start(self._private.root / f"hosts-{len(self._proxies) + 1}")
            self._proxies[hosts] = proxy
        return self._proxies[hosts]

    def wrapper(self, needs: Privileges) -> Wrapper:
        network = [] if needs.network else ["--unshare-net"]
        command = (self.sandbox.program, *network, *NAMESPACES, *self._view_options(needs))
        scoped = ("scoped=1",) if needs.network else ()
        return Wrapper(command, (*self._limits.words(), "sockets=1", *scoped))

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        tmp = self.outside(self._private.tmp)
        caches = self._view.cache_variables(tmp, overlays=bool(self._overlay_kind()))
        variables = {**caches, **environment, "TMPDIR": str(tmp)}
        for name in ("TMP", "TEMP", "XDG_RUNTIME_DIR"):
            variables.pop(name, None)
        if not needs.git:
            variables["GIT_OPTIONAL_LOCKS"] = "0"  # `git status` would try to write
        if port := self._ports.get(needs):
            from crushpy.sandbox.host_proxy import proxy_environment

            variables |= proxy_environment(port, retries=bool(needs.hosts))
        if os.getuid() == 0:
            variables["TAR_OPTIONS"] = "--no-same-owner"  # the only user in there is root
        return variables

    def begin(self, needs: Privileges, restored: Iterable[str] = ()) -> list[str]:
        """`restored`: what has just been put back as it was."""
        busy = self._was_busy or self._is_busy()
        git_busy = self._was_git_busy or self._is_busy(git=True)
        is_locked = busy and not git_busy and self.sandbox.has_mounts
        self._was_busy, self._was_git_busy = True, git_busy or needs.git  # until it was checked
        locked = map(str, self._files.existing()) if is_locked else restored
        messages = self._files.begin(busy=busy, locked=locked, write=needs.write)
        self._keep(needs)
        return messages

    def _keep(self, needs: Privileges) -> None:
        """Keeps the record of what running commands may not change."""
        running = [known for known, supervisor in self._started if supervisor.busy]
        allowed = Privileges.union((needs, *running))
        self._record.keep(git=allowed.git, granted=allowed.write)

    def check(self, needs: Privileges) -> list[str]:
        messages = self._files.check(git=needs.git or self._is_busy(git=True), granted=needs.write)
        self._was_busy, self._was_git_busy = self._is_busy(), self._is_busy(git=True)
        if self._was_busy:
            self._keep(Privileges())
        else:
            self._record.drop()
        proxy = None if needs.network else self._proxies.get(needs.hosts)
        return messages if proxy is None else [*messages, *proxy.take_refusals()]

    # --- one /tmp for commands and file tools -------------------------------------------------------------

    @property
    def _moved_folders(self) -> tuple[tuple[Path, Path], ...]:
        """What commands see at another path than file tools: there, and here."""
        return (TMP, self._private.tmp), (VAR_TMP, self._private.var_tmp)

    def inside(self, path: Path) -> Path:
        """The path at which file tools find what commands see at `path`.

        A file that only the user has there, such as a log, is outside: the rules decide about it.
        """
        normalized = os.path.normpath(path)
        if is_in_folder(normalized, str(self._config.workspace)):
            return path
        for shown, real in self._moved_folders:
            if is_in_folder(normalized, str(shown)):
                plain = Path(normalized)
                own = real / plain.relative_to(shown)
                return path if os.path.lexists(path) and not os.path.lexists(own) and plain != shown else own
        return path

    def outside(self, path: Path) -> Path:
        """The path at which commands see `path`."""
        for shown, real in self._moved_folders:
            if path.is_relative_to(real):
                return shown / path.relative_to(real)
        return path

    # --- start and shutdown -------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        await asyncio.to_thread(import_module, "crushpy.sandbox.host_proxy")
        await asyncio.to_thread(self._view.prepare)
        await asyncio.to_thread(self._overlay_kind)
        self.supervisor(Privileges())
        await asyncio.to_thread(self._private.sweep)

    async def close(self, grace: float) -> list[int]:
        was_busy = self._was_busy or self._is_busy()
        survivors = await super().close(grace)
        if was_busy:
            self._files.begin(busy=True)
        self._record.drop()
        for proxy in self._proxies.values():
            await proxy.close()
        await asyncio.to_thread(self._private.remove)
        return survivors


class Landlock(Bubblewrap):
    """Runs commands that see the machine's file system and may open only what they were given."""

    def _start(self, needs: Privileges) -> Supervisor:
        arguments = [*self._limits.words(), f"network={int(needs.network)}"]
        return Supervisor(arguments, options=lambda: list(landlock_rules(self._view.view(needs))))

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        variables = super().environment(environment, Privileges(git=needs.git))
        hooks = self._config.home / ".cache" / "pre-commit" / "db.db"
        if hooks.is_file():  # it names the installed hooks, which are read-only, and must be writable itself
            own = self._private.tmp / "caches" / "pre-commit"
            if not own.exists():
                own.mkdir(parents=True)
                shutil.copy(hooks, own)
            variables["PRE_COMMIT_HOME"] = str(own)
        return variables

    def wrapper(self, needs: Privileges) -> Wrapper:
        raise OSError(f"{self.sandbox.name} cannot run it; bubblewrap can")

    def _overlay_kind(self) -> OverlayKind:
        return ""

    @cached_property
    def _copies(self) -> "TreeCopies":
        return TreeCopies(self._private.root / "copies", self._config.aside)

    def begin(self, needs: Privileges, restored: Iterable[str] = ()) -> list[str]:
        lost = self._copies.restore((), only_lost=True) if self._was_busy or self._is_busy() else {}
        messages = super().begin(needs, (*restored, *lost))
        return [*lost.values(), *messages, *self._copies.save(map(str, self._files.existing()))]

    def check(self, needs: Privileges) -> list[str]:
        repository = f"{os.path.realpath(self._config.workspace)}/.git"
        git = (repository,) if needs.git or self._is_busy(git=True) else ()
        messages = [*self._copies.restore((*git, *needs.write)).values(), *super().check(needs)]
        if needs.hosts and not needs.network:
            messages.append(f"{self.sandbox.name} cannot grant single hosts: the command had no network")
        return messages

    @property
    def _moved_folders(self) -> tuple[tuple[Path, Path], ...]:
        return ()


class Seatbelt(Landlock):
    """Runs commands on macOS, under a profile of `sandbox-exec`."""

    def _start(self, needs: Privileges) -> Supervisor:
        profile = self._private.root / f"profile-{len(self._started)}"
        profile.write_text(seatbelt_profile(self._view.view(needs), network=needs.network))
        return Supervisor(self._limits.words(), [self.sandbox.program, "-f", str(profile)])


def confine_in(
    sandbox: Sandbox, config: SandboxConfig, folder: Path, limits: ResourceLimits | None = None
) -> Unconfined:
    """The confinement of a conversation's commands in `sandbox`."""
    kinds = {"bubblewrap": Bubblewrap, "landlock": Landlock, "sandbox-exec": Seatbelt}
    if kind := kinds.get(sandbox.name):
        return kind(sandbox, config, folder, limits)
    files = ProtectedFiles(config.workspace, config.home, config.aside, config.own_folders)
    return Unconfined(sandbox, files)


# --- copies of files that commands must not change, for a sandbox that cannot make them read-only (Landlock)


_MAX_COPIED_BYTES = 500_000_000
"""Of a larger tree, files are linked: deleted ones are restored, those overwritten in place are not."""

_Signatures = dict[str, tuple[int, ...]]
"""What identifies the content of each file, by path. A command cannot set the status change time."""


class TreeCopies:
    """Restores files and folders from copies that were made before a command."""

    def __init__(self, folder: Path, aside: Path) -> None:
        """`folder`: for the copies, which commands cannot open; `aside`: where changed trees are moved."""
        self._folder = folder
        self._aside = aside
        self._saved: dict[str, tuple[_Signatures, Path]] = {}

    def save(self, places: Iterable[str]) -> list[str]:
        """Copies what changed in `places`; returns messages about what could not be copied."""
        before, self._saved = self._saved, {}
        messages: list[str] = []
        for place in places:
            signatures = dict(_sign(place))
            old, copy = before.pop(place, ({}, self._folder))
            if not signatures:
                continue  # neither a file nor a folder
            if signatures != old:
                try:
                    copy = _copy_tree(place, self._folder / new_id(), signatures, (old, copy))
                except OSError as error:
                    messages.append(f"{place} could not be copied, and is not restored if deleted: {error}")
                    continue
            self._saved[place] = (signatures, copy)
        return messages

    def restore(self, granted: Collection[str], *, only_lost: bool = False) -> dict[str, str]:
        """Puts back what changed, except in `granted`; returns messages by place.

        `only_lost`: only what is missing or no longer usable, since the user may have changed the rest.
        """
        messages: dict[str, str] = {}
        for place, (signatures, copy) in sorted(self._saved.items()):
            if place in granted or any(is_in_folder(place, each) for each in messages):
                continue
            now = dict(_sign(place))
            is_lost = not now or (f"{place}/HEAD" in signatures and not is_git_folder(place))
            is_same = signatures.items() <= now.items() and all(
                path.startswith(f"{place}/objects/") for path in now.keys() - signatures.keys()
            )
            if is_lost or not (is_same or only_lost):
                messages[place] = self._swap(Path(place), copy)
                del self._saved[place]
        return messages

    def _swap(self, place: Path, copy: Path) -> str:
        try:
            with make_folders(place.parent)[0] as folder:
                target = Path(folder.as_cwd(), place.name)
                saved = ""
                if os.path.lexists(target):
                    aside = private_dir(self._aside / new_id()) / place.name
                    shutil.move(target, aside)
                    saved = f". The new version was saved as {aside}"
                shutil.move(copy, target)
        except OSError as error:
            return f"{place} was changed and could not be put back ({error}). A copy is at {copy}"
        return f"{place} was restored: only a command that was granted it may change it{saved}"


def _sign(place: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    try:
        found = os.lstat(place)
        if stat.S_ISDIR(found.st_mode):
            yield place, (found.st_mode,)
            for name in os.listdir(place):  # noqa: PTH208
                yield from _sign(f"{place}/{name}")
        elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            yield place, (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        return


def _copy_tree(place: str, target: Path, signatures: _Signatures, previous: tuple[_Signatures, Path]) -> Path:
    """Copies a tree. Files that did not change are linked to the previous copy, which is then removed."""
    old, old_copy = previous
    is_large = sum(each[2] for each in signatures.values() if len(each) > 1) > _MAX_COPIED_BYTES

    def copy_file(source: str, destination: str) -> None:
        signature = signatures.get(source)
        if signature is None:
            return  # a socket, or newer than the signatures
        if signature == old.get(source):
            Path(destination).hardlink_to(f"{old_copy}{source[len(place) :]}")
        elif is_large and not os.path.islink(source):  # noqa: PTH114
            Path(destination).hardlink_to(source)
        else:
            shutil.copy2(source, destination, follow_symlinks=False)

    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
        shutil.copytree(place, target, symlinks=True, copy_function=copy_file)
    else:
        copy_file(place, str(target))
    if old:
        shutil.rmtree(old_copy, ignore_errors=True)
    return target
