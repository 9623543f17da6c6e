"""`crushpy skills` and `crushpy plugins`: list what was found and its problems; add and remove plugins."""

from pathlib import Path
from typing import Annotated

import typer

from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.bootstrap.user_extensions import KINDS
from crushpy.cli.command_helpers import AsJson, add_group, print_json, print_note, print_text
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.extensions.plugins import add_plugin, installed_plugins, remove_plugin
from crushpy.security.sanitize import clean


def register(app: typer.Typer) -> None:
    add_group(app, "skills", {"list": list_extensions})
    add_group(app, "plugins", {"add": add_folder, "list": list_plugins, "remove": remove_named})


def list_extensions(as_json: AsJson = False) -> None:
    """List every file found: skills, commands and sub-agents, loaded, warned or refused."""
    environment = ProjectEnvironment(working_folder())
    found = [one for kind in KINDS for one in environment.extensions.find(kind)]
    if not environment.trusted:
        print_note("Skills, commands and sub-agents of this project are not used: it is not trusted.")
    if as_json:
        fields = ("name", "description", "status", "reason", "origin")
        rows = ((one, {name: getattr(one, name) for name in fields}) for one in found)
        print_json([{"kind": one.kind[:-1], "file": str(one.file), **row} for one, row in rows])
        return
    for one in found:
        why = f" ({one.reason})" if one.reason else ""
        print_text(clean(f"{one.status:<8} {one.kind[:-1]:<8} {one.name}  {one.file}{why}") + "\n")
    if not found:
        print_text("No skill was found. See docs/extensions.md for the folders.\n")


def add_folder(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The plugin.")]) -> None:
    """Copy a plugin's folder; again to update it."""
    plugin = add_plugin(Paths(), working_folder() / folder)
    print_text(clean(f"{plugin.name} was added, with {', '.join(plugin.contents)}.\n"))


def list_plugins(as_json: AsJson = False) -> None:
    """List the installed plugins, and what is in them."""
    plugins = installed_plugins(Paths())
    if as_json:
        fields = ("name", "version", "description", "contents", "problem")
        print_json([{field: getattr(plugin, field) for field in fields} for plugin in plugins])
        return
    for plugin in plugins:
        about = plugin.problem or f"{plugin.version}  {', '.join(plugin.contents)}".strip()
        print_text(clean(f"{plugin.name}  {about}") + "\n")
    if not plugins:
        print_text("No plugin is installed. Add one: crushpy plugins add FOLDER\n")


def remove_named(name: Annotated[str, typer.Argument(metavar="NAME", help="The plugin.")]) -> None:
    """Remove a plugin."""
    if not remove_plugin(Paths(), name):
        raise UsageError(f"There is no plugin {name!r}.", "See: crushpy plugins list")
    print_text(f"{name} was removed.\n")
