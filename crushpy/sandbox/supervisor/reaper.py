"""The process above each command, which adopts and reaps everything the command leaves behind.

So all processes of a command are descendants of its reaper (PR_SET_CHILD_SUBREAPER), whatever sessions they
open, however often they fork, and whatever their environment is.
"""

import os
import resource
import signal
from collections.abc import Callable
from types import FrameType

from crushpy.sandbox.supervisor.process_control import (
    HAS_PROC,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    kill_descendants,
    process_control,
)

Report = Callable[..., None]
PARENT_DIED = signal.SIGRTMAX if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2


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
    """Starts a command under a reaper; returns the reaper's pid, and the shell's if groups are signalled."""
    read_end, write_end = (-1, -1) if HAS_PROC else os.pipe()
    reaper = os.fork()
    if reaper == 0:
        try:
            _reap(name, order, streams, limits, report, write_end)
        finally:
            os._exit(1)
    if HAS_PROC:
        return reaper, 0
    os.close(write_end)
    shell = int(os.read(read_end, 20) or b"0")
    os.close(read_end)
    return reaper, shell


def _reap(
    name: str, order: int, streams: list[int], limits: CommandLimits, report: Report, write_end: int
) -> None:
    supervisor = os.getppid()

    def exit_if_orphaned(_number: int = 0, _frame: FrameType | None = None) -> None:
        if os.getppid() != supervisor:
            kill_descendants()
            os._exit(0)

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(PARENT_DIED, exit_if_orphaned)
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    process_control(PR_SET_PDEATHSIG, PARENT_DIED)
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
    with open(order, "rb", closefd=False) as file:
        cwd, count, *words = file.read().split(b"\0")
    arguments, environment = words[: int(count)], words[int(count) :]
    variables = (each.partition(b"=") for each in environment if b"=" in each)
    os.chdir(cwd)
    _set_limits(limits)
    return os.posix_spawn(
        arguments[0],
        arguments,
        {name: value for name, _, value in variables},
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
