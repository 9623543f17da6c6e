"""Rules files below the working folder: they come with the first result about a file under their folder."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from crushpy.engine.agents.scope import Services
from crushpy.engine.environment import MAX_FILE_CHARS, NAMES, read_instructions
from crushpy.engine.hooks import ObservedCall
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Outcome
from crushpy.tools.view import ViewTool

RULES_KEY = "rules:"
TOOLS = ("view", "edit", "multiedit", "write")
"""The tools whose results bring rules."""
INTRODUCTION = "[From crushpy, not from the file] The project's rules for the files in this folder, from"
NOT_OURS = {".git", "node_modules", "site-packages"}
"""Folders with the code of others, whose rules do not apply."""


class NestedRules:
    """The rules files of one workspace. A file that `view` may not read without a question is left out."""

    def __init__(self, services: Services, has_loaded: Callable[[str], bool] = lambda _: False) -> None:
        """`has_loaded`: whether the context holds a rules file."""
        self._services, self._has_loaded = services, has_loaded
        self._cwd = Path(os.path.realpath(services.workspace.cwd))
        self._arriving: set[str] = set()
        """Those that come with results which are not stored yet."""

    def _keys(self, path: Path) -> Iterator[str]:
        """The rules files that apply to a file, given by its real path, the outermost first."""
        if not path.is_relative_to(self._cwd) or NOT_OURS & set(path.relative_to(self._cwd).parts):
            return
        for folder in reversed([parent for parent in path.parents if self._cwd in parent.parents]):
            files = [file for name in NAMES if (file := folder / name) != path and file.exists()]
            names = [str(file.relative_to(self._cwd)) for file in files]
            texts = [self.read(name) for name in names] if names[1:] else []
            for at, name in enumerate(names):
                if not at or texts[at] not in texts[:at]:
                    yield encodable(f"{RULES_KEY}{name}")

    def read(self, name: str) -> str:
        """The text of a rules file, with its imports; empty if it cannot be read."""
        file = self._cwd / name
        workspace = self._services.workspace
        accesses = ViewTool().touches(workspace.real_path(str(file)))
        if self._services.approvals.judge(accesses, workspace.cwd).verdict != "allow":
            return ""
        text = read_instructions(file, self._cwd, imports=self._services.trusted)
        mark = f"\n[... {len(text) - MAX_FILE_CHARS:,} characters truncated; view {name} ...]"
        return text if len(text) <= MAX_FILE_CHARS else text[:MAX_FILE_CHARS] + mark

    async def attach(self, outcome: Outcome, observed: ObservedCall) -> Outcome:
        """The outcome with the rules files that apply to its file and are not in the context."""
        paths = [access.value for access in observed.accesses if access.kind == "path"]
        if outcome.is_error or not paths or observed.call.name not in TOOLS:
            return outcome
        keys = await asyncio.to_thread(lambda: [key for path in paths for key in self._keys(Path(path))])
        new = [key for key in keys if key not in self._arriving and not self._has_loaded(key)]
        self._arriving.update(new)  # calls of one reply run in parallel
        names = {key: key.removeprefix(RULES_KEY) for key in new}
        found = {key: text for key in new if (text := await asyncio.to_thread(self.read, names[key]))}
        blocks = (f"\n\n{INTRODUCTION} {names[key]}:\n{text}" for key, text in found.items())
        attached, loaded = "".join((outcome.attached, *blocks)), (*outcome.loaded, *found)
        return msgspec.structs.replace(outcome, attached=attached, loaded=loaded) if found else outcome

    def stored(self, outcome: Outcome) -> None:
        """The result is in the context now."""
        self._arriving.difference_update(outcome.loaded)
