"""Starts the real `crushpy` in a process of its own, and says which commands need none."""

import asyncio
import atexit
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
"""What the `cli` fixture is."""
FORK_SERVER = Path(__file__).with_name("fork_server.py")
FRESH = bool(os.environ.get("CRUSHPY_TEST_FRESH_PROCESSES"))
AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ")
"""Variables that the interpreter reads when it starts."""


def _at_start(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


USUAL = {**_at_start(dict(os.environ)), "LANG": "C.UTF-8"}
"""Those of every test, unless it sets others."""


IN_PROCESS = {
    *("audit", "compact", "config", "doctor", "models", "permissions", "plugins", "sessions", "skills"),
    *("stats", "template", "trust", "untrust"),
}
"""Commands that do the same in the process of the tests: they need no signals and no terminal."""


def can_run_in_process(args: tuple[str, ...], env: dict[str, str] | None) -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return not FRESH and args[0] in IN_PROCESS and _at_start({**os.environ, **(env or {})}) == USUAL
    return False


def start_crushpy(
    *args: str, env: dict[str, str] | None = None, launcher: tuple[str, ...] = (), **options: Any
) -> "subprocess.Popen[Any]":
    """`subprocess.Popen` of `crushpy ARGS`, with variables beside the current ones.

    The process is forked from one that has imported everything, unless it has a launcher or other variables
    for the interpreter, or CRUSHPY_TEST_FRESH_PROCESSES is set.
    """
    whole = {**os.environ, **(env or {})}
    forked = not launcher and not FRESH and _at_start(whole) == USUAL
    start = ForkedPopen if forked else subprocess.Popen
    return start([*launcher, sys.executable, "-m", "crushpy", *args], env=whole, **options)


def run_crushpy(
    *args: str, stdin: str | None = "", timeout: float = 110, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """`subprocess.run` of `crushpy ARGS`."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_crushpy(*args, **streams, text=True, **options) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


class ForkedPopen(subprocess.Popen[Any]):
    """A process that the fork server started, which also reports its end: it is not a child of ours."""

    def __init__(self, args: list[str], *, start_new_session: bool = False, **options: Any) -> None:
        self._new_session = start_new_session
        super().__init__(args, **options)

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, *pipes = rest[:15]  # as in CPython 3.11 to 3.13
        stdin, _, _, stdout, _, stderr = pipes
        request = {
            "args": args[3:],
            "env": env,
            "cwd": str(cwd or Path.cwd()),
            "new_session": self._new_session,
        }
        ours, theirs = socket.socketpair()
        streams = [stream if stream >= 0 else number for number, stream in enumerate((stdin, stdout, stderr))]
        socket.send_fds(fork_server(), [b"."], [theirs.fileno(), *streams])
        theirs.close()
        ours.sendall(json.dumps(request).encode())
        ours.shutdown(socket.SHUT_WR)
        self._connection = ours
        self.pid = self._receive()
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _receive(self) -> int:
        return struct.unpack("q", self._connection.recv(8, socket.MSG_WAITALL))[0]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        status = self._receive()
        self._connection.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            process, status = self._try_wait(os.WNOHANG)
            if process:
                self._handle_exitstatus(status)
        return self.returncode


@cache
def fork_server() -> socket.socket:
    """One for all tests of this process; it ends when we do."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    env = {"PATH": os.environ["PATH"], **USUAL}
    command = [sys.executable, str(FORK_SERVER), str(theirs.fileno()), "crushpy"]  # what ps shows
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, cwd="/", pass_fds=[theirs.fileno()]
    )
    atexit.register(process.wait)
    atexit.register(ours.close)
    theirs.close()
    assert ours.recv(16) == b"ready"
    return ours
