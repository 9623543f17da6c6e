"""The MCP servers of one conversation: started when first needed, their tools called through the process."""

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from crushpy.core.access import Access
from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.mcp_names import MCP_PREFIX, mcp_tool_name
from crushpy.core.messages import Diff, Image, Json
from crushpy.core.paths import Paths
from crushpy.extensions.mcp import definitions
from crushpy.extensions.mcp.configuration import ServerConfig, expanded
from crushpy.extensions.mcp.login_index import wants_login
from crushpy.extensions.mcp.mcp_process import Heard, McpError, McpProcess, login_needed
from crushpy.extensions.mcp.wire import McpOrder, McpReport, ServerSpec, Verb
from crushpy.permissions.consents import Kind, add_consent, find_consent, has_consent, show_difference
from crushpy.sandbox.supervisor_handle import Wrapper
from crushpy.security.private_files import read_stored
from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable, one_line
from crushpy.settings.schema import McpServerSettings
from crushpy.tools.base import CallContext, Outcome
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.tools.mcp import KNOWN_FILE
from crushpy.tools.mcp_server import KnownServer, McpServer, ToolDefinition
from crushpy.tools.shell.child_environment import child_environment, loads_code
from crushpy.tools.shell.command_output import Output, describe_output
from crushpy.tools.truncate import truncate
from crushpy.util.images import image_type, scale_image
from crushpy.util.spawn import spawn

SEARCH_WAIT_S = 10.0
"""How long a search of several servers waits for those whose tools are not known yet."""
MAX_PROBLEMS = 50


class Server(McpServer):
    def __init__(self, config: ServerConfig, known: KnownServer | None) -> None:
        super().__init__(config.command_line, known if known and known.config == config.digest else None)
        self.config = config
        self.opened: asyncio.Future[None] | None = None
        """Done once it is connected, or has failed."""
        self.connection: asyncio.Task[None] | None = None
        """Runs while it is connected."""
        self.process: McpProcess | None = None
        self.wire_name = ""
        """Its name in that process, which all conversations share; each connection has another."""

    async def order(
        self, verb: Verb, name: str, arguments: Json | None = None, heard: Heard = lambda _: None
    ) -> Json:
        assert self.process is not None
        return await self.process.carry_out(McpOrder(verb, self.wire_name, name, arguments or {}), heard)

    def find(self, tool: str) -> ToolDefinition | None:
        return next((each for each in self.tools if each.name == tool), None)


