"""The working folder and the settings in effect there."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.errors import UsageError

if TYPE_CHECKING:
    from crushpy.llm.learnt import LearntModels
    from crushpy.settings import Settings


def working_folder(cwd: str = "") -> Path:
    if cwd:
        folder = Path(cwd).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--cwd {cwd}: no such folder.")
        return folder
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            "The current folder no longer exists.", "Change to another one (cd), or give one with --cwd."
        ) from error


def settings_here() -> "Settings":
    """Raises SettingsError; warnings go to stderr."""
    from crushpy.core.paths import Paths, project_root
    from crushpy.settings import load, project_file

    paths, cwd = Paths(), working_folder()
    trusted = False
    if project_file(cwd).exists():
        from crushpy.permissions.trust import is_trusted

        trusted = is_trusted(paths, project_root(cwd))
    loaded = load(paths, cwd, trusted=trusted)
    for warning in loaded.warnings:
        print(f"crushpy: {warning}", file=sys.stderr)
    return loaded.settings


def learnt_here() -> "LearntModels":
    """What was learnt about models from their servers."""
    from crushpy.core.paths import Paths
    from crushpy.llm.learnt import LearntModels

    return LearntModels(Paths().learnt_file)
