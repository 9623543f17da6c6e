"""The process that talks to MCP servers, as seen by crushpy: one for all conversations."""

import asyncio
import os
from collections.abc import Callable

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Json
from crushpy.extensions.mcp import wire
from crushpy.tools.errors import ToolError
from crushpy.util.helper_process import HelperProcess

_VARIABLES = (
    "HOME PATH LANG LC_ALL USER LOGNAME XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS PYTHON_KEYRING_BACKEND "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR"
)
"""The environment of the process: what a keyring and HTTP need, and no key of a provider."""


class McpError(CrushpyError, ToolError):
    """A server failed, or the process did."""

    needs_login = False
    """`crushpy mcp login` would help."""


Heard = Callable[[wire.McpReport], None]


class McpProcess(HelperProcess[wire.McpReport]):
    """One process; closing its pipe ends it and its servers."""

    def __init__(self) -> None:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.upper() in _VARIABLES.split() or name.startswith("KEYRING_PROPERTY_")
        }
        try:
            super().__init__("crushpy.extensions.mcp.mcp_helper:run_mcp_helper", environment, cwd="/")
        except OSError as error:
            raise McpError(f"The process that talks to MCP servers could not be started: {error}.") from None

    async def carry_out(self, order: wire.McpOrder, heard: Heard = lambda _: None) -> Json:
        """The result of an order; `heard` gets what is reported before. Raises McpError.

        Cancelling also cancels at the server.
        """
        number, reports = self.begin_request()
        self.send(msgspec.structs.replace(order, id=number))
        try:
            while True:
                report = await reports.get()
                if report.kind == "result":
                    return report.data
                if report.kind == "error":
                    raise _to_error(order.server.partition("@")[0], report.data)
                heard(report)
        except asyncio.CancelledError:
            self.send(wire.McpOrder("cancel", order.server, id=number))
            raise
        finally:
            self.end_request(number)

    def receive(self, line: bytes) -> None:
        report = wire.decode_server_report(line)
        self.deliver(report.id, report)

    def explain_end(self, error: Exception | None) -> wire.McpReport:
        return wire.McpReport(0, "error", {"message": "the process that talked to it has ended"})


def login_needed(server: str) -> McpError:
    error = McpError(f"The MCP server {server} needs login.", f"Run: crushpy mcp login {server}")
    error.needs_login = True
    return error


def _to_error(server: str, data: Json) -> McpError:
    from crushpy.security.redact import redact

    if data.get("needs_login"):
        return login_needed(server)
    tail = str(data.get("stderr") or "").strip()
    said = f"\nThe last lines it wrote to stderr:\n{redact(tail)}" if tail else ""
    return McpError(f"The MCP server {server} failed: {redact(str(data.get('message', '')))}{said}")
