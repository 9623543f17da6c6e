"""What is known of an MCP server: its tools, and its state."""

from typing import Any, Literal

import msgspec

from crushpy.core.messages import Data, Json


class ToolDefinition(Data, frozen=True):
    """A tool as its server describes it, sanitised."""

    name: str
    description: str = ""
    schema: Json = msgspec.field(default_factory=dict[str, Any])


class KnownServer(Data, frozen=True):
    """What is known of a server from the last time it was used."""

    config: str = ""
    """The hash of its configuration: another one is another server."""
    protocol: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()


class McpServer:
    """A server, as front ends show it."""

    def __init__(self, command_line: str, known: KnownServer | None) -> None:
        self.command_line = command_line
        self.known = known
        """What it offers, once that is known."""
        self.state: Literal["unused", "starting", "ready", "failed", "needs login"] = "unused"
        self.error = ""
        self.problems: list[str] = []

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return self.known.tools if self.known else ()
