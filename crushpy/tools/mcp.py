"""Tools of MCP servers: one constant tool that stands for all, and one for each that is offered itself.

The servers are reached through `Workspace.mcp`; nothing here starts one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from crushpy.core.access import Access, ToolAccess
from crushpy.core.mcp_names import BRIDGE, mcp_tool_name
from crushpy.core.messages import Json
from crushpy.tools.base import Args, CallContext, Outcome, Tool, Workspace
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.tools.mcp_server import KnownServer, ToolDefinition

KNOWN_FILE = "servers.json"
MAX_DESCRIPTION_CHARS = 2_000
NATIVE_SHARE = 0.05
"""Of the window: definitions that take more are not sent with every request."""
CHARS_PER_TOKEN = 3
"""A low estimate, for deciding whether definitions fit."""
MAX_DEFERRED_CHARS = 300_000
"""Deferred definitions are part of every request, although not of the window: larger ones are not sent."""


class McpArgs(Args, frozen=True):
    action: Literal["search", "describe", "call"]
    query: Annotated[str, Meta(description="search: words of a name or description; empty lists all.")] = ""
    server: str = ""
    tool: str = ""
    arguments: Annotated[Json, Meta(description="call: the tool's arguments.")] = msgspec.field(
        default_factory=dict[str, Any]
    )


class McpTool(Tool[McpArgs]):
    name = BRIDGE
    args = McpArgs
    access = ToolAccess("none", writes=True)

    def __init__(self, servers: Sequence[str] = ()) -> None:
        """`servers`: the names in the settings, which its description lists."""
        self._servers = servers

    def description(self, template: Callable[[], str]) -> str:
        return f"{template()}\nServers: {', '.join(self._servers)}."

    def runs_in_parallel(self, args: Json) -> bool:
        return args.get("action") != "call"

    def target(self, args: Json, workspace: Workspace) -> str:
        if args.get("action") != "call":
            return ""
        with suppress(ToolError):
            return mcp_tool_name(
                *self._resolve(str(args.get("server", "")), str(args.get("tool", "")), workspace)
            )
        return ""

    def accesses(self, args: McpArgs, context: CallContext) -> tuple[Access, ...]:
        if args.action != "call":
            return (Access(self.name, "none"),)
        server, tool = self._resolve(args.server, args.tool, context.workspace)
        outside = context.workspace.load_mcp().is_of_user(server)
        needed = self.consent(args, context)
        called = Access(mcp_tool_name(server, tool), "none", writes=True, outside=outside)
        return (called, needed.access) if needed else (called,)

    def consent(self, args: McpArgs, context: CallContext) -> ConsentNeeded | None:
        if args.action != "call":
            return None
        server, _ = self._resolve(args.server, args.tool, context.workspace)
        return context.workspace.load_mcp().consent(server)

    async def run(self, args: McpArgs, context: CallContext) -> Outcome:
        service = context.workspace.load_mcp()
        if args.action == "search":
            return Outcome(await service.search(args.query, args.server))
        named = self._resolve(args.server, args.tool, context.workspace)
        if args.action == "describe":
            return Outcome(await service.describe(*named))
        return await service.call(*named, args.arguments, context)

    def _resolve(self, server: str, tool: str, workspace: Workspace) -> tuple[str, str]:
        if not tool:
            raise ToolError("Name the tool: search lists the tools of every server.")
        return workspace.load_mcp().resolve(server, tool)


class NativeMcpTool(McpTool):
    """A server's tool that is offered by its own name."""

    def __init__(self, server: str, definition: ToolDefinition, *, deferred: bool = False) -> None:
        super().__init__()
        self.deferred_by = server if deferred else ""
        self.name = mcp_tool_name(server, definition.name)
        self.definition = definition
        self._server = server

    def description(self, template: Callable[[], str]) -> str:
        return self.definition.description or f"A tool of the MCP server {self._server}."

    def parameters(self) -> Json:
        return {"type": "object", "properties": {}, **self.definition.schema}

    def parse_args(self, args: Json) -> McpArgs:
        return McpArgs("call", server=self._server, tool=self.definition.name, arguments=args)

    def runs_in_parallel(self, args: Json) -> bool:
        return False

    def target(self, args: Json, workspace: Workspace) -> str:
        return self.name

    def _resolve(self, server: str, tool: str, workspace: Workspace) -> tuple[str, str]:
        return server, tool


def mcp_tools(
    servers: Sequence[str], known: Mapping[str, KnownServer], window: int
) -> tuple[McpTool | NativeMcpTool, ...]:
    """The tools for these servers: the bridge, and every single tool if all definitions are known. These are
    offered if they are small together, and deferred otherwise."""
    if not servers:
        return ()
    bridge = McpTool(servers)
    if any(name not in known for name in servers):
        return (bridge,)
    found = [(name, tool) for name in servers for tool in known[name].tools]
    chars = sum(
        len(mcp_tool_name(name, tool.name)) + len(tool.description) + len(msgspec.json.encode(tool.schema))
        for name, tool in found
    )
    if chars > MAX_DEFERRED_CHARS:
        return (bridge,)
    deferred = chars / CHARS_PER_TOKEN > NATIVE_SHARE * window
    return (bridge, *(NativeMcpTool(name, tool, deferred=deferred) for name, tool in found))
