"""The supervisor: takes orders over a socket, starts and ends commands, and reports. It ends with the socket.

Orders and reports are lines:

    run ID N     with 1 + N descriptors: what to run (NUL-separated), where its output goes; if N is 3, where
                 its errors go, and what it reads
    end ID S     terminates the command and everything it started, and kills them after S seconds
    kill ID      kills them at once
    close S      like `end` for all commands, then ends the supervisor

    exit ID N    the command ended, N as waitpid says it     failed ID N    it could not be started: errno N
    over ID      no process of it is left                    ended ID P..   `end` is done; P.. survived
    limit ID W N it is killed: it used more than N of W      closed P..     `close` is done; P.. survived
"""

import errno
import gc
import os
import resource
import select
import sys
import time
from collections.abc import Callable

from crushpy.sandbox.supervisor import process_control as control
from crushpy.sandbox.supervisor.process_control import signal, socket
from crushpy.sandbox.supervisor.system_calls import restrict_sockets

Report = Callable[..., None]
PARENT_DIED = signal.SIGRTMAX if sys.platform == "linux" else signal.SIGUSR2


_RESET_SIGNALS = (
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT),
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1),
)
"""Signals a program would inherit as ignored from Python, the supervisor, or crushpy's parent."""


CommandLimits = dict[str, int]
"""The most `processes`, bytes of `memory` and `file_size` of one command; 0 means unlimited."""


def start_reaper(
    name: str, order: int, streams: list[int], limits: CommandLimits, report: Report
) -> tuple[int, int]:
    """Starts a command under a reaper; returns the reaper's pid, and the shell's if groups are signalled.

    The reaper adopts and reaps everything the command leaves behind. So all processes of a command are its
    descendants (PR_SET_CHILD_SUBREAPER), whatever sessions they open, however often they fork, and whatever
    their environment is.
    """
    read_end, write_end = (-1, -1) if control.HAS_PROC else os.pipe()
    reaper = os.fork()
    if reaper == 0:
        try:
            _reap(name, order, streams, limits, report, write_end)
        finally:
            os._exit(1)
    if control.HAS_PROC:
        return reaper, 0
    os.close(write_end)
    shell = int(os.read(read_end, 20) or b"0")
    os.close(read_end)
    return reaper, shell


def _reap(
    name: str, order: int, streams: list[int], limits: CommandLimits, report: Report, write_end: int
) -> None:
    supervisor = os.getppid()

    def exit_if_orphaned(_number: int = 0, _frame: object = None) -> None:
        if os.getppid() != supervisor:
            control.kill_descendants()
            os._exit(0)

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(PARENT_DIED, exit_if_orphaned)
    control.process_control(control.PR_SET_CHILD_SUBREAPER, 1)
    control.process_control(control.PR_SET_PDEATHSIG, PARENT_DIED)
    exit_if_orphaned()  # it may have died before the signal was set up
    try:
        shell = _start_shell(order, streams, limits)
    except OSError as error:
        report("failed", name, error.errno or 0)
        report("exit", name, 127 << 8)
        os._exit(0)
    for descriptor in (order, *streams):
        os.close(descriptor)
    if write_end >= 0:
        os.write(write_end, str(shell).encode())
        os.close(write_end)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == shell:
            report("exit", name, status)


def _start_shell(order: int, streams: list[int], limits: CommandLimits) -> int:
    """Starts the program in a new session; it inherits the working folder and the limits from us.

    Spawned, not forked: copying this process again would take longer than everything else.
    """
    arguments, environment = _read_order(order)
    _set_limits(limits)
    return os.posix_spawn(
        arguments[0],
        arguments,
        environment,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, streams[0], 1),
            (os.POSIX_SPAWN_DUP2, streams[min(1, len(streams) - 1)], 2),
            *((os.POSIX_SPAWN_DUP2, each, 0) for each in streams[2:]),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET_SIGNALS,
    )


