"""Finds the programs that crushpy itself starts, never in the project.

A PATH may contain `.`, an empty element or `node_modules/.bin`: a project could bring its own `git` there.
"""

import os
import sys
from functools import lru_cache
from pathlib import Path

from crushpy.core.own_code import is_in_folder

_SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
_OWN_FOLDER = os.path.dirname(sys.executable)  # noqa: PTH120
"""Where the programs of crushpy's own environment are, even if that lies in the project."""


def find_program(name: str, workspace: Path | None = None) -> str | None:
    """The absolute path of a program on the PATH or in crushpy's own environment; None if there is none.

    `workspace`: the folder that may be hostile, in addition to the current one.
    """
    return _find_program(name, os.environ.get("PATH", os.defpath), *_hostile_folders(workspace))


def safe_path() -> str:
    """The PATH without elements that are relative or in the current folder."""
    folders = _safe_folders(os.environ.get("PATH", os.defpath), *_hostile_folders(None))
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
    for folder in (*_safe_folders(path, *hostile), _OWN_FOLDER):
        found = os.path.join(folder, name)  # noqa: PTH118
        is_own = folder in (*_SYSTEM_FOLDERS, _OWN_FOLDER)
        is_program = os.path.isfile(found) and os.access(found, os.X_OK)  # noqa: PTH113
        if is_program and (is_own or _is_outside(found, hostile)):
            return found
    return None


@lru_cache(maxsize=64)
def _safe_folders(path: str, *hostile: str) -> tuple[str, ...]:
    own = (*_SYSTEM_FOLDERS, _OWN_FOLDER)
    folders = path.split(os.pathsep)
    return tuple(
        each for each in folders if each in own or (each.startswith("/") and _is_outside(each, hostile))
    )


def _is_outside(path: str, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(path)
    return not any(is_in_folder(real, os.path.realpath(folder)) for folder in folders)
