"""Which projects may bring settings, templates and extensions: one kind of the consents."""

import os
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.paths import PROJECT_FOLDER, Paths, provided_files
from crushpy.permissions.consents import (
    Consent,
    add_consent,
    all_consents,
    find_consent,
    hash_lines,
    remove_consents,
)
from crushpy.security.sanitize import clean


def is_trusted(paths: Paths, root: Path) -> bool:
    """True if the user trusts the project at `root`. A broken list trusts nothing."""
    return find_consent(paths, "project", os.path.realpath(root)) is not None


def find_original(paths: Paths, root: Path) -> Path | None:
    """The trusted project that brought, when it was trusted, all that the copy at `root` brings."""
    try:
        brought = _provided(root)
        alike = (each for each in _projects(paths) if each.definition == brought)
        return next((Path(each.where) for each in alike if brought), None)
    except (CrushpyError, OSError):
        return None


def _provided(root: Path) -> str:
    """The settings, hooks, servers, templates and extensions of a project, with their hashes."""
    files = (file for path in provided_files(root) for file in (path, *_files_below(path)))
    return "\n".join(hash_lines((file for file in files if file.is_file()), root))


def _projects(paths: Paths) -> list[Consent]:
    return [each for each in all_consents(paths) if each.kind == "project"]


def _files_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        yield path
        if path.is_symlink():  # a skill may be a link to a folder, which `rglob` does not enter
            yield from sorted(path.rglob("*"))


def trusted(paths: Paths) -> list[Path]:
    """All trusted projects, sorted by path."""
    return sorted(Path(each.where) for each in _projects(paths))


def add_trusted(paths: Paths, root: Path, how: str = "crushpy trust") -> Path:
    """Trusts the project at `root` and returns its real path. Home folders and their parents are refused."""
    real = Path(os.path.realpath(root))
    if not real.is_dir():
        raise UsageError(f"{root} is not a folder.", "Name the folder of a project.")
    home = Path(os.path.realpath(Path.home()))
    if home.is_relative_to(real):
        what = "your home folder" if home == real else "a parent of your home folder"
        raise UsageError(
            f"{real} is {what}: trusting it would trust more than one project.",
            "Trust the project's own folder: crushpy trust PATH",
        )
    add_consent(paths, "project", str(real), _provided(real), how=how)
    return real


def list_project_files(root: Path) -> list[str]:
    """What the project brings, as lines, sanitised for the terminal. Hooks are listed elsewhere."""
    folder = root / PROJECT_FOLDER
    settings = folder / "config.toml"
    try:
        lines = settings.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    templates = sorted(str(file.relative_to(folder)) for file in (folder / "templates").rglob("*.md"))
    return [
        f"settings: {clean(str(settings)) if lines else 'none'}",
        *(f"  {clean(line)}" for line in lines),
        f"templates: {', '.join(map(clean, templates)) or 'none'}",
        *_extension_lines(root),
    ]


def _extension_lines(root: Path) -> Iterator[str]:
    for path in provided_files(root):
        shown = path.relative_to(root)
        if path.is_dir() and path.name != "templates":
            yield clean(f"{shown}: {', '.join(sorted(entry.name for entry in path.iterdir()))}")
        elif path.parent == root:
            yield f"{shown}: each server is asked about before it starts"


def remove_trusted(paths: Paths, root: Path) -> bool:
    """Forgets all consents about the project at `root`; False if it was not trusted."""
    real = os.path.realpath(root)
    removed = remove_consents(paths, lambda each: each.where == real and each.kind != "plugin")
    return any(each.kind == "project" for each in removed)
