"""The names of tools of MCP servers: `mcp__server__tool`, valid for every provider."""

import re
from typing import Any

BRIDGE = "mcp"
"""The tool that stands for the tools of all servers."""
MCP_PREFIX = "mcp__"
PROJECT_FILE = ".mcp.json"
MAX_NAME_CHARS = 64
"""The shortest limit among providers."""
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


def mcp_tool_name(server: str, tool: str) -> str:
    """The name of a server's tool in rules, approvals and requests."""
    plain = f"{MCP_PREFIX}{server}__{tool}"
    name = _INVALID.sub("_", plain)
    if name == plain and len(name) <= MAX_NAME_CHARS:
        return name
    import hashlib

    digest = hashlib.sha256(plain.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest}"


def is_server_tool(name: str) -> bool:
    return name == BRIDGE or name.startswith(MCP_PREFIX)


def called_tool(name: str, args: dict[str, Any]) -> str:
    """The tool that a call runs: for the bridge the one that it names, as far as the arguments tell."""
    if name != BRIDGE or args.get("action") != "call":
        return name
    server, tool = str(args.get("server") or ""), str(args.get("tool") or "")
    if tool.startswith(MCP_PREFIX):
        return tool
    return mcp_tool_name(server, tool) if server else f"{MCP_PREFIX}{tool}"
