"""Finds the programs that crushpy itself starts, never in the project.

A PATH may contain `.`, an empty element or `node_modules/.bin`: a project could bring its own `git` there.
"""

import os
import sys
from functools import lru_cache
from pathlib import Path

_SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
_OWN_FOLDER = os.path.dirname(sys.executable)  # noqa: PTH120
"""Where the programs of crushpy's own environment are, even if that lies in the project."""


def find_program(name: str, workspace: Path | None = None) -> str | None:
    """The absolute path of a program on the PATH or in crushpy's own environment; None if there is none.

    `workspace`: the folder that may be hostile, in addition to the current one.
    """
    return _find_program(name, os.environ.get("PATH", os.defpath), *_hostile_folders(workspace))


def safe_path(workspace: Path | None = None) -> str:
    """The PATH without elements that are relative or in the project."""
    folders = _safe_folders(os.environ.get("PATH", os.defpath), *_hostile_folders(workspace))
    return os.pathsep.join(folders or _SYSTEM_FOLDERS)


def _hostile_folders(workspace: Path | None) -> tuple[str, ...]:
    try:
        current = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        current = ""
    named = str(workspace) if workspace is not None else ""
    return tuple(folder for folder in (current, named) if folder)


@lru_cache(maxsize=64)
def _find_program(name: str, path: str, *hostile: str) -> str | None:
    real_folders = [os.path.realpath(folder) for folder in hostile]
    for folder in (*_safe_folders(path, *hostile), _OWN_FOLDER):
        found = os.path.join(folder, name)  # noqa: PTH118
        is_own = folder in (*_SYSTEM_FOLDERS, _OWN_FOLDER)
        is_program = os.path.isfile(found) and os.access(found, os.X_OK)  # noqa: PTH113
        if is_program and (is_own or not _is_inside(os.path.realpath(found), real_folders)):
            return found
    return None


@lru_cache(maxsize=64)
def _safe_folders(path: str, *hostile: str) -> tuple[str, ...]:
    real_folders = [os.path.realpath(folder) for folder in hostile]
    return tuple(
        folder
        for folder in path.split(os.pathsep)
        if folder in (*_SYSTEM_FOLDERS, _OWN_FOLDER)
        or (os.path.isabs(folder) and not _is_inside(os.path.realpath(folder), real_folders))  # noqa: PTH117
    )


def _is_inside(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
