"""The settings that hold in the current folder, for commands that need nothing else of a project."""

import sys
from typing import TYPE_CHECKING

from crushpy.cli.folder import working_folder

if TYPE_CHECKING:
    from crushpy.llm.learnt import LearntModels
    from crushpy.settings import Settings


def settings_here() -> "Settings":
    """Raises SettingsError; what is only odd is told on stderr."""
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
    """What was learnt of models on their servers."""
    from crushpy.core.paths import Paths
    from crushpy.llm.learnt import LearntModels

    return LearntModels(Paths().learnt_file)
