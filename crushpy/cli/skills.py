"""`crushpy skills`: lists the skills, commands and sub-agents that were found, and their problems."""

import typer

from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.bootstrap.user_extensions import KINDS
from crushpy.cli.command_helpers import AsJson, add_group, print_json, print_note, print_text
from crushpy.cli.workspace import working_folder
from crushpy.security.sanitize import clean


def register(app: typer.Typer) -> None:
    add_group(app, "skills", {"list": list_extensions})


def list_extensions(as_json: AsJson = False) -> None:
    """List every file found: skills, commands and sub-agents, loaded, warned or refused."""
    environment = ProjectEnvironment(working_folder())
    found = [one for kind in KINDS for one in environment.extensions.find(kind)]
    if not environment.trusted:
        print_note("Skills, commands and sub-agents of this project are not used: it is not trusted.")
    if as_json:
        fields = ("name", "description", "status", "reason", "origin")
        print_json(
            [
                {"kind": one.kind[:-1], "file": str(one.file)}
                | {field: getattr(one, field) for field in fields}
                for one in found
            ]
        )
        return
    for one in found:
        why = f" ({one.reason})" if one.reason else ""
        print_text(clean(f"{one.status:<8} {one.kind[:-1]:<8} {one.name}  {one.file}{why}") + "\n")
    if not found:
        print_text("No skill was found. See docs/extensions.md for the folders.\n")
