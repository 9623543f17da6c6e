"""Finds skills, commands and definitions of sub-agents: every file, loaded or refused, and why."""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from crushpy.core.app_commands import by_slash
from crushpy.core.extension_file import ExtensionFile, Kind, Origin
from crushpy.core.messages import Data
from crushpy.core.paths import Paths, extension_folders
from crushpy.extensions.extension_files import Document, Unreadable, parse_document, read_extension
from crushpy.security.sanitize import clean, one_line


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

        usable = (plugin for plugin in installed_plugins(paths) if not plugin.problem)
        places += (Place(plugin.folder, "plugin", plugin.name, plugin.named) for plugin in usable)
    found: dict[str, Place] = {}
    for place in places:
        if place.folder.is_dir():
            found.setdefault(os.path.realpath(place.folder), place)
    return tuple(found.values())


SKILL_FILE = "SKILL.md"
MAX_FOLDER_DEPTH = 4
MAX_EXTENSIONS = 500
"""Files of a kind in one folder."""
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
KNOWN_FIELDS = {
    "skills": "name description license compatibility metadata allowed-tools version model argument-hint "
    "disable-model-invocation user-invocable tools",
    "commands": "name description argument-hint model allowed-tools agent subtask disable-model-invocation "
    "hide-from-slash-command-tool",
    "agents": "name description tools disallowedTools model prompt read_only context_strategy "
    "report_strategy skills color mode permission",
}
"""The fields that mean something here, or nothing that could be missed."""
_NAME = re.compile(r"[\w][\w.-]*(?::[\w.-]+)?")


class Extension(ExtensionFile, frozen=True):
    """One file with its content."""

    document: Document = Document({}, "")
    root: Path = Path()
    """The folder with `skills/`, `commands/` and so on: for a plugin its own."""

    @property
    def folder(self) -> Path:
        """The folder that belongs to it, with links resolved."""
        return Path(os.path.realpath(self.file.parent))

    @property
    def body(self) -> str:
        return self.document.body.strip().replace("${CLAUDE_PLUGIN_ROOT}", str(self.root))


def find_extensions(places: Sequence[Place], kind: Kind) -> list[Extension]:
    """All files of a kind, those with precedence first. Of the same name only the first is used."""
    found: list[Extension] = []
    used: dict[str, Extension] = {}
    seen: set[str] = set()
    for place in places:
        own = (
            other.folder for other in places if other.origin == place.origin and other.plugin == place.plugin
        )
        inside = [Path(os.path.realpath(folder)) for folder in own]
        for file in islice(_files(place, kind), MAX_EXTENSIONS):
            real = os.path.realpath(file)
            if real in seen:
                continue
            one = _read(file, place, kind, inside)
            if one.status != "refused":
                seen.add(real)
            below = kind == "commands" and file.parent.name != kind and _NAME.fullmatch(file.parent.name)
            group = place.plugin or (file.parent.name if below else "")
            if kind == "commands" and by_slash(one.name) and not group and one.status != "refused":
                one = _refused(one, f"/{one.name} is a command of crushpy")
            taken = one.name in used or (kind == "commands" and by_slash(one.name))
            if one.status != "refused" and taken and group:
                one = msgspec.structs.replace(one, name=f"{group}:{one.name}")
            if one.status != "refused":
                first = used.setdefault(one.name, one)
                if first is not one:
                    one = _refused(one, f"{first.file} has the same name and is used")
            found.append(one)
    return found


def _files(place: Place, kind: Kind) -> Iterator[Path]:
    for source in place.sources(kind):
        yield from [source] if source.is_file() else _walk(source, kind, MAX_FOLDER_DEPTH)


def _walk(folder: Path, kind: Kind, depth: int) -> Iterator[Path]:
    """The files of a kind in a folder. A folder with a skill has no others."""
    if kind == "skills" and os.path.lexists(skill := folder / SKILL_FILE):
        yield skill
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries if depth else ():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if entry.is_symlink():  # only a skill itself may be a link: links can form circles
                yield from _walk(entry, kind, 0) if kind == "skills" else ()
            elif depth:
                yield from _walk(entry, kind, depth - 1)
        elif kind != "skills" and entry.suffix == ".md" and entry.stem.lower() != "readme":
            yield entry


def _read(file: Path, place: Place, kind: Kind, inside: Sequence[Path]) -> Extension:
    usual = file.parent.name if kind == "skills" else file.stem
    one = Extension(kind, clean(usual), file, place.origin, root=place.folder)
    real = Path(os.path.realpath(file.parent))
    home = next(filter(real.is_relative_to, inside), None)
    try:
        if home is None:
            raise Unreadable("it is behind a link that leads out of its folder")
        document = parse_document(read_extension(file, real if kind == "skills" else home))
    except Unreadable as error:
        return _refused(one, str(error))
    usual = real.name if kind == "skills" else usual
    warnings = list(document.warnings)
    if not document.fields and not warnings and kind != "commands":
        warnings.append("it has no frontmatter")
    given = document.text("name") if kind != "commands" else ""
    name = given if len(given) <= MAX_NAME_CHARS and _NAME.fullmatch(given) else usual
    if given and name != given:
        warnings.append(f"its name {one_line(given)[:80]!r} cannot be used")
    if not _NAME.fullmatch(name):
        return _refused(one, "its name has other characters than letters, digits, '.', '_' and '-'")
    if kind == "skills" and given and given != usual:
        warnings.append(f"its name differs from its folder {clean(usual)!r}")
    body = next((line for line in document.body.splitlines() if line.strip(" #")), "")
    description = one_line(document.text("description"))
    if not description:
        if kind != "commands":
            warnings.append("it has no description")
        description = one_line(body.strip(" #"))
    if not document.body.strip() and not document.text("prompt"):
        return _refused(one, "it has no text")
    if len(description) > MAX_DESCRIPTION_CHARS and kind == "skills":
        warnings.append(f"its description has more than {MAX_DESCRIPTION_CHARS:,} characters")
    if unknown := sorted(set(document.fields) - set(KNOWN_FIELDS[kind].split())):
        warnings.append(f"unknown fields: {one_line(', '.join(unknown))[:200]}")
    model = document.text("model")
    if kind == "agents" and model not in ("", "inherit") and "/" not in model:
        warnings.append(f"its model {one_line(model)[:40]!r} is not known: the caller's is used")
    if kind == "agents" and (odd := [word for word in document.words("tools") if "(" in word]):
        warnings.append(f"tools with a pattern are left out: {one_line(', '.join(odd))[:200]}")
    return msgspec.structs.replace(
        one,
        name=name,
        status="warned" if warnings else "loaded",
        reasons=tuple(warnings),
        description=description[:MAX_DESCRIPTION_CHARS],
        document=document,
    )


def _refused(one: Extension, why: str) -> Extension:
    return msgspec.structs.replace(one, status="refused", reasons=(why,))
