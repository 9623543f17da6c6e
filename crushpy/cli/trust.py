"""`crushpy trust` and `crushpy untrust`: whether a project may bring settings, templates and extensions."""

import json
from pathlib import Path
from typing import Annotated

import typer

from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths, project_root
from crushpy.security.sanitize import clean

ProjectPath = Annotated[
    Path | None,
    typer.Argument(help="A folder of the project. [default: the current one]", show_default=False),
]


def register(app: typer.Typer) -> None:
    app.command("trust", help="Let a project bring settings, templates and extensions.")(trust_command)
    app.command("untrust", help="Stop using what a project brings.")(untrust_command)


def trust_command(
    path: ProjectPath = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the trusted projects instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    from crushpy.extensions.hooks.hook_config import accept_hooks
    from crushpy.permissions.trust import add_trusted, list_project_files, trusted

    paths = Paths()
    if show_list:
        folders = [str(folder) for folder in trusted(paths)]
        if as_json:
            print(json.dumps(folders))
        else:
            print("\n".join(map(clean, folders)) or "No project is trusted.")
        return
    root = add_trusted(paths, find_root(path))
    print(f"{clean(str(root))} is trusted. crushpy now uses:")
    for line in list_project_files(root):
        print(f"  {line}")
    for line in accept_hooks(paths, root):
        print(f"  {line}")
    print("To undo: crushpy untrust")


def find_root(path: Path | None) -> Path:
    """The root of the project around `path` or the current folder."""
    try:
        folder = (path or working_folder()).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} does not exist.", "Give an existing folder.") from error
    return project_root(folder)


def untrust_command(path: ProjectPath = None) -> None:
    from crushpy.permissions.trust import remove_trusted

    paths = Paths()
    # The folder of a deleted project need not exist.
    folder = (path or working_folder()).resolve()
    for root in (folder, project_root(folder)):
        if remove_trusted(paths, root):
            print(f"{clean(str(root))} is no longer trusted: what it brings is ignored.")
            return
    raise UsageError(f"{clean(str(folder))} is not trusted.", "`crushpy trust --list` shows those that are.")
