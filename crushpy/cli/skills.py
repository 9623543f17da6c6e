"""`crushpy skills` and `crushpy plugins`: list what was found and its problems; add and remove plugins."""

from pathlib import Path
from typing import Annotated

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    print_either,
    print_note,
    print_text,
)
from crushpy.cli.workspace import environment_here, working_folder
from crushpy.core.errors import UsageError
from crushpy.core.messages import Json
from crushpy.core.paths import Paths
from crushpy.extensions.plugins import add_plugin, installed_plugins, remove_plugin
from crushpy.security.sanitize import clean


def register(app: typer.Typer) -> None:
    add_group(app, "skills", {"list": list_extensions})
    add_group(app, "plugins", {"add": add_folder, "list": list_plugins, "remove": remove_named})


def list_extensions(as_json: AsJson = False) -> None:
    """List every file found: skills, commands and sub-agents, loaded, warned or refused."""
    from crushpy.bootstrap.user_extensions import KINDS

    environment = environment_here()
    found = [extension for kind in KINDS for extension in environment.extensions.find(kind)]
    if not environment.trusted:
        print_note("Skills, commands and sub-agents of this project are not used: it is not trusted.")
    fields, rows, lines = ("name", "description", "status", "reason", "origin"), list[Json](), list[str]()
    for skill in found:
        values = {name: getattr(skill, name) for name in fields}
        rows.append({"kind": skill.kind[:-1], "file": str(skill.file), **values})
        why = f" ({skill.reason})" if skill.reason else ""
        lines.append(clean(f"{skill.status:<8} {skill.kind[:-1]:<8} {skill.name}  {skill.file}{why}"))
    print_either(as_json, rows, lines or ["No skill was found. See docs/extensions.md for the folders."])


def add_folder(folder: Annotated[Path, argument("The plugin.", metavar="FOLDER")]) -> None:
    """Copy a plugin's folder; again to update it."""
    plugin = add_plugin(Paths(), working_folder() / folder)
    print_text(clean(f"{plugin.name} was added, with {', '.join(plugin.contents)}.\n"))


def list_plugins(as_json: AsJson = False) -> None:
    """List the installed plugins, and what is in them."""
    plugins = installed_plugins(Paths())
    fields = ("name", "version", "description", "contents", "problem")
    rows = [{field: getattr(plugin, field) for field in fields} for plugin in plugins]
    about = (
        plugin.problem or f"{plugin.version}  {', '.join(plugin.contents)}".strip() for plugin in plugins
    )
    lines = [clean(f"{plugin.name}  {told}") for plugin, told in zip(plugins, about, strict=True)]
    print_either(as_json, rows, lines or ["No plugin is installed. Add one: crushpy plugins add FOLDER"])


def remove_named(name: Annotated[str, argument("The plugin.", metavar="NAME")]) -> None:
    """Remove a plugin."""
    if not remove_plugin(Paths(), name):
        raise UsageError(f"There is no plugin {name!r}.", "See: crushpy plugins list")
    print_text(f"{name} was removed.\n")
