"""`crushpy trust`: lets a project bring its own settings and templates, after showing what they are."""

import json
from pathlib import Path
from typing import Annotated

import typer

from crushpy.cli.folder import working_folder


def register(app: typer.Typer) -> None:
    app.command("trust", help="Let a project bring its own settings and templates.")(trust_command)


def trust_command(
    path: Annotated[
        Path | None,
        typer.Argument(help="A folder of the project. [default: the current one]", show_default=False),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the trusted projects instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    from crushpy.core.paths import Paths
    from crushpy.permissions.trust import add_trusted, brings, trusted
    from crushpy.security.sanitize import clean

    paths = Paths()
    if show_list:
        folders = [str(folder) for folder in trusted(paths)]
        if as_json:
            print(json.dumps(folders))
        else:
            print("\n".join(map(clean, folders)) or "No project is trusted.")
        return
    root = add_trusted(paths, chosen_root(path))
    print(f"{clean(str(root))} is trusted. From now on crushpy uses what it brings:")
    for line in brings(root):
        print(f"  {line}")
    print("Take it back with: crushpy untrust")


def chosen_root(path: Path | None) -> Path:
    """The root of the project that `path` (or the current folder) lies in."""
    from crushpy.core.errors import UsageError
    from crushpy.core.paths import project_root

    try:
        folder = (path or working_folder()).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} is not there.", "Name a folder that exists.") from error
    return project_root(folder)
