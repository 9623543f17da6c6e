"""`crushpy trust`: lets a project bring its own settings and templates."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("trust")(trust)


def trust(
    path: Annotated[
        str, typer.Argument(help="A folder; the project of the current one where none is given.")
    ] = "",
    show: Annotated[bool, typer.Option("--list", help="List what is trusted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    """Let a project bring its own settings and templates."""
    from crushpy.paths import Paths
    from crushpy.permissions import trust as trusting

    paths = Paths()
    if show:
        folders = trusting.trusted(paths)
        if as_json:
            import json

            print(json.dumps([str(folder) for folder in folders]))
        elif folders:
            print("\n".join(map(str, folders)))
        else:
            print("No project is trusted.")
        return
    folder = trusting.trust(paths, project(path))
    print(f"Trusted: {folder}")
    print("\n".join(brought_by(folder)))


def project(path: str) -> Path:
    """The folder that was named, or the project of the current one."""
    from crushpy.paths import project_root

    return Path(path).expanduser().absolute() if path else project_root(Path.cwd())


def brought_by(folder: Path) -> list[str]:
    """What the project brings, in words."""
    from crushpy.paths import PROJECT_FOLDER
    from crushpy.sanitize import clean

    own = folder / PROJECT_FOLDER
    lines: list[str] = []
    config = own / "config.toml"
    if config.is_file():
        lines.append(f"Settings from {config}:")
        text = clean(config.read_text(encoding="utf-8", errors="replace"))
        lines += [f"  {line}" for line in text.splitlines()[:40]]
    templates = sorted((own / "templates").rglob("*.md")) if (own / "templates").is_dir() else []
    lines += [f"Template: {clean(str(template))}" for template in templates]
    return lines or ["It brings nothing yet; what it puts into .crushpy/ will count."]
