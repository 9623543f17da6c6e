"""The MCP servers of a conversation, before any of them is needed: their names, and the tools to offer."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.access import Privileges
from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.events import Emit, Notice
from crushpy.core.mcp_names import PROJECT_FILE, mcp_tool_name
from crushpy.core.messages import Data, Json
from crushpy.engine.runtime import AskUser
from crushpy.sandbox.supervisor_handle import Wrapper
from crushpy.security.private_files import read_stored
from crushpy.settings.schema import McpServerSettings
from crushpy.tools.errors import ToolError
from crushpy.tools.mcp import KNOWN_FILE, McpTool, mcp_tools
from crushpy.tools.mcp_server import KnownServer
from crushpy.tools.shell.jobs import Jobs
from crushpy.util.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from crushpy.extensions.mcp.configuration import ServerConfig
    from crushpy.extensions.mcp.hub import McpHub

MAX_FIELDS, MAX_FORM_BYTES = 50, 20_000
"""Of a form: a person reads it, and the screen draws it at once."""
_SECRET = lazy_pattern(r"passw|passphrase|secret|token|api.?key|credential|\bpin\b", re.IGNORECASE)

_WEB_PAGE = lazy_pattern(r"https?://[^\s\x00-\x1f\x7f]+")


class _Field(Data, frozen=True):
    """What the screen of a form relies on."""

    title: str = ""
    enum: tuple[str | float | bool, ...] | None = None


class _Form(Data, frozen=True):
    properties: dict[str, _Field] = msgspec.field(default_factory=dict[str, _Field])
    required: tuple[str, ...] | None = None


class McpServers:
    """Reads the configuration; the code that talks to servers is imported with the first call."""

    def __init__(self, environment: ProjectEnvironment, jobs: Jobs, emit: Emit = lambda _: None) -> None:
        """`jobs` runs the servers of projects in the sandbox."""
        self._environment, self._jobs, self._emit = environment, jobs, emit
        self._hub: McpHub | None = None
        self._configs: dict[str, ServerConfig] | None = None
        self._ask: AskUser | None = None
        self.problems: list[str] = []
        """What is wrong with the configuration."""
        root = environment.root
        self._own = {} if environment.copy else environment.settings.mcp
        if (environment.trusted and (root / PROJECT_FILE).exists()) or environment.paths.plugins.is_dir():
            self.names: Sequence[str] = list(self.configs())
        else:
            self.names = [name for name, server in self._own.items() if server.enabled]

    def configs(self) -> "dict[str, ServerConfig]":
        if self._configs is None:
            self._configs, self.problems = self._read_configs()
        return self._configs

    def _read_configs(self) -> "tuple[dict[str, ServerConfig], list[str]]":
        from crushpy.extensions.mcp.configuration import configured_servers

        environment = self._environment
        root = environment.root if environment.trusted else None
        plugins = [place.folder for place in environment.extensions.places if place.plugin]
        return configured_servers(self._own, root, plugins, environment.editor_servers, environment.original)

    @property
    def unused(self) -> str:
        environment, file = self._environment, self._environment.root / PROJECT_FILE
        if not file.exists() or environment.copy:
            return "\n".join(self.problems)
        if not environment.trusted:
            return (
                f"{PROJECT_FILE} is not used: this project is not trusted. Run `/trust` or `crushpy trust`."
            )
        now, problems = self._read_configs()
        new = f"{PROJECT_FILE} has changed since this conversation was opened: /new uses what is there now."
        said = [new] if list(now.items()) != list(self.configs().items()) else []
        none = f"{PROJECT_FILE} of this project names no server: see docs/mcp.md for its form."
        return "\n".join([*said, *problems]) or ("" if self.names else none)

    def tools(self, window: int | None) -> tuple[McpTool, ...]:
        """The tools to offer, decided from what is known of the servers."""
        return mcp_tools(self.names, self._known(), window or DEFAULT_WINDOW)

    @property
    def prompts(self) -> list[tuple[str, str]]:
        return [
            (mcp_tool_name(server, str(prompt.get("name"))), str(prompt.get("description", "")))
            for server, known in self._known().items()
            for prompt in known.prompts
        ]

    async def prompt(self, name: str, words: Sequence[str]) -> str:
        """The text of a server's prompt, with its arguments in order."""
        hub = self.hub()
        server, prompt = hub.resolve("", name)
        known = hub.servers[server].known
        prompts = {prompt["name"]: prompt["arguments"] for prompt in (known.prompts if known else ())}
        names: Sequence[str] = prompts.get(prompt, ())
        return await hub.read(server, prompt, "prompt", dict(zip(names, words, strict=False)))

    @property
    def resources(self) -> list[tuple[str, str]]:
        return [
            (f"{server}:{entry['uri']}", str(entry.get("name") or ""))
            for server, known in self._known().items()
            for entry in known.resources
            if str(entry.get("uri", "")).isprintable() and " " not in entry["uri"]
        ]

    def _known(self) -> dict[str, KnownServer]:
        file = self._environment.paths.mcp / KNOWN_FILE
        known = read_stored(file, dict[str, KnownServer]) if self.names else None
        return {name: known[name] for name in self.names if name in known} if known else {}

    def answer_with(self, ask: AskUser) -> None:
        self._ask = ask

    async def _elicit(self, server: str, question: Json) -> Json:
        """Refused without a front end, if the server wants a secret, for a form that is too large to read,
        and for a page of another kind than a web page."""
        schema: Any = question.get("requestedSchema") or {}  # a question that opens a page has none
        is_page = "url" in question and not _WEB_PAGE.fullmatch(str(question["url"]))
        try:
            fields = msgspec.convert(schema, _Form).properties
        except msgspec.ValidationError:
            return {"action": "decline"}
        secret = any(_SECRET.search(f"{name} {field.title}") for name, field in fields.items())
        is_large = len(fields) > MAX_FIELDS or len(msgspec.json.encode(schema)) > MAX_FORM_BYTES
        if self._ask is None or is_large or secret or is_page:
            return {"action": "decline"}
        return await self._ask(server, question)

    def hub(self) -> "McpHub":
        """The servers, made by the first call."""
        if self._hub is not None:
            return self._hub
        from crushpy.extensions.mcp.hub import McpHub

        environment = self._environment

        def confine(settings: McpServerSettings) -> Wrapper:
            try:
                return self._jobs.confinement.wrapper(Privileges(network=settings.network))
            except OSError as error:
                raise ToolError(f"The MCP server cannot be started: {error}.") from None

        self._hub = McpHub(
            self.configs(),
            environment.cwd,
            environment.paths,
            confine,
            private_hosts=environment.settings.permissions.private_hosts,
            elicit=self._elicit,
        )
        for problem in self.problems:
            self._emit(Notice(problem, "warning"))
        return self._hub

    async def close(self) -> None:
        if self._hub is not None:
            await self._hub.close()
