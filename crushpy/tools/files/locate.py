"""Paths that a model wrote: resolves them, explains errors, and suggests names if there is no such file."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, open_folder, read_names
from crushpy.security.sanitize import encodable
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.files.text_file import TextFile, normalize, split_lines

_MAX_COMPARED_NAMES = 5_000
"""How many names of a folder are compared with a misspelt one."""


class NamedPath(Data, frozen=True):
    """A path that a model wrote."""

    path: Path
    """As named, absolute."""
    real: Path
    """With links resolved, as permissions were decided on it."""
    shown: str


class NamedText(NamedPath, frozen=True):
    """The text file at such a path, as it is now."""

    raw: bytes
    file: TextFile
    exists: bool = True
    """False for a file that is to be created."""

    @property
    def lines(self) -> list[str]:
        """Its lines as a model reads them."""
        return split_lines(encodable(normalize(self.file.text)))


class PathNames(Protocol):
    """The paths of a workspace."""

    def resolve(self, path: str) -> Path: ...

    def shown(self, path: Path) -> str: ...


def locate(workspace: PathNames, path: str) -> Path:
    """`path` as an absolute path. Raises ToolError if it cannot be one."""
    if not path.strip():
        raise ToolError("The path is empty: name a file or a folder.")
    if "\0" in path:
        raise ToolError("The path contains a NUL character, which no file name can.")
    try:
        found = workspace.resolve(path)
    except RuntimeError as error:
        raise ToolError(
            f"{encodable(path)}: there is no such user's home folder. Use an absolute path."
        ) from error
    try:
        found.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # some tools create it; the others suggest similar names
    except (OSError, ValueError) as error:
        raise ToolError(f"{encodable(path)} cannot be used as a path: {reason(error)}.") from error
    return found


@contextmanager
def explain_errors(workspace: PathNames, place: NamedPath, verb: str) -> Generator[None]:
    """Raises errors of the system as ToolError: the place does not exist, or cannot be `verb`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise missing(workspace, place) from None
    except OSError as error:
        raise ToolError(f"{place.shown} cannot be {verb}: {reason(error)}.") from error


def open_place(place: NamedPath, advice: str) -> Folder:
    """Opens a folder. Raises OSError, and ToolError with `advice` if it is a file."""
    try:
        return open_folder(place.real)
    except NotADirectoryError:
        if place.path.exists():
            raise ToolError(f"{place.shown} is a file: {advice}.") from None
        raise


def missing(workspace: PathNames, place: NamedPath) -> ToolError:
    """The error for a missing file, with the most similar names."""
    if place.path.is_symlink():
        target = encodable(str(place.path.readlink()))
        return ToolError(f"{place.shown} is a link to {target}, which does not exist.")
    path, real = place.path, place.real
    while (names_in_parent := read_names(real.parent, _MAX_COMPARED_NAMES)) is None and real != real.parent:
        path, real = path.parent, real.parent
    similar = _similar_names(names_in_parent or [], real.name)
    shown = encodable(workspace.shown(path))
    if not similar:
        return ToolError(f"{shown} does not exist. grep without a path searches the whole project.")
    names = ", ".join(encodable(workspace.shown(path.parent / name)) for name in similar)
    return ToolError(f"{shown} does not exist. Nearest: {names}.")


def _similar_names(names: list[str], name: str) -> list[str]:
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    stem = Path(name).stem.lower()
    same_stem = (known for known in sorted(names) if stem and Path(known).stem.lower() == stem)
    return list(dict.fromkeys((*(by_lower[lower] for lower in close), *same_stem)))[:3]
