"""Rules files below the working folder: they come with the first result about a file under their folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from crushpy.context.tags import element
from crushpy.engine.agents.scope import Services
from crushpy.engine.environment import MAX_FILE_CHARS, NAMES, read_instructions
from crushpy.tools.view import ViewArgs, ViewTool

RULES_KEY = "rules:"
TOOLS = ("view", "edit", "multiedit", "write")
"""The tools whose results bring rules."""
INTRODUCTION = "Rules for the files in this folder:"
NOT_OURS = {".git", "node_modules", "site-packages"}
"""Folders with the code of others, whose rules do not apply."""


class NestedRules:
    """The rules files of one workspace. A file that `view` may not read without a question is left out."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._context = services.workspace
        self._cwd = Path(os.path.realpath(services.workspace.cwd))

    def keys_for(self, path: str) -> list[str]:
        """The rules files that apply to a file, given by its real path, the outermost first."""
        return [RULES_KEY + str(file.relative_to(self._cwd)) for file in self._files(Path(path))]

    def _files(self, path: Path) -> Iterator[Path]:
        if not path.is_relative_to(self._cwd) or NOT_OURS & set(path.relative_to(self._cwd).parts):
            return
        for folder in reversed([one for one in path.parents if self._cwd in one.parents]):
            files = [file for name in NAMES if (file := folder / name) != path and file.exists()]
            texts = [self.read(str(file.relative_to(self._cwd))) for file in files] if files[1:] else []
            yield from (file for at, file in enumerate(files) if not at or texts[at] not in texts[:at])

    def read(self, name: str) -> str:
        """The text of a rules file, with its imports; empty if it cannot be read."""
        file = self._cwd / name
        accesses = ViewTool().accesses(ViewArgs(str(file)), self._context)
        if self._services.approvals.judge(accesses, self._context.cwd).verdict != "allow":
            return ""
        text = read_instructions(file, self._cwd, imports=self._services.trusted)
        cut = len(text) - MAX_FILE_CHARS
        return text if cut <= 0 else f"{text[:MAX_FILE_CHARS]}\n[... {cut:,} characters cut; view {name} ...]"

    def attached(self, key: str) -> str:
        """The text that follows a result; empty if the file cannot be read."""
        name = key.removeprefix(RULES_KEY)
        text = self.read(name)
        return f"\n\n{INTRODUCTION}\n{element('instructions', text, path=name)}" if text else ""
