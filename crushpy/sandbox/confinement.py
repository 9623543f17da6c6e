"""Runs the commands of one conversation where they cannot hurt: one keeper for each set of needs."""

import asyncio
import os
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.access import Privileges
from crushpy.core.messages import Data
from crushpy.sandbox.filesystem_view import FilesystemView, SandboxConfig
from crushpy.sandbox.finding import NAMESPACES, Sandbox, find_sandbox
from crushpy.sandbox.git_settings import GitSettings
from crushpy.sandbox.joined_network import join_network, joins_networks
from crushpy.sandbox.landlock import landlock_rules
from crushpy.sandbox.mounts import Mount
from crushpy.sandbox.private_tmp import TMP, VAR_TMP, PrivateTmp, is_below
from crushpy.sandbox.protected_files import ProtectedFiles
from crushpy.sandbox.seatbelt_profile import seatbelt_profile
from crushpy.sandbox.supervisor_handle import Keeper

if TYPE_CHECKING:
    from crushpy.sandbox.host_proxy import HostProxy

HOSTS_SOCKET, HOSTS_PORTS = "/run/crushpy-hosts", range(31_280, 32_768)
"""Where commands that may reach some hosts find the proxy to them: a socket, and a port of their loopback."""


class Allowance(Data, frozen=True):
    """What one command may use; 0: as much as it likes."""

    processes: int = 4_000
    memory_mb: int = 0
    """0: nine tenths of what the machine has."""
    file_mb: int = 20_000

    def words(self) -> list[str]:
        """For the keeper."""
        memory = self.memory_mb * 1_000_000 or _machine_memory() * 9 // 10
        return [
            f"processes={self.processes}",
            f"memory={memory}",
            f"file_size={self.file_mb * 1_000_000}",
        ]


class Unconfined:
    """Commands of one conversation with nothing to hold them, but that they end with it."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self.sandbox = sandbox or Sandbox("none", "it was not asked for")
        self._keeper: Keeper | None = None

    @property
    def keepers(self) -> list[Keeper]:
        """Those that live."""
        return [self._keeper] if self._keeper is not None and self._keeper.alive else []

    def keeper(self, needs: Privileges) -> Keeper:
        """Who runs a command; made where there is none."""
        if self._keeper is None or not self._keeper.alive:
            self._keeper = Keeper()
        return self._keeper

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        """What a command gets; ask once its keeper is there."""
        return dict(environment)

    def begin(self) -> list[str]:
        return []

    def check(self, needs: Privileges) -> list[str]:
        return []

    def inside(self, path: Path) -> Path:
        return path

    def outside(self, path: Path) -> Path:
        return path

    async def warm_up(self) -> None:
        """Begins what the first command would have to wait for."""
        self.keeper(Privileges())

    async def close(self, grace: float) -> list[int]:
        """Ends everything; who could not be ended."""
        ended = await asyncio.gather(*(keeper.close(grace) for keeper in self.keepers))
        return [pid for survivors in ended for pid in survivors]


class Bubblewrap(Unconfined):
    """Commands of one conversation in namespaces: one private /tmp, a keeper for each set of needs."""

    def __init__(
        self, sandbox: Sandbox, grounds: SandboxConfig, folder: Path, allowance: Allowance | None = None
    ) -> None:
        """`folder`: for what is this conversation's alone."""
        super().__init__(sandbox)
        self._grounds = grounds
        self._allowance = allowance or Allowance()
        self._private = PrivateTmp(folder)
        self._guards = ProtectedFiles(grounds.workspace, grounds.home, grounds.aside)
        self._git = GitSettings(grounds.workspace, grounds.aside)
        self._surroundings = FilesystemView(grounds, self._private, self._guards, self._git.places)
        self._proxies: dict[tuple[str, ...], HostProxy] = {}
        self._free_ports = cycle(HOSTS_PORTS)
        self._ports: dict[Privileges, int] = {}
        """Where the keepers for these needs have their way to hosts."""
        self._neighbours: list[Keeper] = []
        """Those on the loopback of the conversation."""
        self._current: dict[Privileges, Keeper] = {}
        self._retired: list[Keeper] = []
        self._started: list[tuple[Privileges, Keeper]] = []
        self._signature: tuple[object, ...] = ()

    @property
    def keepers(self) -> list[Keeper]:
        return [keeper for keeper in (*self._current.values(), *self._retired) if keeper.alive]

    def keeper(self, needs: Privileges) -> Keeper:
        signature = self._surroundings.signature()
        if signature != self._signature:
            # Those that run go on where they are; what comes now sees the folder that is there now.
            self._retired += self._current.values()
            self._current.clear()
            self._signature = signature
        found = self._current.get(needs)
        if found is None or not found.alive:
            found = self._current[needs] = self._start(needs)
            self._started.append((needs, found))
        return found

    def _start(self, needs: Privileges) -> Keeper:
        self._grounds.outputs.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = self._allowance.words()
        given: tuple[Mount, ...] = ()
        if needs.network:
            words.append("scoped=1")
        elif needs.hosts:
            given = (Mount(HOSTS_SOCKET, "read", str(self._proxy(needs.hosts).place)),)
            self._ports[needs] = next(self._free_ports)
            words += [f"proxy={HOSTS_SOCKET}", f"port={self._ports[needs]}"]
        options = [*NAMESPACES, *self._surroundings.view(needs, given).arguments(), "--as-pid-1"]
        around = [self.sandbox.program]
        if needs.network:
            return Keeper(words, around, options)
        neighbour = next((keeper for keeper in self._neighbours if keeper.alive), None)
        if neighbour is not None and joins_networks():
            around = join_network(neighbour.pid, around)
            # The other's user namespace knows us as root: here we are ourselves again.
            options = ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid()), *options]
        else:
            options.append("--unshare-net")
        keeper = Keeper(words, around, options)
        self._neighbours.append(keeper)
        return keeper

    def _proxy(self, hosts: tuple[str, ...]) -> "HostProxy":
        """Who lets commands reach these hosts; only keepers that were given its socket see it."""
        from crushpy.sandbox.host_proxy import HostProxy

        if hosts not in self._proxies:
            proxy = HostProxy(hosts, allow_private=self._grounds.private_hosts)
            proxy.start(self._private.root / f"hosts-{len(self._proxies) + 1}")
            self._proxies[hosts] = proxy
        return self._proxies[hosts]

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        held = {**environment, "TMPDIR": str(TMP)}
        for name in ("TMP", "TEMP", "XDG_RUNTIME_DIR"):
            held.pop(name, None)
        if not needs.git:
            held["GIT_OPTIONAL_LOCKS"] = "0"  # `git status` would try to write
        if needs.hosts and not needs.network:
            from crushpy.sandbox.host_proxy import proxy_environment

            held |= proxy_environment(self._ports[needs])
        if os.getuid() == 0:
            held["TAR_OPTIONS"] = "--no-same-owner"  # the only user in there is root
        return held

    def begin(self) -> list[str]:
        taken_back = self._git.take_back() if self._is_git_busy() else []
        self._git.remember()
        return [*taken_back, *self._guards.begin(alone=not any(keeper.busy for keeper in self.keepers))]

    def check(self, needs: Privileges) -> list[str]:
        allowed = [Path(place) for place in needs.write]
        put_aside = self._guards.put_aside(
            (*allowed, self._grounds.workspace / ".git") if needs.git else allowed
        )
        if needs.git or self._is_git_busy():
            put_aside += self._git.take_back()
        proxy = self._proxies.get(needs.hosts)
        return put_aside if proxy is None else [*put_aside, *proxy.told()]

    def _is_git_busy(self) -> bool:
        """Whether a command runs that may change the repository."""
        return any(needs.git and keeper.busy for needs, keeper in self._started)

    # --- one /tmp for commands and file tools -------------------------------------------------------------

    def inside(self, path: Path) -> Path:
        """Where file tools find what commands see at `path`.

        What only the user has there (a log they speak of, say) is theirs: outside, for the rules to judge.
        """
        spelled = os.path.normpath(path)
        if is_below(spelled, str(self._grounds.workspace)):
            return path
        for shown, real in ((TMP, self._private.tmp), (VAR_TMP, self._private.var_tmp)):
            if is_below(spelled, str(shown)):
                plain = Path(spelled)
                own = real / plain.relative_to(shown)
                return path if os.path.lexists(path) and not os.path.lexists(own) and plain != shown else own
        return path

    def outside(self, path: Path) -> Path:
        """What commands call `path`."""
        for shown, real in ((TMP, self._private.tmp), (VAR_TMP, self._private.var_tmp)):
            if path.is_relative_to(real):
                return shown / path.relative_to(real)
        return path

    # --- beginning and end --------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        await asyncio.to_thread(self._surroundings.view, Privileges())
        self.keeper(Privileges())
        await asyncio.to_thread(self._private.sweep)

    async def close(self, grace: float) -> list[int]:
        is_git_busy = self._is_git_busy()
        survivors = await super().close(grace)
        if is_git_busy:
            self._git.take_back()
        for proxy in self._proxies.values():
            await proxy.close()
        await asyncio.to_thread(self._private.remove)
        return survivors


