"""The folders that hold extension files: of a trusted project, of the user, and of installed plugins."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from crushpy.core.messages import Data
from crushpy.core.paths import PROJECT_FOLDER, Paths

Kind = Literal["skills", "commands", "agents", "hooks"]
Origin = Literal["project", "user", "plugin"]
SHARED_FOLDERS = (".agents", ".claude")
"""The folders of other agents, in a project and in the home folder."""
MAX_FOLDER_DEPTH = 4
"""Of the folders that are searched for files."""


class Place(Data, frozen=True):
    """One folder with `skills/`, `commands/`, `agents/` or `hooks/`."""

    folder: Path
    origin: Origin
    plugin: str = ""
    """The name of the plugin."""
    named: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Other files and folders that the manifest of a plugin names, by kind."""

    def sources(self, kind: Kind) -> list[Path]:
        """The files and folders that may hold extensions of a kind: the usual folder, and those named."""
        return [self.folder / kind, *(self.folder / name for name in self.named.get(kind, ()))]


def extension_places(paths: Paths, root: Path | None) -> tuple[Place, ...]:
    """All folders that exist, those with precedence first: the project's, the user's, the plugins'.

    `root`: of the project, if it is trusted.
    """
    places = [Place(paths.config_dir, "user")]
    places += [Place(Path.home() / name, "user") for name in SHARED_FOLDERS]
    if root is not None:
        places[:0] = [Place(root / name, "project") for name in (PROJECT_FOLDER, *SHARED_FOLDERS)]
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


def has_extensions(places: tuple[Place, ...], kind: Kind) -> bool:
    """Whether any of the places may hold extensions of a kind. Reads no file."""
    return any(source.exists() for place in places for source in place.sources(kind))


def files_of(place: Place, kind: Kind, suffix: str = ".md") -> Iterator[Path]:
    """The files of a kind in a place, sorted, also in subfolders. Links that lead out are not followed."""
    for source in place.sources(kind):
        yield from [source] if source.is_file() else _walk(source, suffix, MAX_FOLDER_DEPTH)


def _walk(folder: Path, suffix: str, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and depth and not entry.name.startswith("."):
            yield from _walk(entry, suffix, depth - 1)
        elif entry.name.endswith(suffix):
            yield entry
