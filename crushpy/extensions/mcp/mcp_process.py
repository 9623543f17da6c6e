"""The process that talks to MCP servers, as seen by crushpy: one for all conversations."""

import asyncio
import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import msgspec

import crushpy
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Json
from crushpy.core.own_code import is_importable
from crushpy.extensions.mcp.wire import (
    McpOrder,
    McpReport,
    ServerSpec,
    Verb,
    decode_server_report,
    encode_message,
)

_HELPER_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from crushpy.core.own_code import restrict_imports
restrict_imports()
from crushpy.extensions.mcp.mcp_helper import run_mcp_helper
run_mcp_helper()
"""
_VARIABLES = (
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "USER",
    "LOGNAME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
)
"""The environment of the process: what a keyring needs, and no key of a provider."""


class McpError(CrushpyError):
    """A server failed, or the process did. `needs_login`: `crushpy mcp login` would help. `lost`: the server
    has ended."""

    def __init__(
        self, message: str, hint: str = "", *, needs_login: bool = False, lost: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.needs_login = needs_login
        self.lost = lost


Heard = Callable[[McpReport], None]


class McpProcess:
    """One process. Two threads own the pipes, so orders may come from any event loop."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = [each for each in folders if Path(each).is_absolute() and is_importable(each)]
        environment |= {"PYTHONPATH": os.pathsep.join(kept)} if kept else {}
        environment |= {name: os.environ[name] for name in ("PYTHON_KEYRING_BACKEND",) if name in os.environ}
        self._process = subprocess.Popen(
            # -P: the current folder, which belongs to the user's project, is not on sys.path.
            [sys.executable, "-P", "-c", _HELPER_SCRIPT, str(Path(crushpy.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,  # Ctrl+C in the terminal is for the app
        )
        self.pid = self._process.pid
        self.ended = False
        self.listeners: list[Heard] = []
        """Called with reports about servers, in the reader's thread."""
        self._ids = count(1)
        self._orders: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[McpReport]]] = {}
        self._outgoing: SimpleQueue[McpOrder | None] = SimpleQueue()
        atexit.register(self.end)
        for work in (self._read, self._write):
            threading.Thread(target=work, name="mcp pipe", daemon=True).start()

    async def carry_out(
        self,
        verb: Verb,
        server: str,
        *,
        spec: ServerSpec | None = None,
        name: str = "",
        arguments: Json | None = None,
        heard: Heard = lambda _: None,
    ) -> Json:
        """The result of an order; `heard` gets what is reported before. Raises McpError.

        Cancelling also cancels at the server.
        """
        number = next(self._ids)
        reports: asyncio.Queue[McpReport] = asyncio.Queue()
        self._orders[number] = asyncio.get_running_loop(), reports
        self.send(McpOrder(number, verb, server, spec, name, arguments or {}))
        try:
            while True:
                if self.ended:
                    raise McpError("The process that talks to MCP servers has ended.")
                report = await reports.get()
                if report.kind == "result":
                    return report.data
                if report.kind == "error":
                    raise _to_error(server, report.data)
                heard(report)
        except asyncio.CancelledError:
            self.send(McpOrder(number, "cancel", server))
            raise
        finally:
            del self._orders[number]

    def send(self, order: McpOrder) -> None:
        self._outgoing.put(order)

    def end(self) -> None:
        """Closes the pipe: the process ends its servers and itself."""
        if not self.ended:
            self.ended = True
            self._outgoing.put(None)

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:
            while (order := self._outgoing.get()) is not None:
                pipe.write(encode_message(order))
                pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, msgspec.MsgspecError, RecursionError), self._process.stdout as pipe:
            for line in pipe:
                self._deliver(decode_server_report(line))
        self.end()
        self._process.wait()
        for number in list(self._orders):
            self._deliver(
                McpReport(number, "error", "", {"message": "the process that talked to it has ended"})
            )

    def _deliver(self, report: McpReport) -> None:
        if not report.id:
            for listener in list(self.listeners):
                listener(report)
        elif (waiting := self._orders.get(report.id)) is not None:
            loop, reports = waiting
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(reports.put_nowait, report)


def _to_error(server: str, data: Json) -> McpError:
    from crushpy.security.redact import redact

    needs_login = bool(data.get("needs_login"))
    if needs_login:
        return McpError(
            f"The MCP server {server} needs login.", f"Run: crushpy mcp login {server}", needs_login=True
        )
    tail = str(data.get("stderr") or "").strip()
    said = f"\nThe last lines it wrote to stderr:\n{redact(tail)}" if tail else ""
    text = f"The MCP server {server} failed: {redact(str(data.get('message', '')))}{said}"
    return McpError(text, lost=bool(data.get("lost")))


_current: McpProcess | None = None


def mcp_process() -> McpProcess:
    """The process that all conversations share, started if it is not running."""
    global _current  # noqa: PLW0603
    if _current is None or _current.ended:
        _current = McpProcess()
    return _current


def end_mcp_process() -> None:
    """Ends the process if it is running."""
    if _current is not None:
        _current.end()
