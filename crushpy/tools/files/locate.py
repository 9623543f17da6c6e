"""Finds the file a model means by a path it wrote, and suggests names where there is none."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from crushpy.security.safe_open import open_folder
from crushpy.security.sanitize import encodable
from crushpy.tools.base import ToolContext
from crushpy.tools.errors import ToolError

_MAX_NAMES = 5_000
"""How many names of a folder are compared with a misspelt one."""


def locate(context: ToolContext, path: str) -> Path:
    """`path` as an absolute path that can be looked at; a ToolError where it cannot be one at all."""
    if not path.strip():
        raise ToolError("The path is empty: name a file or a folder.")
    if "\0" in path:
        raise ToolError("The path holds a NUL character: no file can have that name.")
    try:
        found = context.resolve(path)
    except RuntimeError as error:
        raise ToolError(
            f"{encodable(path)}: there is no such user's home folder. Use an absolute path."
        ) from error
    try:
        found.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # Some tools make it; the others say what is near.
    except (OSError, ValueError) as error:
        raise ToolError(f"{encodable(path)} cannot be used as a path: {reason(error)}.") from error
    return found


def real_path(context: ToolContext, path: str) -> str:
    """The file that a call on `path` would touch, behind all links. Never raises.

    Within a call the answer stays the same: what was judged is opened, with `crushpy.security.safe_open`.
    """
    if context.resolved is not None and path in context.resolved:
        return context.resolved[path]
    try:
        found = os.path.realpath(context.resolve(path))
    except (OSError, ValueError, RuntimeError):
        # `run` will refuse it; until then it stands for itself.
        found = str(context.cwd / path)
    if context.resolved is not None:
        context.resolved[path] = found
    return found


def missing(context: ToolContext, path: Path, real: Path) -> ToolError:
    """The error for a file that is not there, with the names that come nearest to its real one."""
    what = "file"
    while (there := _names(real.parent)) is None and real != real.parent:
        path, real, what = path.parent, real.parent, "folder"
    near = _nearest(there or [], real.name)
    shown = encodable(context.shown(path))
    if not near:
        return ToolError(f"{shown} does not exist. Use ls or glob to find the {what}.")
    names = ", ".join(encodable(context.shown(path.parent / name)) for name in near)
    return ToolError(f"{shown} does not exist. Nearest: {names}.")


def reason(error: Exception) -> str:
    """Why the system refused, in its words and without its number."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "its links lead in a circle, or a part of it became a link since it was checked"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)


def _names(folder: Path) -> list[str] | None:
    """What is in a folder; None where it is none, or cannot be listed."""
    try:
        with open_folder(folder) as opened, opened.entries() as entries:
            return [entry.name for entry, _ in zip(entries, range(_MAX_NAMES), strict=False)]
    except (OSError, ValueError):
        return None


def _nearest(names: list[str], name: str) -> list[str]:
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    stem = Path(name).stem.lower()
    same_stem = (known for known in sorted(names) if stem and Path(known).stem.lower() == stem)
    return list(_unique((*(by_lower[lower] for lower in close), *same_stem)))[:3]


def _unique(names: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(names)