def _read_order(order: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Enters the folder of an order; returns its program with arguments, and the environment."""
    with open(order, "rb", closefd=False) as file:
        cwd, count, *words = file.read().split(b"\0")
    variables = (each.partition(b"=") for each in words[int(count) :] if b"=" in each)
    os.chdir(cwd)
    return words[: int(count)], {name: value for name, _, value in variables}


def become() -> None:
    """Becomes the program of an order. Arguments: the order's descriptor, and options as of `main`."""
    order = int(sys.argv[1])
    limits = _restrict(_read_options())
    arguments, environment = _read_order(order)
    os.close(order)
    _set_limits(limits)
    for each in _RESET_SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606
    except OSError as error:
        os.write(2, b"%s: %s\n" % (arguments[0], os.strerror(error.errno or 0).encode()))
        os._exit(127)


def _read_options() -> dict[str, str]:
    return dict(word.split("=", 1) for word in sys.argv[2:])


def _restrict(options: dict[str, str]) -> CommandLimits:
    """Closes to this process, and to all that it starts, what the options name. Returns their limits."""
    if "sockets" in options:
        restrict_sockets()
    if "scoped" in options:
        from crushpy.sandbox.supervisor.landlock import isolate_abstract_sockets

        isolate_abstract_sockets()
    return {name: int(options.get(name, "0")) for name in ("processes", "memory", "file_size")}


def _set_limits(limits: CommandLimits) -> None:
    names = {"processes": "RLIMIT_NPROC", "memory": "RLIMIT_DATA", "file_size": "RLIMIT_FSIZE"}
    for name, value in limits.items():
        number = getattr(resource, names[name], None)
        if not value or number is None:
            continue
        try:
            hard = resource.getrlimit(number)[1]
            allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (allowed, allowed))
        except (OSError, ValueError):
            pass  # less than is in use already; the supervisor checks as well


_MAX_COMMAND_ROUNDS = 20
"""Attempts to kill one command's processes before the whole namespace is killed."""
_FAST_CHECK_S, _SLOW_CHECK_S, _YOUNG_COMMAND_S = 0.2, 1.0, 10.0
"""Interval of the checks of resource use: fast while a command is young."""


class _Command:
    def __init__(self, name: str, reaper: int, shell: int) -> None:
        self.name = name
        self.reaper = reaper
        self.shell = shell
        self.started = time.monotonic()
        self.kill_at: float | None = None
        """Set once it should end."""
        self.rounds = 0

    def members(self) -> set[int]:
        return (
            control.descendants([self.reaper], control.list_parents()) if control.HAS_PROC else {-self.shell}
        )

    def ask_to_end(self, grace: float) -> None:
        signalled = self.members()
        control.send(signalled, signal.SIGTERM)
        members = self.members()
        control.send(members - signalled, signal.SIGTERM)  # started during the listing
        control.send(members, signal.SIGCONT)  # a stopped process must continue to receive it
        self.kill_at = time.monotonic() + grace

    def kill(self) -> None:
        self.rounds += 1
        self.kill_at = time.monotonic() + control.KILL_PAUSE_S
        if self.rounds > _MAX_COMMAND_ROUNDS and os.getpid() == 1:
            control.kill_namespace()  # it forks faster than we can list
        elif control.HAS_PROC:
            control.kill_tree(self.reaper)
        else:
            control.send({-self.shell}, signal.SIGKILL)
        force = self.rounds > control.KILL_ROUNDS // 2
        control.send({self.reaper}, signal.SIGKILL if force else signal.SIGCONT)


