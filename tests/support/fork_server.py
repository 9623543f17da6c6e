"""`python -m crushpy` in a new process that has imported everything already: forked from one that waits.

Run as a program this is the one that waits. It gets requests through the socket that its argument names: a
connection and the three standard streams. On the connection come arguments, environment and folder as JSON,
and the process's id and its wait status go back. It ends with the process that started it.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import site
import socket
import struct
import sys
import threading
from contextlib import suppress

NOT_IMPORTED = ("__main__", ".migrations", ".queries", ".mcp.oauth")
"""The entry point, and modules that take long and are seldom used."""


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    request, streams = _serve(control)
    _become(request, streams)  # in the forked process
    try:
        runpy.run_module("crushpy", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _leave(end.code)
    _leave(None)


def _leave(code: object) -> None:
    """What the interpreter does at its end, but for freeing each object."""
    status = code if isinstance(code, int) else 0 if code is None else 1
    if status == 1 and code != 1:
        print(code, file=sys.stderr)
    threading._shutdown()  # also ends the threads of executors
    atexit._run_exitfuncs()
    sys.stderr.flush()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = 120
    os._exit(status & 0xFF)


def _import_all() -> None:
    import crushpy

    for module in pkgutil.walk_packages(crushpy.__path__, "crushpy."):
        if not any(part in module.name for part in NOT_IMPORTED):
            importlib.import_module(module.name)


def _serve(control: socket.socket) -> tuple[dict, list[int]]:
    """Forks a process for each request, and returns in that process only."""
    waiting: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                os.read(woken, 1_000)
                _report_ends(waiting)
                continue
            _, streams, _, _ = socket.recv_fds(control, 1, 4)
            if not streams:
                os._exit(0)
            connection = socket.socket(fileno=streams.pop(0))
            request = json.loads(connection.makefile().read())
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                selector.close()
                for end in (control, *waiting.values()):
                    end.close()
                os.close(woken)
                os.close(wake)
                if request["new_session"]:
                    os.setsid()  # before its id is known, as after an exec
                connection.send(struct.pack("q", os.getpid()))
                connection.close()
                return request, streams
            for stream in streams:
                os.close(stream)
            waiting[process] = connection


def _report_ends(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        with waiting.pop(process) as connection, suppress(OSError):  # the test has ended
            connection.send(struct.pack("q", status))


def _become(request: dict, streams: list[int]) -> None:
    """What differs in a process that was started: environment, folder, streams, arguments."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    site.USER_BASE = site.USER_SITE = None  # of the old HOME
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        if stream > 2:
            os.close(stream)
    sys.stdin = sys.__stdin__ = _open(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _open(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = _open(2, "w", sys.stderr)
    sys.path[0] = os.getcwd()
    sys.argv[1:] = request["args"]
    gc.enable()


def _open(number: int, mode: str, before: io.TextIOWrapper) -> io.TextIOWrapper:
    file = open(number, mode, encoding=before.encoding, errors=before.errors, closefd=False)  # noqa: SIM115
    if number == 2:
        file.reconfigure(line_buffering=True)
    return file


if __name__ == "__main__":
    main()
