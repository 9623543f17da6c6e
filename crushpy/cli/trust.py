"""`crushpy trust`: lets a project bring its own settings and templates, after showing what they are."""

import json
from pathlib import Path
from typing import Annotated

import typer


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
    from crushpy.paths import Paths
    from crushpy.permissions.trust import trust, trusted
    from crushpy.sanitize import clean

    paths = Paths()
    if show_list:
        folders = [str(folder) for folder in trusted(paths)]
        if as_json:
            print(json.dumps(folders))
        else:
            print("\n".join(map(clean, folders)) or "No project is trusted.")
        return
    root = trust(paths, chosen_root(path))
    print(f"{clean(str(root))} is trusted. From now on crushpy uses what it brings:")
    _show(root)
    print("Take it back with: crushpy untrust")


def chosen_root(path: Path | None) -> Path:
    """The root of the project that `path` (or the current folder) lies in."""
    from crushpy.errors import UsageError
    from crushpy.paths import project_root

    try:
        folder = (path or Path()).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{path or 'The current folder'} is not there.", "Name a folder that exists."
        ) from error
    return project_root(folder)


def _show(root: Path) -> None:
    """What the project brings. It was written by others: nothing of it may steer the terminal."""
    from crushpy.paths import PROJECT_FOLDER
    from crushpy.sanitize import clean

    folder = root / PROJECT_FOLDER
    settings = folder / "config.toml"
    try:
        lines = settings.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    print(f"  settings: {clean(str(settings)) if lines else 'none'}")
    for line in lines:
        print(f"    {clean(line)}")
    templates = sorted(str(file.relative_to(folder)) for file in (folder / "templates").rglob("*.md"))
    print(f"  templates: {', '.join(map(clean, templates)) or 'none'}")