class _Supervisor:
    def __init__(self, link: socket.socket, limits: CommandLimits) -> None:
        self._link = link
        self._limits = limits
        self._commands: dict[str, _Command] = {}
        self._descriptors: list[int] = []
        self._unread = b""
        self._closing = False
        self._next_check = 0.0
        self.helpers: set[int] = set()
        """Children that are not reapers."""
        self._wake_pipe, wake_end = os.pipe()
        for end in (self._wake_pipe, wake_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # otherwise `select` would sleep on
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def report(self, *words: object) -> None:
        try:
            os.write(self._link.fileno(), (" ".join(map(str, words)) + "\n").encode())
        except OSError:
            pass  # crushpy is gone

    def serve(self) -> None:
        while not (self._closing and not self._commands):
            ready = select.select([self._link, self._wake_pipe], [], [], self._next_timeout())[0]
            if self._wake_pipe in ready:
                os.read(self._wake_pipe, 4096)
            self._reap()
            if self._link in ready and not self._receive_orders():
                return
            self._handle_endings()
            self._enforce_limits()
        self.report("closed", *sorted(self._strays()))

    def _next_timeout(self) -> float | None:
        """Seconds until the next deadline; None to wait for input."""
        moments = [each.kill_at for each in self._commands.values() if each.kill_at is not None]
        if self._commands and (self._limits["processes"] or self._limits["memory"]):
            moments.append(self._next_check)
        return max(min(moments) - time.monotonic(), 0) if moments else None

    # --- orders -------------------------------------------------------------------------------------------

    def _receive_orders(self) -> bool:
        try:
            data, ancillary, *_ = self._link.recvmsg(65_536, socket.CMSG_LEN(64 * 4))
        except OSError:
            return False
        for _, _, packed in ancillary:
            for descriptor in memoryview(packed[: len(packed) // 4 * 4]).cast("i"):
                os.set_inheritable(descriptor, False)
                self._descriptors.append(descriptor)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._execute_order(*line.decode().split())
        return bool(data)

    def _execute_order(self, verb: str, first: str, grace: str = "0") -> None:
        if verb == "run":
            self._start(first, int(grace))
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

    def _start(self, name: str, count: int) -> None:
        order, *streams = (self._descriptors.pop(0) for _ in range(1 + count))
        try:
            reaper, shell = start_reaper(name, order, streams, self._limits, self.report)
            self._commands[name] = _Command(name, reaper, shell)
        except OSError as error:
            self.report("failed", name, error.errno or errno.EAGAIN)
            self.report("over", name)
        for descriptor in (order, *streams):
            os.close(descriptor)
        self._next_check = min(self._next_check, time.monotonic() + _FAST_CHECK_S)

    # --- commands that end --------------------------------------------------------------------------------

    def _reap(self) -> None:
        reapers = {command.reaper: command for command in self._commands.values()}
        for pid, status in control.reap_children().items():
            command = reapers.get(pid)
            if command is None:
                continue
            del self._commands[command.name]
            if status:  # the reaper was killed: its processes are orphans of ours now
                self.report("exit", command.name, status)
                control.send(self._strays(), signal.SIGKILL)
            if command.kill_at is not None:
                self.report("ended", command.name)
            self.report("over", command.name)

    def _strays(self) -> set[int]:
        """Our descendants that no reaper owns."""
        parents = control.list_parents()
        reapers = {command.reaper for command in self._commands.values()}
        ours = reapers | self.helpers
        return control.descendants([os.getpid()], parents) - ours - control.descendants(ours, parents)

    def _handle_endings(self) -> None:
        now = time.monotonic()
        for command in list(self._commands.values()):
            if command.kill_at is None or now < command.kill_at:
                continue
            if command.rounds < control.KILL_ROUNDS:
                command.kill()
            else:
                self.report("ended", command.name, *sorted(command.members()))
                command.kill_at, command.rounds = None, 0
                if self._closing:
                    del self._commands[command.name]

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        processes, memory = self._limits["processes"], self._limits["memory"]
        if not self._commands or not (processes or memory) or now < self._next_check:
            return
        young = any(now - command.started < _YOUNG_COMMAND_S for command in self._commands.values())
        self._next_check = now + (_FAST_CHECK_S if young else _SLOW_CHECK_S)
        parents = control.list_parents()
        for command in self._commands.values():
            members = control.descendants([command.reaper], parents)
            if command.kill_at is not None:
                continue
            if processes and len(members) > processes:
                self.report("limit", command.name, "processes", processes)
                command.kill_at = 0
                control.kill_namespace()
            elif memory and sum(map(control.own_memory, members)) > memory:
                self.report("limit", command.name, "memory", memory)
                command.kill_at = 0


def _start_forwarder(port: int, path: str, link: socket.socket) -> int:
    """Starts a child process that forwards the connections to a port; returns its pid."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    child = os.fork()
    if child:
        listener.close()
        return child
    link.close()  # crushpy must notice when the supervisor ends
    try:
        from crushpy.sandbox.supervisor.forwarder import forward_connections

        forward_connections(listener.detach(), port, path)
    finally:
        os._exit(1)


def main() -> None:
    """Arguments: the socket's descriptor, then NAME=VALUE words."""
    options = _read_options()
    link = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(link.fileno(), False)
    if "landlock" in options:
        from crushpy.sandbox.supervisor.landlock import enter_landlock

        enter_landlock(int(options["landlock"]), link, network=options["network"] == "1")
    control.process_control(control.PR_SET_DUMPABLE, 0)  # otherwise commands of the same user could trace us
    control.process_control(control.PR_SET_CHILD_SUBREAPER, 1)
    supervisor = _Supervisor(link, _restrict(options))
    if "proxy" in options:
        supervisor.helpers.add(_start_forwarder(int(options["port"]), options["proxy"], link))
    gc.disable()
    gc.freeze()  # pages that are not touched are not copied on fork
    supervisor.report("ready")
    supervisor.serve()
    if os.getpid() != 1:  # the first process of a pid namespace takes all others with it
        control.kill_descendants()
    os._exit(0)
