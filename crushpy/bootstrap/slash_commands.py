"""The commands of users, projects and plugins, and the prompts of MCP servers, as prompts for the agent."""

import re
import shlex
from collections.abc import Sequence

from crushpy.bootstrap.mcp_servers import McpServers
from crushpy.bootstrap.user_extensions import UserExtensions
from crushpy.core.app_commands import AppCommand
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice
from crushpy.core.ids import new_id
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.core.messages import ToolCall
from crushpy.engine.agents.agent import Agent
from crushpy.engine.event_bus import EventBus
from crushpy.engine.runtime import CommandPrompt
from crushpy.llm.errors import ModelError
from crushpy.security.sanitize import one_line
from crushpy.tools.base import CallContext
from crushpy.tools.bash import BashTool
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.tools.view import ViewArgs, ViewTool
from crushpy.util.lazy_pattern import lazy_pattern

_MARK = lazy_pattern(r"!`([^`\n]+)`|\$(ARGUMENTS|[1-9])(?!\w)|(?<!\S)@(\$ARGUMENTS|\$[1-9]|[\w~./-]*\w)")
"""A shell command, an argument, or a file."""
_ARGUMENT = lazy_pattern(r"([\"']?)\$(ARGUMENTS|[1-9])(?!\w)\1")
_PLAIN_WORD = lazy_pattern(r"[\w./:@%+=, -]*")
_QUOTING = lazy_pattern(r"[\"'\\]|\$\(|<<")


class SlashCommands:
    """Nothing is read until a command is listed or called."""

    def __init__(
        self, extensions: UserExtensions, servers: McpServers, agent: Agent, events: EventBus
    ) -> None:
        self._extensions, self._servers, self.find = extensions, servers, extensions.find
        self._agent, self._services, self._events = agent, agent.scope.services, events

    def listed(self) -> list[AppCommand]:
        """All of them, for the palette and the completion."""
        found = [AppCommand(name, "slash", one_line(text)[:80], name) for name, text in self._servers.prompts]
        for name, command in self._extensions.commands().items():
            folder, hint = command.file.parent.name, command.document.text("argument-hint")
            below = command.kind == "commands" and folder != command.kind and ":" not in name
            aliases = (f"{folder}:{name}",) if below else ()
            found.append(
                AppCommand(name, "slash", one_line(command.description)[:80], name, hint, "", aliases)
            )
        return found

    async def expand(self, text: str) -> CommandPrompt | None:
        """The prompt that `/name arguments` stands for; None if there is no such command."""
        name, *rest = text.removeprefix("/").split(maxsplit=1) or [""]
        arguments = rest[0].strip() if rest else ""
        try:
            if name.startswith(MCP_PREFIX) and self._servers.names:
                return CommandPrompt(await self._servers.prompt(name, _words(arguments)))
        except (ToolError, ConsentNeeded) as error:
            raise UsageError(str(error)) from None
        commands = self._extensions.commands()
        folder, _, short = name.rpartition(":")
        command = commands.get(name) or commands.get(short)
        if command is None or (name not in commands and command.file.parent.name != folder):
            return None
        body = self._extensions.text(command)
        words, parts, files, start = _words(arguments), list[str](), list[str](), 0
        for found in _MARK.finditer(body):  # once: what an argument holds is not expanded
            parts.append(body[start : found.start()])
            start = found.end()
            if found[1]:
                parts.append(await self._run(name, found[1], words, arguments))
            elif found[2]:
                parts.append(_argument(found[2], words, arguments))
            else:
                file = found[3]
                file = _argument(file[1:], words, arguments) if file.startswith("$") else file
                parts.append(f"@{file}")
                files.append(await self._read(file))
        parts.append(body[start:])
        if arguments and not re.search(r"\$(?:ARGUMENTS|[1-9])", body):
            parts.append(f"\n\nARGUMENTS: {arguments}")
        model = await self._model(name, command.document.text("model"))
        return CommandPrompt("".join((*parts, *files)).strip(), model)

    async def _model(self, name: str, model: str) -> str:
        """The model that a command asks for; empty if it cannot be used, which the user is told."""
        if not model or model == "inherit":
            return ""
        try:
            self._agent.scope.models.require_known(model)
            await self._agent.scope.models.prepare(model, tools=True)
        except ModelError as error:
            self._events(Notice(f"/{name}: {error.message} Yours is used.", "warning"))
            return ""
        return model

    async def _run(self, name: str, template: str, words: Sequence[str], arguments: str) -> str:
        """The output of a command in the text. It is judged like a call of the agent."""
        used = [_argument(found[2], words, arguments) for found in _ARGUMENT.finditer(template)]
        line = _ARGUMENT.sub(lambda found: _quoted(found[2], words, arguments), template)
        if not all(map(_PLAIN_WORD.fullmatch, used)) and _QUOTING.search(_ARGUMENT.sub("", template)):
            return self._not_run(name, line, "an argument has characters that cannot be quoted inside it")
        if not self._services.trusted:
            return self._not_run(name, line, "the project is not trusted")
        self._events(Notice(f"/{name} runs: {line}"), now=True)
        call = ToolCall(new_id(), "bash", {"command": line})
        try:
            return await self._agent.tools.run_for_user(call, BashTool())
        except (ToolError, OSError) as error:
            return self._not_run(name, line, str(error))

    def _not_run(self, name: str, line: str, why: str) -> str:
        self._events(Notice(f"/{name}: `{line}` was not run: {why}", "warning"), now=True)
        return f"[`{line}` was not run: {why}]"

    async def _read(self, file: str) -> str:
        """The content of a file that the text names; empty if it cannot be read without a question."""
        context, args = CallContext(self._services.workspace), ViewArgs(file)
        try:
            if self._services.approvals.judge(ViewTool().accesses(args, context)).verdict == "allow":
                return f"\n\nContents of {file}:\n{(await ViewTool().run(args, context)).text}"
        except (ToolError, OSError):
            pass
        return ""


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # quotes that do not close
        return arguments.split()


def _quoted(name: str, words: Sequence[str], arguments: str) -> str:
    return shlex.join(words) if name == "ARGUMENTS" else shlex.quote(_argument(name, words, arguments))


def _argument(name: str, words: Sequence[str], arguments: str) -> str:
    if name == "ARGUMENTS":
        return arguments
    return words[int(name) - 1] if int(name) <= len(words) else ""
