"""The keeper: takes orders over a socket, starts commands, ends them, reports. All ends when the socket does.

Orders are lines, reports are lines:

    run ID       with two descriptors: what to run (NUL-separated), and where its output goes
    end ID S     asks the command and all that it started to end, and kills them after S seconds
    kill ID      kills them at once
    close S      the same as `end` for all of them, and for the keeper itself

    exit ID N    the command ended, N as waitpid says it     failed ID N    it could not be started: errno N
    over ID      nothing of it is left                       ended ID P..   `end` is done; P.. live on
    limit ID W N is killed: it used more than N of W         closed P..     `close` is done; P.. live on
"""

import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from types import FrameType

from crushpy.sandbox.supervisor.processes import (
    HAS_PROC,
    KILL_PAUSE,
    KILL_ROUNDS,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    descendants,
    kill_all_below_us,
    kill_below,
    kill_namespace,
    own_memory,
    parents_of_all,
    process_control,
    reap_children,
    send,
)
from crushpy.sandbox.supervisor.watcher import CommandLimits, start_watcher

_ROUNDS_FOR_ONE = 20
"""How often one command's processes are looked for and killed before all others go with them."""
_OFTEN, _SELDOM, _YOUNG = 0.2, 1.0, 10.0
"""Seconds between two looks at what commands use: often while the latest is young."""


class _Command:
    def __init__(self, name: str, watcher: int, shell: int) -> None:
        self.name = name
        self.watcher = watcher
        self.shell = shell
        self.started = time.monotonic()
        self.kill_at: float | None = None
        """Set once it shall end."""
        self.rounds = 0

    def members(self) -> set[int]:
        return descendants([self.watcher], parents_of_all()) if HAS_PROC else {-self.shell}

    def ask_to_end(self, grace: float) -> None:
        asked = self.members()
        send(asked, signal.SIGTERM)
        members = self.members()
        send(members - asked, signal.SIGTERM)  # started while we looked: a listing is no snapshot
        send(members, signal.SIGCONT)  # one that is stopped must wake up to hear it
        self.kill_at = time.monotonic() + grace

    def kill(self) -> None:
        self.rounds += 1
        self.kill_at = time.monotonic() + KILL_PAUSE
        if self.rounds > _ROUNDS_FOR_ONE and os.getpid() == 1:
            kill_namespace()  # it starts others faster than we can look
        elif HAS_PROC:
            kill_below(self.watcher)
        else:
            send({-self.shell}, signal.SIGKILL)
        stubborn = self.rounds > KILL_ROUNDS // 2
        send({self.watcher}, signal.SIGKILL if stubborn else signal.SIGCONT)


