"""Which projects may bring settings, templates and extensions: a private list of real paths."""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from crushpy.core.errors import CrushpyError, SettingsError, UsageError
from crushpy.core.paths import PROJECT_FOLDER, Paths, provided_files
from crushpy.security.private_files import write_private
from crushpy.security.sanitize import clean


class _TrustedProjects(msgspec.Struct, omit_defaults=True):
    """The content of the file."""

    trusted: list[str]
    digests: dict[str, str] = {}
    """What each of them brought when it was trusted."""


def is_trusted(paths: Paths, root: Path) -> bool:
    """True if the user trusts the project at `root`. A broken list trusts nothing."""
    try:
        return os.path.realpath(root) in _read(paths).trusted
    except CrushpyError:
        return False


def is_trusted_copy(paths: Paths, root: Path) -> bool:
    """True if all that the project at `root` brings is what a trusted project brought when it was trusted."""
    try:
        return project_digest(root) in _read(paths).digests.values()
    except (CrushpyError, OSError):
        return False


def project_digest(root: Path) -> str:
    """Identifies the settings, hooks, servers, templates and extensions of a project; empty without any."""
    files = (file for path in provided_files(root) for file in (path, *_files_below(path)))
    digest, found = sha256(), [file for file in files if file.is_file()]
    for file in found:
        data = file.read_bytes()
        digest.update(os.fsencode(f"{file.relative_to(root)}\0{len(data)}\0") + data)
    return digest.hexdigest() if found else ""


def _files_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        yield path
        if path.is_symlink():  # a skill may be a link to a folder, which `rglob` does not enter
            yield from sorted(path.rglob("*"))


def trusted(paths: Paths) -> list[Path]:
    """All trusted projects, sorted by path."""
    return [Path(folder) for folder in sorted(_read(paths).trusted)]


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
    known = _read(paths)
    digest = project_digest(real)
    digests = {**known.digests, **({str(real): digest} if digest else {})}
    _write(paths, {*known.trusted, str(real)}, digests)
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
    """Stops trusting the project at `root`; False if it was not trusted."""
    known, real = _read(paths), os.path.realpath(root)
    if real in known.trusted:
        rest = {path: digest for path, digest in known.digests.items() if path != real}
        _write(paths, {*known.trusted} - {real}, rest)
    return real in known.trusted


def _read(paths: Paths) -> _TrustedProjects:
    file = paths.trust_file
    try:
        return msgspec.json.decode(file.read_bytes(), type=_TrustedProjects)
    except FileNotFoundError:
        return _TrustedProjects([])
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"The list of trusted projects {file} cannot be read: {error}",
            "No project is trusted until it is fixed. Delete it to start with an empty list.",
        ) from error


def _write(paths: Paths, folders: set[str], digests: dict[str, str]) -> None:
    data = msgspec.json.format(msgspec.json.encode(_TrustedProjects(sorted(folders), digests))) + b"\n"
    try:
        write_private(paths.trust_file, data)
    except OSError as error:
        raise CrushpyError(
            f"{paths.trust_file} cannot be written: {error.strerror}",
            "Check the folder's permissions and free space.",
        ) from error
