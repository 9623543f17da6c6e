"""Installed plugins: folders in the Agent Plugins layout or in Claude Code's, copied when they are added.

A copy does not change behind the user's back; adding the folder again updates it.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Json
from crushpy.core.paths import Paths, private_dir
from crushpy.extensions.extension_files import Unreadable, read_extension
from crushpy.permissions.consents import add_consent, has_consent, hash_lines, is_script, remove_consents

MANIFESTS = ("plugin.json", ".claude-plugin/plugin.json")
MCP_FILES = ("mcp.json", ".mcp.json")
CONTENTS = ("skills", "commands", "agents", "hooks", *MCP_FILES)
MAX_PLUGIN_FILES, MAX_PLUGIN_BYTES = 5_000, 50_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Plugin(Data, frozen=True):
    name: str
    folder: Path
    version: str = ""
    description: str = ""
    manifest: Json = msgspec.field(default_factory=dict[str, Any])
    problem: str = ""
    """Why nothing of it is used."""

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The files and folders in it that the manifest names, by kind."""
        found: dict[str, tuple[str, ...]] = {}
        for kind in ("skills", "commands", "agents", "hooks"):
            given = self.manifest.get(kind)
            names: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
            texts = [name for name in names if isinstance(name, str)]
            inside = [name for name in texts if is_inside(self.folder / name, self.folder)]
            found[kind] = tuple(name for name in inside if os.path.normpath(name) != kind)
        return found

    @property
    def contents(self) -> tuple[str, ...]:
        """The kinds of extensions in it."""
        named = self.named
        found = tuple(kind for kind in CONTENTS if named.get(kind) or (self.folder / kind).exists())
        return (*found, *(["mcpServers"] if self.manifest.get("mcpServers") else []))


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path leads, through all links, to something in the folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_plugin(folder: Path) -> Plugin:
    """The plugin in a folder. One without a manifest has the folder's name."""
    for name in MANIFESTS:
        if not (folder / name).exists():
            continue
        try:
            manifest = msgspec.json.decode(read_extension(folder / name, folder), type=dict[str, Any])
        except (Unreadable, msgspec.MsgspecError, RecursionError) as error:
            return Plugin(folder.name, folder, problem=f"{name}: {error}")
        title = manifest.get("name")
        if not isinstance(title, str) or not _NAME.fullmatch(title):
            return Plugin(folder.name, folder, problem=f"{name}: name has letters, digits, '.', '_' and '-'")
        version, description = (str(manifest.get(key) or "") for key in ("version", "description"))
        return Plugin(title, folder, version, description, manifest)
    plugin = Plugin(folder.name, folder)
    is_usable = _NAME.fullmatch(folder.name) and plugin.contents
    return plugin if is_usable else msgspec.structs.replace(plugin, problem="it has no plugin.json")


def installed_plugins(paths: Paths) -> list[Plugin]:
    """All installed plugins by name, those with a problem included."""
    try:
        folders = sorted(folder for folder in paths.plugins.iterdir() if _NAME.fullmatch(folder.name))
    except OSError:
        return []
    return [_accepted(paths, read_plugin(folder)) for folder in folders if folder.is_dir()]


def _accepted(paths: Paths, plugin: Plugin) -> Plugin:
    """The plugin, with a problem if its code is not what the user has added."""
    where = os.path.realpath(plugin.folder)
    if plugin.problem or has_consent(paths, "plugin", where, _code_text(plugin.folder), plugin.name):
        return plugin
    return msgspec.structs.replace(
        plugin, problem="it is not what you added; run `crushpy plugins add` again"
    )


def _code_text(folder: Path) -> str:
    """The manifest, scripts and definitions of a plugin, with their hashes."""
    files = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    code = (file for file in files if is_script(file) or file.suffix == ".json")
    return "\n".join(hash_lines(code, folder))


def add_plugin(paths: Paths, folder: Path) -> Plugin:
    """Copies a plugin, in place of an older copy. Raises UsageError if it is not one."""
    folder = Path(os.path.realpath(folder.expanduser()))
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", "Name the folder of a plugin.")
    plugin = read_plugin(folder)
    if plugin.problem or not plugin.contents:
        why = plugin.problem or "it has no skills, commands, agents, hooks or MCP servers"
        raise UsageError(f"{folder} is not a plugin: {why}.", "See docs/extensions.md.")
    _check_files(folder)
    copy = private_dir(paths.plugins) / f".{plugin.name}-{new_id()}"
    try:
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        remove_plugin(paths, plugin.name)
        copy.rename(paths.plugins / plugin.name)
        text, where = _code_text(paths.plugins / plugin.name), os.path.realpath(paths.plugins / plugin.name)
        add_consent(paths, "plugin", where, text, plugin.name, "crushpy plugins add")
    except (OSError, shutil.Error) as error:
        shutil.rmtree(copy, ignore_errors=True)
        raise UsageError(f"{folder} cannot be copied: {error}.", "Check its files and permissions.") from None
    return read_plugin(paths.plugins / plugin.name)


def _check_files(folder: Path) -> None:
    """Raises UsageError for a link out of the folder, a special file, and a folder that is too large."""
    number = size = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        number += len(names)
        for path in (Path(place, name) for name in (*names, *folders)):
            real = Path(os.path.realpath(path))
            if path.is_symlink() and (path.readlink().is_absolute() or not real.is_relative_to(folder)):
                raise UsageError(f"{path} is a link that leads out of the plugin.", "Remove it.")
            if not real.is_file() and not real.is_dir():
                raise UsageError(f"{path} is not a regular file.", "Remove it.")
            size += path.lstat().st_size
        if number > MAX_PLUGIN_FILES or size > MAX_PLUGIN_BYTES:
            raise UsageError(f"{folder} is too large for a plugin.", "Name the folder of one plugin.")


def remove_plugin(paths: Paths, name: str) -> bool:
    """Removes the copy of a plugin; False if there is none of that name."""
    if not _NAME.fullmatch(name) or not (paths.plugins / name).is_dir():
        return False
    where = os.path.realpath(paths.plugins / name)
    shutil.rmtree(paths.plugins / name)
    remove_consents(paths, lambda each: each.where == where)
    return True
