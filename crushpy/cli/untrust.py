"""`crushpy untrust`: a project's own settings and templates no longer count."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("untrust")(untrust)


def untrust(
    path: Annotated[
        str, typer.Argument(help="A folder; the project of the current one where none is given.")
    ] = "",
) -> None:
    """A project's own settings and templates no longer count."""
    from crushpy.cli.trust import project
    from crushpy.errors import UsageError
    from crushpy.paths import Paths
    from crushpy.permissions import trust as trusting

    folder = project(path)
    if not trusting.untrust(Paths(), folder):
        raise UsageError(f"{folder} is not trusted.", "`crushpy trust --list` shows what is.")
    print(f"No longer trusted: {folder}")
