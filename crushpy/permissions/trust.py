"""Which projects may bring their own settings and templates: a private list of real paths."""

import os
from pathlib import Path

import msgspec

from crushpy.core.errors import CrushpyError, SettingsError, UsageError
from crushpy.core.paths import PROJECT_FOLDER, Paths
from crushpy.security.private_files import write_private
from crushpy.security.sanitize import clean


class _TrustedProjects(msgspec.Struct):
    """The content of the file."""

    trusted: list[str]


def is_trusted(paths: Paths, root: Path) -> bool:
    """True if the user trusts the project at `root`. A broken list trusts nothing."""
    try:
        return os.path.realpath(root) in _read(paths)
    except CrushpyError:
        return False


def trusted(paths: Paths) -> list[Path]:
    """All trusted projects, sorted by path."""
    return [Path(folder) for folder in sorted(_read(paths))]


def add_trusted(paths: Paths, root: Path) -> Path:
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
    _write(paths, _read(paths) | {str(real)})
    return real


def list_project_files(root: Path) -> list[str]:
    """The project's settings and templates as lines, sanitised for the terminal."""
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
    ]


def remove_trusted(paths: Paths, root: Path) -> bool:
    """Stops trusting the project at `root`; False if it was not trusted."""
    projects, real = _read(paths), os.path.realpath(root)
    if real in projects:
        _write(paths, projects - {real})
    return real in projects


def _read(paths: Paths) -> set[str]:
    file = paths.trust_file
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=_TrustedProjects).trusted)
    except FileNotFoundError:
        return set()
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"The list of trusted projects {file} cannot be read: {error}",
            "No project is trusted until it is fixed. Delete it to start with an empty list.",
        ) from error


def _write(paths: Paths, folders: set[str]) -> None:
    data = msgspec.json.format(msgspec.json.encode(_TrustedProjects(sorted(folders)))) + b"\n"
    try:
        write_private(paths.trust_file, data)
    except OSError as error:
        raise CrushpyError(
            f"{paths.trust_file} cannot be written: {error.strerror}",
            "Check the folder's permissions and free space.",
        ) from error
