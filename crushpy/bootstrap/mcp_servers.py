"""The MCP servers of a conversation, before any of them is needed: their names, and the tools to offer."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.access import Privileges
from crushpy.core.events import Notice
from crushpy.core.mcp_names import PROJECT_FILE, mcp_tool_name
from crushpy.core.messages import Json
from crushpy.engine.event_bus import EventBus
from crushpy.engine.runtime import AskUser
from crushpy.settings.schema import McpServerSettings
from crushpy.tools.errors import ToolError
from crushpy.tools.mcp import KNOWN_FILE, KnownServer, McpTool, mcp_tools, read_known_servers
from crushpy.tools.shell.jobs import Jobs

if TYPE_CHECKING:
    from crushpy.extensions.mcp.configuration import ServerConfig
    from crushpy.extensions.mcp.hub import McpHub

ASSUMED_WINDOW = 128_000
_SECRET = re.compile(r"passw|passphrase|secret|token|api.?key|credential|\bpin\b", re.IGNORECASE)


class McpServers:
    """Reads the configuration; the code that talks to servers is imported with the first call."""

    def __init__(self, environment: ProjectEnvironment) -> None:
        self._environment = environment
        self._hub: McpHub | None = None
        self._make: Callable[[], McpHub] | None = None
        self._configs: dict[str, ServerConfig] | None = None
        self.ask: AskUser | None = None
        self.problems: list[str] = []
        """What is wrong with the configuration."""
        root = environment.root
        if (environment.trusted and (root / PROJECT_FILE).exists()) or environment.paths.plugins.is_dir():
            self.names: Sequence[str] = list(self.configs())
        else:
            self.names = [name for name, one in environment.settings.mcp.items() if one.enabled]

    def configs(self) -> "dict[str, ServerConfig]":
        from crushpy.extensions.mcp.configuration import configured_servers

        if self._configs is None:
            root = self._environment.root if self._environment.trusted else None
            plugins = [one.folder for one in self._environment.extensions.places if one.plugin]
            self._configs, self.problems = configured_servers(
                self._environment.settings.mcp, root, plugins, self._environment.editor_servers
            )
        return self._configs

    def tools(self, window: int | None) -> tuple[McpTool, ...]:
        """The tools to offer, decided from what is known of the servers."""
        if not self.names:
            return ()
        known = read_known_servers(self._file)
        return mcp_tools(self.names, known, window or ASSUMED_WINDOW)

    @property
    def prompts(self) -> list[tuple[str, str]]:
        return [
            (mcp_tool_name(server, str(prompt.get("name"))), str(prompt.get("description", "")))
            for server, one in self._known()
            for prompt in one.prompts
        ]

    async def prompt(self, name: str, words: Sequence[str]) -> str:
        """The text of a server's prompt, with its arguments in order."""
        hub = self.hub()
        server, prompt = hub.resolve("", name)
        known = hub.servers[server].known
        names: list[str] = []
        for one in known.prompts if known else ():
            names = one["arguments"] if one["name"] == prompt else names
        return await hub.prompt(server, prompt, dict(zip(names, words, strict=False)))

    @property
    def resources(self) -> list[tuple[str, str]]:
        return [
            (f"{server}:{entry['uri']}", str(entry.get("name") or ""))
            for server, one in self._known()
            for entry in one.resources
            if str(entry.get("uri", "")).isprintable() and " " not in entry["uri"]
        ]

    def _known(self) -> list[tuple[str, KnownServer]]:
        known = read_known_servers(self._file) if self.names else {}
        return [(name, known[name]) for name in self.names if name in known]

    @property
    def _file(self) -> Path:
        return self._environment.paths.mcp / KNOWN_FILE

    async def _elicit(self, server: str, question: Json) -> Json:
        """Refused without a front end, and if the server wants a secret."""
        if self.ask is None or _wants_secret(question):
            return {"action": "decline"}
        return await self.ask(server, question)

    def connect(self, jobs: Jobs, events: EventBus) -> "Callable[[], McpHub]":
        """A function that returns the servers, made by its first call."""
        self._make = lambda: self._make_hub(jobs, events)
        return self.hub

    def hub(self) -> "McpHub":
        if self._hub is None:
            assert self._make is not None
            self._hub = self._make()
        return self._hub

    def _make_hub(self, jobs: Jobs, events: EventBus) -> "McpHub":
        from crushpy.extensions.mcp.hub import McpHub

        environment = self._environment

        def confine(command: tuple[str, ...], settings: McpServerSettings) -> list[str]:
            try:
                return jobs.confinement.wrap(command, Privileges(network=settings.network))
            except OSError as error:
                raise ToolError(f"The MCP server cannot be started: {error}.") from None

        hub = McpHub(
            self.configs(),
            environment.cwd,
            environment.paths.mcp,
            confine,
            private_hosts=environment.settings.permissions.private_hosts,
            elicit=self._elicit,
        )
        for problem in self.problems:
            events(Notice(problem, "warning"))
        return hub

    async def close(self) -> None:
        if self._hub is not None:
            await self._hub.close()


def _wants_secret(question: Json) -> bool:
    """Whether a form has a field for a password or key. A question that only opens a page has none."""
    schema: Json = question.get("requestedSchema") or {}
    fields: dict[str, Json] = schema.get("properties") or {}
    return any(_SECRET.search(f"{name} {field.get('title', '')}") for name, field in fields.items())
