"""The command about MCP servers: their state, tools and log, a restart."""

from typing import TYPE_CHECKING

from crushpy.core.messages import counted
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ReplyItem
from crushpy.tui.screens.choose import Choice

if TYPE_CHECKING:
    from crushpy.extensions.mcp.hub import Server


class McpCommands(CommandGroup):
    async def mcp(self, argument: str) -> None:
        """Lists the servers; a chosen one shows its tools and its log, or is restarted."""
        servers = self.conversation.mcp
        if not servers.names:
            raise RefusedCommand(
                "No MCP server is configured.", "Add one: crushpy mcp add NAME -- COMMAND ARGS..."
            )
        hub = servers.hub()
        choices = [Choice(name, name, _state(one)) for name, one in hub.servers.items()]
        name = argument.strip() or await self.choose("MCP servers", choices, "Enter shows a server")
        if not name:
            return
        if name not in hub.servers:
            raise RefusedCommand(f"There is no MCP server {name!r}. Configured: {', '.join(hub.servers)}.")
        one = hub.servers[name]
        choices = [
            Choice("tools", "Tools", f"{len(one.tools)}, with their descriptions"),
            Choice("log", "Log", "the last error, and what was left out"),
            Choice("restart", "Restart", "end it if it runs, and start it"),
        ]
        match await self.choose(f"{name}: {_state(one)}", choices, one_line(one.config.command_line)):
            case "tools":
                rows = [f"- `{tool.name}`: {one_line(tool.description)}" for tool in one.tools]
                self.chat.transcript.add(ReplyItem("\n".join(rows) or "Its tools are not known yet."))
            case "log":
                lines = [line for line in (one.error, *one.problems) if line]
                self.say(clean("\n".join(lines)) or f"{name}: nothing went wrong.")
            case "restart":
                if hub.needs_consent(one):
                    raise RefusedCommand("The agent's first call asks you about this server of the project.")
                hub.restart(name)
                self.say(f"{name} is starting.")
            case _:
                pass


def _state(one: "Server") -> str:
    if not one.known:
        return one.state
    tokens = sum(len(tool.description) + len(str(tool.schema)) for tool in one.tools) // 4
    return f"{one.state}, {counted(len(one.tools), 'tool')}, about {tokens:,} tokens if all were offered"
