"""A connection of the process that talks to MCP servers."""

import asyncio
from collections.abc import Callable
from typing import Any

from crushpy.extensions.mcp.mcp_process import McpProcess
from crushpy.extensions.mcp.wire import McpOrder, McpReport, ServerSpec


async def connect(
    process: McpProcess,
    spec: ServerSpec,
    name: str = "one",
    heard: Callable[[McpReport], None] = lambda _: None,
) -> tuple[asyncio.Task[Any], Any]:
    """The order that keeps the connection open, and the lists of the server. Raises McpError."""
    lists: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def hear(report: McpReport) -> None:
        if report.kind == "lists" and not lists.done():
            lists.set_result(report.data)
        heard(report)

    order = asyncio.ensure_future(process.carry_out(McpOrder("connect", name, spec=spec), hear))
    await asyncio.wait([order, lists], return_when=asyncio.FIRST_COMPLETED)
    return order, lists.result() if lists.done() else await order
