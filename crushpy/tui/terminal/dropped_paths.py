"""Tells whether a paste is paths of pictures, as a file dropped on a terminal comes in."""

from pathlib import Path

from crushpy.util.images import SUFFIXES

MAX_PASTE = 8_000
"""Characters; longer pastes are prose or code."""


def may_be_pictures(text: str) -> bool:
    """Whether a look at the disk is worth it. Cheap."""
    end = text.strip().rstrip("\"'").lower()
    return len(text) <= MAX_PASTE and end.endswith(SUFFIXES)


def existing_pictures(text: str, folder: str) -> list[str]:
    """The files that `text` names, where it names nothing else and all of them are there; else none."""
    whole = text.strip()
    for names in ([whole], _words(whole), whole.splitlines()):
        paths = [_path(name.strip(), folder) for name in names]
        if paths and all(path is not None for path in paths):
            return [str(path) for path in paths]
    return []


def _words(text: str) -> list[str]:
    """As a shell would read them: quoted, or with a backslash before each blank."""
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return []


def _path(name: str, folder: str) -> Path | None:
    if name.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        name = unquote(urlsplit(name).path)
    if not name.lower().endswith(SUFFIXES):
        return None
    try:
        path = Path(folder) / Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
