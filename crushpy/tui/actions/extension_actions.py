"""Commands about extensions: skills, sub-agents, rules files, MCP servers, and commands that users wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.errors import UsageError
from crushpy.core.messages import counted
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ReplyItem
from crushpy.tui.screens.choose import Choice
from crushpy.tui.textual_adapter import app_of

if TYPE_CHECKING:
    from crushpy.extensions.mcp.hub import Server


class ExtensionCommands(CommandGroup):
    async def slash(self, argument: str) -> None:
        """Sends the prompt that `/name arguments` stands for."""
        try:
            command = await self.conversation.expand_command(argument.strip())
        except UsageError as error:
            raise RefusedCommand(str(error)) from None
        if command is None:
            raise RefusedCommand(f"There is no such command: {argument}", "/help lists all commands.")
        images = self.chat.attachments.take()
        self.conversation.submit(command.text, images, pasted=(command.text,), model=command.model)

    async def skills(self, argument: str) -> None:
        await self._files("Skills and commands", ("skills", "commands"))

    async def agents(self, argument: str) -> None:
        await self._files("Sub-agents", ("agents",))

    async def _files(self, title: str, kinds: Sequence[str]) -> None:
        found = [one for kind in kinds for one in self.conversation.commands.find(kind)]
        rows = [
            Choice(str(one.file), one.name, f"{one.status}: {one_line(one.reason or one.description)}")
            for one in found
        ]
        await self._open(title, rows)

    async def memory(self, argument: str) -> None:
        files = await self.conversation.context.memory()
        rows = [Choice(one.path, one.path, f"{one.why}, {one.tokens:,} tokens") for one in files]
        await self._open("Rules files in the context", rows)

    async def _open(self, title: str, rows: list[Choice]) -> None:
        """Lists files; a chosen one is opened in the editor."""
        if not rows:
            what = f"There are no {title[0].lower()}{title[1:]}."
            raise RefusedCommand(what, "docs/extensions.md names the folders; a project has to be trusted.")
        chosen = await self.choose(title, rows, "Enter opens it in your editor")
        if chosen is None:
            return
        from crushpy.tui.widgets.external_editor import edit_outside

        file = Path(self.chat.options.cwd, chosen)
        before = file.read_text(encoding="utf-8", errors="surrogateescape")
        after = await edit_outside(app_of(self.chat), before)
        if after != before.removesuffix("\n"):
            file.write_text(f"{after}\n", encoding="utf-8", errors="surrogateescape")
            self.say(f"{chosen} was changed.")

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
