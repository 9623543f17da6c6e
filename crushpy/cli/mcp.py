"""`crushpy mcp`: lists, adds, removes, tests and calls MCP servers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    option,
    print_either,
    print_note,
    print_text,
)
from crushpy.cli.workspace import environment_here, working_folder
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Json, counted
from crushpy.core.paths import Paths
from crushpy.security.sanitize import clean

Name = Annotated[str, argument("The server.", metavar="NAME")]
Pairs = list[str]


def register(app: typer.Typer) -> None:
    commands = {
        "list": list_servers,
        "add": add_server,
        "remove": remove_server,
        "login": login_server,
        "test": test_server,
        "call": call_server_tool,
    }
    add_group(app, "mcp", commands)


def list_servers(as_json: AsJson = False) -> None:
    """List the configured servers, and what is known of them. Starts none."""
    from crushpy.bootstrap.mcp_servers import McpServers
    from crushpy.tools.shell.jobs import Jobs

    servers = McpServers(environment_here(), Jobs())
    rows: list[Json] = [
        {
            "name": name,
            "origin": server.config.origin,
            "command": None if server.config.settings.url else server.config.command_line,
            "url": server.config.settings.url or None,
            "sandbox": server.config.settings.sandbox,
            "protocol": server.known.protocol if server.known else None,
            "tools": [tool.name for tool in server.tools] if server.known else None,
        }
        for name, server in servers.hub().servers.items()
    ]
    lines: list[str] = []
    for row in rows:
        tools = "tools not known yet" if row["tools"] is None else counted(len(row["tools"]), "tool")
        lines.append(clean(f"{row['name']}  {row['origin']}  {tools}  {row['url'] or row['command']}"))
    none = ["No MCP server is configured. Add one: crushpy mcp add NAME -- COMMAND ARGS..."]
    print_either(as_json, {"servers": rows, "problems": servers.problems}, lines or none)
    if servers.unused and not as_json:
        print_note(clean(servers.unused))


def add_server(
    name: Name,
    command: Annotated[
        list[str] | None, argument("The command of the server.", metavar="[-- COMMAND ARGS...]")
    ] = None,
    url: Annotated[str, option("--url", "The address of an HTTP server.")] = "",
    env: Annotated[Pairs, option("--env", "A variable for it.", metavar="NAME=VALUE")] = [],  # noqa: B006
    header: Annotated[Pairs, option("--header", "An HTTP header.", metavar="NAME=VALUE")] = [],  # noqa: B006
) -> None:
    """Add a server to your settings, under a name that none has yet."""
    from crushpy.extensions.mcp.configuration import configured_servers
    from crushpy.settings.save import set_value
    from crushpy.settings.schema import McpServerSettings

    if bool(command) == bool(url):
        raise UsageError(
            "Name either a command or --url.", f"For instance: crushpy mcp add {name} -- npx some-server"
        )
    program, *arguments = command or [""]
    one = McpServerSettings(program, tuple(arguments), _pairs(env), url=url, headers=_pairs(header))
    _, problems = configured_servers({name: one}, None)
    if problems:
        raise UsageError(f"{problems[0]}.")
    if name in environment_here().settings.mcp:
        raise UsageError(f"There is an MCP server {name!r} already.", f"First: crushpy mcp remove {name}")
    paths = Paths()
    given = {"url": url, "command": program, "args": arguments, "env": one.env, "headers": one.headers}
    for key, value in given.items():
        if value:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            set_value(paths, f"mcp.{name}.{key}", text)
    print_text(f"{name} was added to {paths.config_file}. Try it: crushpy mcp test {name}\n")


def _pairs(texts: Pairs) -> dict[str, str] | None:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"{text!r} is not NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts) or None


def remove_server(name: Name) -> None:
    """Remove a server from your settings, and forget what is known of it."""
    from crushpy.extensions.mcp.definitions import store_known
    from crushpy.permissions.consents import remove_consents
    from crushpy.settings.save import unset_value

    paths = Paths()
    changed = unset_value(paths, f"mcp.{name}")
    if not changed:
        raise UsageError(f"There is no MCP server {name!r} in your settings.", "See: crushpy mcp list")
    if (paths.mcp / "servers.json").exists():
        store_known(paths.mcp / "servers.json", name, None)
    remove_consents(paths, lambda each: (each.kind, each.where, each.name) == ("mcp tools", "", name))
    print_text(f"{name} was removed from {changed[0]}.\n")


@asynccontextmanager
async def _open_hub(name: str) -> AsyncGenerator[Any]:
    """The servers of this folder. Raises UsageError if there is none of that name."""
    from crushpy.bootstrap.mcp_servers import McpServers
    from crushpy.core.ids import new_id
    from crushpy.tools.errors import ConsentNeeded, ToolError
    from crushpy.tools.shell.jobs import Jobs

    environment = environment_here()
    paths = environment.paths
    private = paths.sandboxes / new_id()
    jobs = Jobs((), lambda: environment.confine(environment.cwd, private, paths.outputs / "mcp"))
    servers = McpServers(environment, jobs)
    if name not in servers.configs():
        known = ", ".join(servers.configs()) or "none"
        raise UsageError(f"There is no MCP server {name!r}. Configured: {known}.", "See: crushpy mcp list")
    hub = servers.hub()
    if hub.needs_consent(one := hub.servers[name]):
        raise UsageError(
            f"{name} comes from the project and was not accepted yet: {one.config.command_line}",
            "Use it in the app, which asks, or add it to your own settings with crushpy mcp add.",
        )
    try:
        yield hub
    except (ToolError, ConsentNeeded) as error:
        raise CrushpyError(str(error)) from None
    finally:
        await servers.close()
        await jobs.close()


async def test_server(name: Name) -> None:
    """Start a server, and show what it offers."""
    async with _open_hub(name) as hub:
        one = await hub.connect(name)
        print_text(f"{name}: protocol {one.known.protocol}, {counted(len(one.tools), 'tool')}\n")
        for tool in one.tools:
            summary = tool.description.splitlines()[0] if tool.description else ""
            print_text(clean(f"  {tool.name}: {summary[:100]}") + "\n")
        for kind in ("prompts", "resources"):
            for entry in getattr(one.known, kind):
                print_text(clean(f"  {kind[:-1]} {entry.get('name')} {entry.get('uri', '')}").rstrip() + "\n")
        for problem in one.problems:
            print_note(clean(problem))


async def call_server_tool(
    server: Annotated[str, argument("The server.", metavar="SERVER")],
    tool: Annotated[str, argument("The tool, as the server names it.", metavar="TOOL")],
    args: Annotated[str, option("--args", "The arguments.", metavar="JSON")] = "{}",
) -> None:
    """Call a tool of a server, and print the result."""
    try:
        arguments = msgspec.json.decode(args, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(f"--args is not a JSON object: {error}.") from None
    from crushpy.tools.base import CallContext, Workspace
    from crushpy.tools.shell.jobs import Jobs

    async with _open_hub(server) as hub:
        workspace = Workspace(working_folder(), Paths().outputs / "mcp", Jobs())
        context = CallContext(workspace, emit=lambda text: print_note(clean(text.rstrip("\n"))))
        outcome = await hub.call(*hub.resolve(server, tool), arguments, context)
    print_text(clean(outcome.text) + "\n")
    if outcome.is_error:
        raise typer.Exit(1)


async def login_server(name: Name) -> None:
    """Log in to an HTTP server in the browser."""
    async with _open_hub(name) as hub:
        if not hub.servers[name].config.settings.url:
            raise UsageError(f"{name} is a command: only HTTP servers have a login.")
        await hub.login(name, _open_page)
        print_text(f"Logged in to {name}.\n")


def _open_page(url: str) -> None:
    """Opens the user's browser, without a shell, and prints the address in case there is none."""
    import threading
    import webbrowser

    print_note(f"Open this address to log in:\n{clean(url)}")
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
