"""The configured servers: the user's from the settings, and those of a trusted project's `.mcp.json`."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from crushpy.core.errors import SettingsError
from crushpy.core.mcp_names import PROJECT_FILE
from crushpy.core.messages import Data
from crushpy.extensions.extension_files import Unreadable, read_extension
from crushpy.extensions.plugins import MANIFESTS, MCP_FILES, is_inside
from crushpy.permissions.consents import define
from crushpy.security.sanitize import map_texts
from crushpy.settings.schema import McpServerSettings
from crushpy.tools.shell.child_environment import is_secret_name

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ServerConfig(Data, frozen=True):
    name: str
    settings: McpServerSettings
    origin: Literal["user", "project", "editor"] = "user"
    root: Path = Path()
    """The project or plugin whose scripts it may start; not of a server of the user's."""
    where: str = ""
    """The project or plugin that the user's consent is about, as a real path; empty for the user's own."""

    @property
    def digest(self) -> str:
        """Identifies the exact definition, before variables are expanded."""
        text = msgspec.json.encode((self.origin, self.where, self.settings), order="deterministic")
        return sha256(text).hexdigest()[:16]

    @property
    def definition(self) -> str:
        """What the user accepts: all of the definition, and the scripts that it starts as they are now."""
        one = self.settings
        words = "\n".join((one.command, *one.args, *(one.env or {}).values()))
        return define(self.describe(), (words,), self.root, one.cwd)

    @property
    def command_line(self) -> str:
        import shlex

        return self.settings.url or shlex.join((self.settings.command, *self.settings.args))

    def describe(self) -> list[str]:
        """All of the definition, and which variables it names, in lines."""
        one = self.settings
        lines = [self.command_line, *([f"in {one.cwd}"] if one.cwd else [])]
        lines += [f"{name}={value}" for name, value in (one.env or {}).items()]
        lines += [f"{name}: {value}" for name, value in (one.headers or {}).items()]
        named = list(dict.fromkeys(found[1] for text in lines for found in _VARIABLE.finditer(text)))
        lines += [f"with your variables {', '.join(named)}"] if named else []
        return [part for line in lines for part in line.splitlines()]


def configured_servers(
    settings: Mapping[str, McpServerSettings],
    root: Path | None,
    plugins: Sequence[Path] = (),
    of_editor: Collection[str] = (),
    original: Path = Path(),
) -> tuple[dict[str, ServerConfig], list[str]]:
    """The enabled servers by name, the user's first, and what is wrong with others. `root`: of a trusted
    project. Those of `plugins` are treated like a project's. `of_editor`: names that an editor has added.
    `original`: the project that the user's consents are about."""
    found: dict[str, ServerConfig] = {}
    problems: list[str] = []
    of_project = (root or original, os.path.realpath(original))
    entries = [
        ServerConfig(name, setting, "editor", *of_project)
        if name in of_editor
        else ServerConfig(name, setting)
        for name, setting in settings.items()
    ]
    files: list[tuple[Path, Path | None]] = [(root / PROJECT_FILE, None)] if root is not None else []
    files += [(folder / name, folder) for folder in plugins for name in (*MCP_FILES, *MANIFESTS)]
    for file, plugin in files:
        try:
            read = read_project_file(file, problems, plugin)
            of_whom = (plugin, os.path.realpath(plugin)) if plugin else of_project
            entries += [ServerConfig(name, fields, "project", *of_whom) for name, fields in read.items()]
        except SettingsError as error:
            problems.append(str(error))
    for config in entries:
        name, one = config.name, config.settings
        where = f"{PROJECT_FILE}: {name}" if config.origin == "project" else f"mcp.{name}"
        if not _NAME.fullmatch(name):
            problems.append(f"{where}: a name has letters, digits, - and single _, at most 32")
        elif bool(one.command) == bool(one.url):
            problems.append(f"{where}: set either command or url")
        elif one.url and not one.url.startswith(("https://", "http://")):
            problems.append(f"{where}: url = {one.url!r} must begin with https:// or http://")
        elif name in found:
            problems.append(f"{where}: there is a server of this name in your settings, which is used")
        elif one.enabled:
            found[name] = config
    return found, problems


_PROJECT_KEYS = ("command", "args", "env", "cwd", "url", "headers")
"""Of an entry of `mcpServers`; keys of other agents are ignored."""


def read_project_file(
    file: Path, problems: list[str], plugin: Path | None = None
) -> dict[str, McpServerSettings]:
    """The servers of a `.mcp.json`: sandboxed, without network. A plugin's may lack `mcpServers`; a manifest
    may have them or name a file. Bad entries go to `problems`. Raises SettingsError."""
    read: dict[str, McpServerSettings] = {}
    if not file.exists():
        return read
    try:
        text = read_extension(file, plugin or file.resolve().parent)
        if plugin is not None:
            text = text.replace("${CLAUDE_PLUGIN_ROOT}", msgspec.json.encode(str(plugin)).decode()[1:-1])
        given = msgspec.json.decode(text, type=dict[str, Any])
        bare = plugin is not None and str(file.relative_to(plugin)) not in MANIFESTS
        said: Any = given.get("mcpServers", given if bare else None) or {}
        if plugin is not None and isinstance(said, str) and not bare:
            named = plugin / said
            known = named.resolve() in [(plugin / name).resolve() for name in MCP_FILES]
            return {} if known or not is_inside(named, plugin) else read_project_file(named, problems, plugin)
        entries = msgspec.convert(said, dict[str, Any])
    except (Unreadable, msgspec.MsgspecError, RecursionError) as error:
        raise SettingsError(f"{file}: {error}", "Its form is described in docs/mcp.md.") from None
    for name, entry in entries.items():
        try:
            given = msgspec.convert(entry, dict[str, Any])
            used = {key: given[key] for key in _PROJECT_KEYS if given.get(key)}
            used |= {"enabled": not given.get("disabled"), "sandbox": "project", "network": "url" in used}
            read[name] = msgspec.convert(used, McpServerSettings)
            if given.get("type") == "sse":
                problems.append(f"{file.name}: {name}: its transport sse is not supported; http is tried")
        except msgspec.MsgspecError as error:
            problems.append(f"{file.name}: {name}: {error}")
    return read


def expanded(config: ServerConfig) -> McpServerSettings:
    """The settings with `${NAME}` and `${NAME:-default}` replaced. Raises SettingsError."""

    def value(found: "re.Match[str]") -> str:
        name, default = found[1], found[2]
        if config.origin == "project" and is_secret_name(name):
            raise SettingsError(
                f"{PROJECT_FILE}: {config.name}: a project's file cannot use ${{{name}}}: it may hold a key.",
                f"Define the server in your own settings: crushpy mcp add {config.name} ...",
            )
        if name in os.environ:
            return os.environ[name]
        if default is None:
            raise SettingsError(f"The MCP server {config.name} needs the variable {name}, which is not set.")
        return default

    given = msgspec.to_builtins(config.settings)
    return msgspec.convert(map_texts(given, lambda text: _VARIABLE.sub(value, text)), McpServerSettings)
