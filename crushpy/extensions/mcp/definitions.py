"""What servers say about their tools: checked and sanitised before it is stored or sent to a model."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.context.tags import safe
from crushpy.core.mcp_names import mcp_tool_name
from crushpy.core.messages import Json
from crushpy.security.private_files import update_stored
from crushpy.security.sanitize import clean, encodable, map_texts, one_line
from crushpy.settings.schema import McpTools
from crushpy.tools.mcp import MAX_DESCRIPTION_CHARS, KnownServer, ToolDefinition, is_offered

MAX_SCHEMA_BYTES = 50_000
MAX_TOOL_NAME_CHARS = 128
MAX_FOUND = 25
_WORDS = re.compile(r"[^\W_]+")


def read_definitions(
    server: str, tools: Iterable[Any], offered: McpTools
) -> tuple[tuple[ToolDefinition, ...], list[str]]:
    """The usable definitions, and why others are left out."""
    found: dict[str, ToolDefinition] = {}
    problems: list[str] = []
    for one in tools:
        name: Any = one.get("name") if isinstance(one, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_CHARS:
            problems.append(f"{server}: a tool was left out: it has no usable name")
            continue
        tool = cast(Json, one)
        schema: Any = tool.get("inputSchema")
        full_name = mcp_tool_name(server, name)
        shown = one_line(name)
        if full_name in found:
            problems.append(f"{server}: {shown} was left out: there are two of this name")
        elif not isinstance(schema, dict) or schema.get("type", "object") != "object":  # pyright: ignore[reportUnknownMemberType]
            problems.append(f"{server}: {shown} was left out: its schema is not that of an object")
        elif len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            problems.append(f"{server}: {shown} was left out: its schema is larger than 50 kB")
        elif is_offered(name, offered.allow, offered.deny):
            text = tool.get("description") or tool.get("title") or ""
            found[full_name] = ToolDefinition(
                name, _sanitized(str(text)), map_texts(cast(Json, schema), _sanitized)
            )
    return tuple(found.values()), problems


def _sanitized(text: str) -> str:
    text = encodable(safe(clean(text)).strip())
    return text if len(text) <= MAX_DESCRIPTION_CHARS else f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"


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
    ranked.sort(key=lambda one: one[0])
    lines = [
        f"{mcp_tool_name(server, tool.name)}: {one_line(tool.description)[:200]}"
        for _, server, tool in ranked[:MAX_FOUND]
    ]
    if len(ranked) > MAX_FOUND:
        lines.append(f"[{len(ranked) - MAX_FOUND} more; search with other words]")
    return "\n".join(lines)


def store_known(file: Path, server: str, known: KnownServer | None) -> None:
    """Stores what is known of a server, or forgets it. Other processes may do the same."""

    def change(servers: dict[str, KnownServer]) -> dict[str, KnownServer]:
        others = {name: each for name, each in servers.items() if name != server}
        return others if known is None else {**others, server: known}

    update_stored(file, dict[str, KnownServer], change)