class McpHub(msgspec.Struct, eq=False):
    """What the tools of `tools/mcp.py` use."""

    configs: Mapping[str, ServerConfig]
    cwd: Path
    paths: Paths
    confine: Callable[[McpServerSettings], Wrapper]
    """Gets the sandbox to run a server in. Raises ToolError if there is none."""
    private_hosts: bool
    elicit: Callable[[str, Json], Awaitable[Json]]
    """Asks the user what a server wants to know; returns the answer in the form of the protocol."""

    servers: dict[str, Server] = {}

    def __post_init__(self) -> None:
        known = read_stored(self.paths.mcp / KNOWN_FILE, dict[str, KnownServer]) or {}
        self.servers = {name: Server(config, known.get(name)) for name, config in self.configs.items()}

    def resolve(self, server: str, tool: str) -> tuple[str, str]:
        for name, running in self.servers.items():
            if tool.startswith(f"{MCP_PREFIX}{name}__") and server in ("", name):
                plain = tool.removeprefix(f"{MCP_PREFIX}{name}__")
                known = next(
                    (each.name for each in running.tools if mcp_tool_name(name, each.name) == tool), plain
                )
                return name, known
        if server:
            self._find(server)
            return server, tool
        tool = tool.removeprefix(MCP_PREFIX)
        having = [name for name, running in self.servers.items() if running.find(tool)]
        if len(having) == 1 or len(self.servers) == 1:
            return (having or list(self.servers))[0], tool
        if having:
            raise ToolError(f"Several servers have a tool {tool!r}: {', '.join(having)}. Name the server.")
        raise ToolError(
            f"No known tool is named {tool!r}. Search for it, or name its server: {', '.join(self.servers)}."
        )

    def is_of_user(self, server: str) -> bool:
        return self._find(server).config.origin == "user"

    def _find(self, name: str) -> Server:
        if name not in self.servers:
            known = ", ".join(self.servers) or "none"
            raise ToolError(f"There is no MCP server {name!r}. Configured: {known}.")
        return self.servers[name]

    # --- actions -----------------------------------------------------------------------------------------

    async def search(self, query: str, server: str) -> str:
        wanted = [self._find(server)] if server else list(self.servers.values())
        opening = [
            self._open(asked) for asked in wanted if asked.known is None and not self.needs_consent(asked)
        ]
        if opening:
            await asyncio.wait(opening, timeout=SEARCH_WAIT_S if len(wanted) > 1 else None)
        found = definitions.search_tools(
            {asked.config.name: asked.tools for asked in wanted if asked.known}, query
        )
        lines = [found or "No tool matches."]
        for asked in wanted:
            if asked.known is None:
                why = asked.error or (
                    "it has not been started" if asked.state == "unused" else "it is starting"
                )
                lines.append(f"[{asked.config.name}: its tools are not known: {why}]")
            lines += [f"[{problem}]" for problem in asked.problems[:5]]
        return "\n".join(lines)

    async def describe(self, server: str, tool: str) -> str:
        return definitions.describe_tool(server, await self._definition(self._find(server), tool))

    async def call(self, server: str, tool: str, arguments: Json, context: CallContext) -> Outcome:
        one = await self.connect(server, context.emit)
        self._check_accepted(one, await self._definition(one, tool))

        def heard(report: McpReport) -> None:
            done, total = f"{report.data.get('progress', 0):g}", report.data.get("total")
            done += f" of {total:g}" if total else ""
            context.emit(one_line(f"{done} {report.data.get('message') or ''}".strip())[:200] + "\n")

        return to_outcome(server, await one.order("call", tool, arguments, heard), context)

    async def read(
        self, server: str, name: str, verb: Literal["read", "prompt"] = "read", arguments: Json | None = None
    ) -> str:
        """The text of a resource, or of a prompt."""
        data = await (await self.connect(server)).order(verb, name, arguments)
        text = "\n\n".join(str(each["text"]) for each in data["content"] if each.get("text"))
        return redact(truncate(text).text)

    async def login(self, name: str, show: Callable[[str], None]) -> None:
        """Logs in to an HTTP server; `show` gets the address of the login page. Raises McpError."""
        order = McpOrder("login", name, spec=self._spec(self._find(name).config))
        await McpProcess.shared().carry_out(order, lambda said: show(said.data["url"]))

    def restart(self, name: str) -> None:
        one = self._find(name)
        if needed := self.consent(name, restarts=True):
            raise needed
        self._disconnect(one)
        self._open(one)

    async def close(self) -> None:
        for server in self.servers.values():
            self._disconnect(server)

    # --- connections -------------------------------------------------------------------------------------

    async def connect(self, name: str, emit: Callable[[str], None] = lambda _: None) -> Server:
        """Waits for a connection, and says so with `emit`. Raises ToolError or ConsentNeeded."""
        one = self._find(name)
        if needed := self.consent(name):
            raise needed
        opened, began = self._open(one), time.monotonic()
        while not opened.done():
            await asyncio.wait([opened], timeout=1.0)
            if not opened.done():
                emit(f"waiting for the MCP server {name}, {time.monotonic() - began:.0f} s\n")
        if one.state != "ready":
            raise ToolError(one.error or f"The MCP server {name} did not start.")
        return one

    def _open(self, one: Server) -> "asyncio.Future[None]":
        if one.opened is None or (one.opened.done() and one.state != "ready"):
            one.state, one.error = "starting", ""
            one.opened = asyncio.get_running_loop().create_future()
            one.connection = spawn(self._keep_open(one, one.opened))
        return one.opened

    def _disconnect(self, one: Server) -> None:
        if one.connection is not None:
            one.connection.cancel()
        one.state, one.opened = "unused", None

    async def _keep_open(self, one: Server, opened: "asyncio.Future[None]") -> None:
        """Runs as long as the connection."""

        def heard(report: McpReport) -> None:
            if report.kind == "elicit":
                spawn(self._answer(one, report.data))
            else:
                self._learn(one, report.data)
                one.state = "ready"
                if not opened.done():
                    opened.set_result(None)

        try:
            spec = self._spec(one.config)
            one.wire_name = f"{one.config.name}@{new_id()}"
            one.process = McpProcess.shared()
            async with asyncio.timeout(spec.timeout):
                if await wants_login(spec):  # while the process is importing the SDK
                    raise login_needed(one.config.name)
            await one.process.carry_out(McpOrder("connect", one.wire_name, spec=spec), heard)
        except (CrushpyError, ToolError, OSError) as error:
            one.state = "needs login" if isinstance(error, McpError) and error.needs_login else "failed"
            one.error = str(error) or f"The MCP server {one.config.name} failed: no answer in time"
        finally:
            if not opened.done():
                opened.set_result(None)

    def _spec(self, config: ServerConfig) -> ServerSpec:
        """How the process reaches a server. Raises SettingsError or ToolError."""
        settings = expanded(config)
        secret = os.environ.get(settings.oauth.client_secret_env, "")
        fields: Json = msgspec.structs.asdict(settings)
        if not settings.url:
            wrapper = self.confine(settings) if settings.sandbox == "project" else Wrapper()
            alone = config.origin != "user" and not wrapper.command
            given = (settings.env or {}).items() if alone else ()
            if loaders := [name for name, value in given if loads_code(name, value, str(self.cwd))]:
                raise ToolError(
                    f"The MCP server {config.name} is not started without a sandbox: its definition sets"
                    f" {', '.join(loaders)}, which makes programs load other code."
                )
            cwd = str(self.cwd / Path(settings.cwd).expanduser())
            environment = {**child_environment(os.environ), "PWD": cwd, **(settings.env or {})}
            fields |= {"wrapper": wrapper, "cwd": cwd, "env": environment}
        locks = str(self.paths.mcp)
        return ServerSpec(**fields, client_secret=secret, private_hosts=self.private_hosts, locks=locks)

    def _learn(self, one: Server, data: Json) -> None:
        """Stores what a server offers. The user accepts the tools that it has when it is first used."""
        config = one.config
        tools, problems = definitions.read_definitions(
            config.name, data.get("tools") or (), config.settings.tools
        )
        one.problems = problems[:MAX_PROBLEMS]
        if find_consent(self.paths, "mcp tools", config.where, config.name) is None:
            self._accept(one, tools)
        lists = (tuple(encodable(data.get(kind) or [])) for kind in ("prompts", "resources"))
        one.known = KnownServer(config.digest, str(data.get("protocol", "")), tools, *lists)
        with suppress(OSError):  # then the next start asks the server again
            definitions.store_known(self.paths.mcp / KNOWN_FILE, config.name, one.known)

    async def _definition(self, one: Server, tool: str) -> ToolDefinition:
        name = one.config.name
        found = one.find(tool)
        if found is None:
            await self.connect(name)
            if one.find(tool) is None:
                self._learn(one, await one.order("lists", ""))  # it may be new
            found = one.find(tool)
        if found is None:
            near = definitions.search_tools({name: one.tools}, tool.replace("_", " ")) or "none"
            raise ToolError(f"{name} has no tool {tool!r}. Similar ones:\n{near}")
        return found

    # --- trust -------------------------------------------------------------------------------------------

    def needs_consent(self, one: Server) -> bool:
        """Whether the user has to accept the command of a project's or an editor's server first."""
        config = one.config
        return config.origin != "user" and not has_consent(
            self.paths, "mcp server", config.where, config.definition, config.name
        )

    def consent(self, server: str, *, restarts: bool = False) -> ConsentNeeded | None:
        one = self._find(server)
        if (one.state == "ready" and not restarts) or not self.needs_consent(one):
            return None
        config, text = one.config, one.config.definition
        about: tuple[Kind, str] = "mcp server", config.where
        before = find_consent(self.paths, *about, config.name)
        whose = "the editor" if config.origin == "editor" else "the project's .mcp.json"
        changed = ", which has changed since you accepted it" if before else ""
        what = f"{whose} starts the MCP server {config.name}{changed}"
        shown = show_difference(before.definition if before else "", text)
        accept = partial(add_consent, self.paths, *about, text, config.name)
        return _consent_needed(one, what, shown, accept, one.command_line)

    def _check_accepted(self, one: Server, tool: ToolDefinition) -> None:
        """A tool is accepted when it is first used; once its definition changes, the user is asked."""
        accepted = self._accepted_tools(one)
        changed = [each for each in one.tools if accepted.get(each.name, each) != each]
        if tool.name not in accepted:
            self._accept(one, [tool])
        if tool not in changed:
            return
        name = one.config.name
        what = f"{len(changed)} tool definitions" if len(changed) > 1 else f"the definition of {tool.name}"
        reason = f"the MCP server {name} has changed {what} since you accepted its tools"
        shown = definitions.definition_diff(name, accepted, changed)
        raise _consent_needed(one, reason, shown, lambda: self._accept(one, changed))

    def _accepted_tools(self, one: Server) -> dict[str, ToolDefinition]:
        """By name. They are kept apart for each project: another one's server may have the same name."""
        consent = find_consent(self.paths, "mcp tools", one.config.where, one.config.name)
        if consent is None:
            return {}
        return msgspec.json.decode(consent.definition, type=dict[str, ToolDefinition])

    def _accept(self, one: Server, tools: Iterable[ToolDefinition]) -> None:
        accepted = self._accepted_tools(one) | {tool.name: tool for tool in tools}
        text = msgspec.json.encode(accepted).decode()
        add_consent(self.paths, "mcp tools", one.config.where, text, one.config.name)

    async def _answer(self, one: Server, question: Json) -> None:
        try:
            answer = await self.elicit(one.config.name, question)
        except Exception:  # the front end has closed; the server must not wait for it
            answer = {"action": "cancel"}
        if one.process is not None:
            one.process.send(McpOrder("answer", arguments=answer, id=int(question["question"])))


