"""The folders that hold extension files: of a trusted project, of the user, and of installed plugins."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from crushpy.core.messages import Data
from crushpy.core.paths import Paths, extension_folders

Kind = Literal["skills", "commands", "agents", "hooks"]
Origin = Literal["project", "user", "plugin"]


class Place(Data, frozen=True):
    """One folder with `skills/`, `commands/`, `agents/` or `hooks/`."""

    folder: Path
    origin: Origin
    plugin: str = ""
    named: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Other files and folders that the manifest of a plugin names, by kind."""

    def sources(self, kind: Kind) -> list[Path]:
        """The files and folders that may hold extensions of a kind: the usual folder, and those named."""
        return [self.folder / kind, *(self.folder / name for name in self.named.get(kind, ()))]


def extension_places(paths: Paths, root: Path | None) -> tuple[Place, ...]:
    """All folders that exist, those with precedence first: the project's, the user's, the plugins'.

    `root`: of the project, if it is trusted.
    """
    project, user = extension_folders(paths, root)
    places = [Place(folder, "project") for folder in project] + [Place(folder, "user") for folder in user]
    if paths.plugins.is_dir():
        from crushpy.extensions.plugins import installed_plugins

        for plugin in installed_plugins(paths):
            if not plugin.problem:
                places.append(Place(plugin.folder, "plugin", plugin.name, plugin.named))
    found: dict[str, Place] = {}
    for place in places:
        if place.folder.is_dir():
            found.setdefault(os.path.realpath(place.folder), place)
    return tuple(found.values())
