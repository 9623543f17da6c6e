"""What servers say about their tools: checked and sanitised before it is stored or sent to a model."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from crushpy.context.tags import safe
from crushpy.core.mcp_names import mcp_tool_name
from crushpy.core.messages import Json, shortened
from crushpy.security.private_files import update_stored
from crushpy.security.sanitize import clean, encodable, map_texts, one_line
from crushpy.settings.schema import McpTools
from crushpy.tools.mcp import MAX_DESCRIPTION_CHARS
from crushpy.tools.mcp_server import KnownServer, ToolDefinition

MAX_SCHEMA_BYTES = 50_000
MAX_FOUND = 25
_WORDS = re.compile(r"[^\W_]+")


class _ListedTool(msgspec.Struct):
    """A tool as a server lists it."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    schema: Json = msgspec.field(name="inputSchema")
    description: str | None = None
    title: str | None = None


def read_definitions(
    server: str, tools: Iterable[Any], offered: McpTools
) -> tuple[tuple[ToolDefinition, ...], list[str]]:
    """The usable definitions, and why others are left out."""
    found: dict[str, ToolDefinition] = {}
    problems: list[str] = []
    for listed in tools:
        try:
            tool = msgspec.convert(listed, _ListedTool)
            full_name = mcp_tool_name(server, tool.name)
            if full_name in found:
                raise ValueError("there are two of this name")
            if tool.schema.get("type", "object") != "object":
                raise ValueError("its schema is not that of an object")
            if len(msgspec.json.encode(tool.schema)) > MAX_SCHEMA_BYTES:
                raise ValueError("its schema is larger than 50 kB")
            allowed, denied = (
                any(fnmatchcase(tool.name, pattern) for pattern in patterns)
                for patterns in (offered.allow or ("*",), offered.deny)
            )
            if allowed and not denied:
                text = _sanitized(tool.description or tool.title or "")
                found[full_name] = ToolDefinition(tool.name, text, map_texts(tool.schema, _sanitized))
        except ValueError as error:
            name = cast(Json, listed).get("name") if isinstance(listed, dict) else listed
            problems.append(f"{server}: {one_line(str(name))[:200]} was left out: {error}")
    return tuple(found.values()), problems


def _sanitized(text: str) -> str:
    return shortened(encodable(safe(clean(text)).strip()), MAX_DESCRIPTION_CHARS)


def describe_tool(server: str, tool: ToolDefinition) -> str:
    schema = msgspec.json.format(msgspec.json.encode(tool.schema), indent=1).decode()
    return f"{mcp_tool_name(server, tool.name)}\n{tool.description}\nArguments (JSON schema):\n{schema}"


def definition_diff(
    server: str, before: Mapping[str, ToolDefinition], after: Sequence[ToolDefinition]
) -> str:
    """How the definitions of tools have changed, as a unified diff."""
    lines: list[str] = []
    for tool in after:
        was = describe_tool(server, before[tool.name])
        name = mcp_tool_name(server, tool.name)
        lines += difflib.unified_diff(
            was.splitlines(), describe_tool(server, tool).splitlines(), f"a/{name}", f"b/{name}", lineterm=""
        )
    return "\n".join(lines)


def search_tools(servers: dict[str, Sequence[ToolDefinition]], query: str) -> str:
    """The tools that have the words of the query, those with more of them first; all without words."""
    words = {word.lower() for word in _WORDS.findall(query)}
    ranked: list[tuple[int, str, ToolDefinition]] = []
    for server, tools in servers.items():
        for tool in tools:
            name, text = tool.name.lower(), tool.description.lower()
            score = sum(3 * (word in name or word == server.lower()) + (word in text) for word in words)
            if score or not words:
                ranked.append((-score, server, tool))
    ranked.sort(key=lambda pair: pair[0])
    lines = [
        f"{mcp_tool_name(server, tool.name)}: {one_line(tool.description)[:200]}"
        for _, server, tool in ranked[:MAX_FOUND]
    ]
    if len(ranked) > MAX_FOUND:
        lines.append(f"[{len(ranked) - MAX_FOUND} more; search with other words]")
    return "\n".join(lines)


def store_known(file: Path, server: str, known: KnownServer | None) -> None:
    """Stores what is known of a server, or forgets it. Other processes may do the same."""
    new = {} if known is None else {server: known}
    update_stored(
        file, dict[str, KnownServer], lambda old: {name: old[name] for name in old if name != server} | new
    )