class Landlock(Bubblewrap):
    """Commands of one conversation that see the machine as it is, and may open what they were given."""

    def _start(self, needs: Privileges) -> Keeper:
        self._grounds.outputs.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = [*self._allowance.words(), f"network={int(needs.network)}"]
        return Keeper(words, options=list(landlock_rules(self._surroundings.view(needs))))

    def environment(self, environment: Mapping[str, str], needs: Privileges) -> dict[str, str]:
        held = super().environment(environment, Privileges(git=needs.git))
        return {**held, "TMPDIR": str(self._private.tmp)}

    def check(self, needs: Privileges) -> list[str]:
        said = super().check(needs)
        if needs.hosts and not needs.network:
            said.append(f"{self.sandbox.name} cannot open some hosts alone: the command had no network")
        return said

    def inside(self, path: Path) -> Path:
        return path

    def outside(self, path: Path) -> Path:
        return path


class Seatbelt(Landlock):
    """Commands of one conversation on macOS, under a profile of `sandbox-exec`."""

    def _start(self, needs: Privileges) -> Keeper:
        self._grounds.outputs.mkdir(mode=0o700, parents=True, exist_ok=True)
        profile = self._private.root / f"profile-{len(self._current)}-{len(self._retired)}"
        profile.write_text(seatbelt_profile(self._surroundings.view(needs), network=needs.network))
        return Keeper(self._allowance.words(), [self.sandbox.program, "-f", str(profile)])


def confine(
    mode: str, grounds: SandboxConfig, folder: Path, allowance: Allowance | None = None
) -> Unconfined:
    """What holds the commands of a conversation under `sandbox.mode`."""
    return confine_in(find_sandbox(mode), grounds, folder, allowance)


def confine_in(
    sandbox: Sandbox, grounds: SandboxConfig, folder: Path, allowance: Allowance | None = None
) -> Unconfined:
    """What holds the commands of a conversation in `sandbox`."""
    if sandbox.name == "bubblewrap":
        return Bubblewrap(sandbox, grounds, folder, allowance)
    if sandbox.name == "landlock":
        return Landlock(sandbox, grounds, folder, allowance)
    if sandbox.name == "sandbox-exec":
        return Seatbelt(sandbox, grounds, folder, allowance)
    return Unconfined(sandbox)


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