class _Keeper:
    def __init__(self, link: socket.socket, limits: CommandLimits) -> None:
        self._link = link
        self._limits = limits
        self._commands: dict[str, _Command] = {}
        self._descriptors: list[int] = []
        self._unread = b""
        self._closing = False
        self._next_look = 0.0
        self.helpers: set[int] = set()
        """Children of ours that are no watchers."""
        self._wake, wakes = os.pipe()
        for end in (self._wake, wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_up)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def report(self, *words: object) -> None:
        try:
            os.write(self._link.fileno(), (" ".join(map(str, words)) + "\n").encode())
        except OSError:
            pass  # nobody listens any more

    def serve(self) -> None:
        while not (self._closing and not self._commands):
            ready = select.select([self._link, self._wake], [], [], self._patience())[0]
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            if self._link in ready and not self._take_orders():
                return
            self._see_to_endings()
            self._see_to_limits()
        self.report("closed", *sorted(self._strays()))

    def _patience(self) -> float | None:
        """Seconds until there is something to look at; None: until somebody says something."""
        moments = [each.kill_at for each in self._commands.values() if each.kill_at is not None]
        if self._commands and (self._limits.processes or self._limits.memory):
            moments.append(self._next_look)
        return max(min(moments) - time.monotonic(), 0) if moments else None

    # --- orders -------------------------------------------------------------------------------------------

    def _take_orders(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._link, 65_536, 64)
        except OSError:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            self._descriptors.append(descriptor)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._obey(*line.decode().split())
        return bool(data)

    def _obey(self, verb: str, first: str, grace: str = "0") -> None:
        if verb == "run":
            self._start(first)
        elif verb == "close":
            self._closing = True
            for command in self._commands.values():
                command.ask_to_end(float(first))
        elif command := self._commands.get(first):
            if verb == "end":
                command.ask_to_end(float(grace))
            else:
                command.kill_at = 0
        else:
            self.report("ended", first)

    def _start(self, name: str) -> None:
        order, output = self._descriptors.pop(0), self._descriptors.pop(0)
        try:
            watcher, shell = start_watcher(name, order, output, self._limits, self.report)
            self._commands[name] = _Command(name, watcher, shell)
        except OSError as error:
            self.report("failed", name, error.errno or errno.EAGAIN)
            self.report("over", name)
        os.close(order)
        os.close(output)
        self._next_look = min(self._next_look, time.monotonic() + _OFTEN)

    # --- what becomes of commands -------------------------------------------------------------------------

    def _reap(self) -> None:
        watchers = {command.watcher: command for command in self._commands.values()}
        for pid, status in reap_children().items():
            command = watchers.get(pid)
            if command is None:
                continue
            del self._commands[command.name]
            if status:  # somebody killed it: what it watched over is ours now, and nobody's
                self.report("exit", command.name, status)
                send(self._strays(), signal.SIGKILL)
            if command.kill_at is not None:
                self.report("ended", command.name)
            self.report("over", command.name)

    def _strays(self) -> set[int]:
        """What descends from us and from no watcher."""
        parents = parents_of_all()
        watchers = {command.watcher for command in self._commands.values()}
        ours = watchers | self.helpers
        return descendants([os.getpid()], parents) - ours - descendants(ours, parents)

    def _see_to_endings(self) -> None:
        now = time.monotonic()
        for command in list(self._commands.values()):
            if command.kill_at is None or now < command.kill_at:
                continue
            if command.rounds < KILL_ROUNDS:
                command.kill()
            else:
                self.report("ended", command.name, *sorted(command.members()))
                command.kill_at, command.rounds = None, 0
                if self._closing:
                    del self._commands[command.name]

    def _see_to_limits(self) -> None:
        now = time.monotonic()
        processes, memory = self._limits.processes, self._limits.memory
        if not self._commands or not (processes or memory) or now < self._next_look:
            return
        young = any(now - command.started < _YOUNG for command in self._commands.values())
        self._next_look = now + (_OFTEN if young else _SELDOM)
        parents = parents_of_all()
        for command in self._commands.values():
            members = descendants([command.watcher], parents)
            if command.kill_at is not None:
                continue
            if processes and len(members) > processes:
                self.report("limit", command.name, "processes", processes)
                command.kill_at = 0
                kill_namespace()
            elif memory and sum(map(own_memory, members)) > memory:
                self.report("limit", command.name, "memory", memory)
                command.kill_at = 0


def _wake_up(_number: int, _frame: FrameType | None) -> None:
    """A signal without a handler would not wake us."""


def main() -> None:
    """Arguments: the socket's descriptor, then NAME=VALUE words."""
    told = dict(word.split("=", 1) for word in sys.argv[2:])
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    if "landlock" in told:
        from crushpy.sandbox.supervisor.landlock import enter

        enter(int(told["landlock"]), link, network=told["network"] == "1")
    process_control(PR_SET_DUMPABLE, 0)  # commands of the same user could trace us otherwise
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    if "scoped" in told:
        from crushpy.sandbox.supervisor.abstract_sockets import leave_out_foreign_abstract_sockets

        leave_out_foreign_abstract_sockets()
    limits = CommandLimits(*(int(told.get(name, "0")) for name in ("processes", "memory", "file_size")))
    keeper = _Keeper(link, limits)
    if "proxy" in told:
        from crushpy.sandbox.supervisor.forwarder import start_forwarder

        keeper.helpers.add(start_forwarder(int(told["port"]), told["proxy"], link))
    gc.disable()
    gc.freeze()  # what is not touched is not copied for every command
    keeper.report("ready")
    keeper.serve()
    if os.getpid() != 1:  # the first process of a namespace takes all others with it
        kill_all_below_us()
    os._exit(0)
