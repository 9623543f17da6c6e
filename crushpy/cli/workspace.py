"""The working folder and the settings in effect there."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.errors import UsageError
from crushpy.core.own_code import restrict_imports

if TYPE_CHECKING:
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.engine.models import Models
    from crushpy.settings.layers import Loaded
    from crushpy.settings.schema import Settings


def working_folder(cwd: str = "") -> Path:
    """The folder to work in, which becomes closed to imports: commands may write there."""
    folder = _find_folder(cwd)
    restrict_imports(str(folder))
    return folder


def _find_folder(cwd: str) -> Path:
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


def load_here() -> "Loaded":
    """The settings with their sources; warnings go to stderr. Raises SettingsError."""
    from crushpy.core.paths import Paths, project_root
    from crushpy.permissions.trust import is_trusted
    from crushpy.settings.layers import load

    paths, cwd = Paths(), working_folder()
    loaded = load(paths, cwd, trusted=is_trusted(paths, project_root(cwd)))
    for warning in loaded.warnings:
        print_warning(warning)
    return loaded


def environment_here() -> "ProjectEnvironment":
    """The settings of the working folder, and what its project brings."""
    from crushpy.bootstrap.project_environment import ProjectEnvironment

    return ProjectEnvironment(working_folder())


def load_models() -> "tuple[Settings, Models]":
    """The settings, and what is known about models."""
    from crushpy.core.paths import Paths
    from crushpy.engine.models import Models
    from crushpy.llm.learnt import LearntModels

    settings = load_here().settings
    return settings, Models(settings, LearntModels(Paths().learnt_file))


def print_warning(text: str) -> None:
    print(f"crushpy: warning: {text}", file=sys.stderr)
