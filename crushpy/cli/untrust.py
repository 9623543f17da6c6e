"""`crushpy untrust`: what a project brings is ignored again."""

from pathlib import Path
from typing import Annotated

import typer

from crushpy.cli.folder import working_folder


def register(app: typer.Typer) -> None:
    app.command("untrust", help="Ignore what a project brings again.")(untrust_command)


def untrust_command(
    path: Annotated[
        Path | None,
        typer.Argument(help="A folder of the project. [default: the current one]", show_default=False),
    ] = None,
) -> None:
    from crushpy.core.errors import UsageError
    from crushpy.core.paths import Paths, project_root
    from crushpy.permissions.trust import remove_trusted
    from crushpy.security.sanitize import clean

    paths = Paths()
    # A project may be gone already: its folder need not exist.
    folder = (path or working_folder()).resolve()
    for root in (folder, project_root(folder)):
        if remove_trusted(paths, root):
            print(f"{clean(str(root))} is no longer trusted: its settings and templates are ignored.")
            return
    raise UsageError(f"{clean(str(folder))} is not trusted.", "`crushpy trust --list` shows what is.")