def _consent_needed(
    one: Server, reason: str, diff: str, accept: Callable[[], None], starts: str = ""
) -> ConsentNeeded:
    name = f"{MCP_PREFIX}{one.config.name}"
    shown = Diff(name, diff, diff.count("\n+"), diff.count("\n-"))
    return ConsentNeeded(Access(name, "none", starts, writes=True, reason=one_line(reason)), shown, accept)


def to_outcome(server: str, data: Json, context: CallContext) -> Outcome:
    """A tool's result within the limits of a command's output: the rest goes to a file."""
    output = Output(context.workspace.output_dir)
    images: list[Image] = []
    for block in data["content"]:
        output.feed(f"{_content_text(server, block, context, images)}\n".encode(errors="replace"))
    output.close()
    text = describe_output(output.take(), output.where)
    return Outcome(text, is_error=bool(data.get("is_error")), images=tuple(images))


def _content_text(server: str, one: Json, context: CallContext, images: list[Image]) -> str:
    """The text of one content block; a picture is added to `images`."""
    if "text" in one:
        return redact(str(one["text"]))
    if "data" not in one:
        return f"[link: @{server}:{one_line(str(one.get('uri') or one.get('name') or ''))}]"
    named = one_line(str(one.get("uri") or one.get("mime") or "data"))
    try:
        raw = base64.b64decode(one["data"])
    except ValueError:
        return f"[{named}: not valid base64]"
    limits = context.agent.image_limits()
    if image_type(raw) is None or limits is None:
        return f"[{named}: {len(raw):,} bytes that are not shown]"
    try:
        found: Any = scale_image(raw, f"{server}.image", limits)
    except CrushpyError as error:
        return f"[{named}: {error.message}]"
    images.append(found.image)
    return f"[image {found.image.info}]"
