"""Commands about settings and extensions: model, permissions, theme, trust; skills, MCP servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from crushpy.core.access import Mode
from crushpy.core.app_commands import MODE_VALUES, next_value
from crushpy.core.messages import counted
from crushpy.security.sanitize import clean, one_line
from crushpy.tools.errors import ConsentNeeded
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.items import ReplyItem
from crushpy.tui.screens.choose import Choice
from crushpy.tui.terminal.terminal_features import count_colours
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.themes import fitting_theme

if TYPE_CHECKING:
    from crushpy.core.extension_file import FileKind
    from crushpy.tools.mcp_server import McpServer

NO_SERVER = "No MCP server is configured. Add one: crushpy mcp add NAME -- COMMAND ARGS..."
ALWAYS = "always"
"""After a model's name: also for new conversations."""


class SettingsCommands(CommandGroup):
    async def switch_model(self, argument: str) -> None:
        conversation, words = self.conversation, argument.split()
        for_all = ALWAYS in words
        name: str | None = " ".join(word for word in words if word != ALWAYS)
        if for_all and not name:
            name = conversation.info.model
        if not name:
            from crushpy.tui.screens.models import ModelsScreen

            name = await self.show(ModelsScreen(conversation.settings, conversation.info.model))
        if not name:
            return
        await conversation.choices.select_model(name, for_all=for_all)
        scope = f"in this conversation. /model {name} {ALWAYS} selects it for new ones as well"
        scope = "in this conversation and in new ones" if for_all else scope
        self.say(f"Model: {name}, from the next request, {scope}.")

    async def effort(self, argument: str) -> None:
        chosen = await self.choose_value("effort", argument, self.conversation.settings.effort)
        if chosen is not None:
            self.conversation.choices.select_effort(chosen.value)
            self.say(f"Thinking effort: {chosen.title.lower()}.")

    async def budget(self, argument: str) -> None:
        self.say(await self.conversation.spending.choose(argument))

    async def switch_mode(self, argument: str) -> None:
        """Without a name, the next mode."""
        mode = argument or next_value(MODE_VALUES, self.conversation.approvals.mode)
        chosen = await self.choose_value("switch_mode", mode, self.conversation.approvals.mode)
        if chosen is not None:
            await self.conversation.choices.select_mode(cast(Mode, chosen.value))

    async def toggle_yolo(self, argument: str) -> None:
        on = self.conversation.choices.toggle_yolo()
        self.chat.chip.yolo = on
        what = "on: everything that is not denied runs without asking" if on else "off: crushpy asks again"
        self.say(f"Yolo is {what}.")

    async def theme(self, argument: str) -> None:
        app, name = app_of(self.chat), argument.strip()
        if not name:
            choices = [
                Choice(theme, theme, current=theme == app.theme) for theme in sorted(app.available_themes)
            ]
            name = await self.choose("Theme", choices)
        if not name:
            return
        if name in ("light", "dark"):
            name = fitting_theme(light=name == "light", colours=count_colours())
        if name not in app.available_themes:
            raise RefusedCommand(f"There is no theme {name!r}. /theme lists all themes.")
        app.theme = name
        if self.chat.conversation is not None:
            self.chat.conversation.user_settings.save_choice("theme", name)

    async def vim(self, argument: str) -> None:
        editing = "plain" if self.chat.prompt.has_vim_keys else "vim"
        self.chat.prompt.edit_like(editing)
        self.conversation.user_settings.save_choice("editing", editing)
        self.say("The prompt is edited " + ("with the keys of vim." if editing == "vim" else "as usual."))

    async def connect(self, argument: str) -> None:
        from crushpy.tui.screens.connect import ConnectScreen

        settings = self.conversation.settings
        model = await self.show(ConnectScreen(settings, argument.strip()))
        if model:
            first = not settings.model  # the first model is meant for new conversations as well
            await self.switch_model(f"{model} {ALWAYS}" if first else model)

    async def trust(self, argument: str) -> None:
        from crushpy.core.paths import Paths, project_root
        from crushpy.extensions.hooks.hook_config import accept_hooks
        from crushpy.permissions.trust import add_trusted, list_project_files
        from crushpy.tui.actions.sessions import SessionCommands

        self.require_idle()
        root = project_root(Path(self.chat.options.cwd))
        lines = [*list_project_files(root), *accept_hooks(Paths(), root, only_list=True)]
        self.say("This project provides\n" + "\n".join(lines))
        choices = [Choice("yes", "Trust it: use what it brings"), Choice("no", "Cancel")]
        if await self.choose("Trust This Project", choices) == "yes":
            add_trusted(Paths(), root, "/trust")
            accept_hooks(Paths(), root, how="/trust")
            if self.conversation.workspace.jobs.running():  # they would end
                self.say("Trusted: this project. Jobs are running: what it brings is used from /new.")
                return
            later = "; its skills and rules from /new" if self.conversation.history else ""
            self.chat.warnings.clear()
            await SessionCommands(self.chat).reopen()
            self.say(f"Trusted: this project. What it brings is used now{later}.")


class ExtensionCommands(CommandGroup):
    async def slash(self, argument: str) -> None:
        """Sends the prompt that `/name arguments` stands for."""
        command = await self.conversation.prompts.expand_command(argument.strip())
        if command is None:
            raise RefusedCommand(f"There is no such command: {argument}", "/help lists all commands.")
        images = self.chat.attachments.take()
        self.conversation.submit(
            command.text,
            images,
            pasted=(command.text,),
            block="file",
            model=command.model,
            typed=argument.strip(),
        )

    async def skills(self, argument: str) -> None:
        await self._files("Skills and commands", ("skills", "commands"))

    async def agents(self, argument: str) -> None:
        await self._files("Sub-agents", ("agents",))

    async def _files(self, title: str, kinds: "Sequence[FileKind]") -> None:
        rows = [
            Choice(str(file.file), file.name, f"{file.status}: {one_line(file.reason or file.description)}")
            for kind in kinds
            for file in self.conversation.commands.find(kind)
        ]
        await self._open(title, rows)

    async def memory(self, argument: str) -> None:
        files = await self.conversation.context.memory()
        rows = [Choice(file.path, file.path, f"{file.why}, {file.tokens:,} tokens") for file in files]
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
            raise RefusedCommand(servers.unused or NO_SERVER)
        hub = servers.hub()
        choices = [Choice(name, name, _state(server)) for name, server in hub.servers.items()]
        hint = "\n".join(filter(None, ("Enter shows a server", servers.unused)))
        name = argument.strip() or await self.choose("MCP servers", choices, hint)
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
        match await self.choose(f"{name}: {_state(one)}", choices, one_line(one.command_line)):
            case "tools":
                rows = [f"- `{tool.name}`: {one_line(tool.description)}" for tool in one.tools]
                self.chat.transcript.add(ReplyItem("\n".join(rows) or "Its tools are not known yet."))
            case "log":
                lines = [line for line in (one.error, *one.problems) if line]
                self.say(clean("\n".join(lines)) or f"{name}: nothing went wrong.")
            case "restart":
                try:
                    hub.restart(name)
                except ConsentNeeded as needed:
                    if not await self.conversation.approvals.ask_to_accept(needed):
                        return
                    hub.restart(name)
                self.say(f"{name} is starting.")
            case _:
                pass


def _state(one: "McpServer") -> str:
    if not one.known:
        return one.state
    tokens = sum(len(tool.description) + len(str(tool.schema)) for tool in one.tools) // 4
    return f"{one.state}, {counted(len(one.tools), 'tool')}, about {tokens:,} tokens if all were offered"
