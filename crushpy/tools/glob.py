"""The tool `glob`: finds files by name, newest first."""

import asyncio
import heapq
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.core.messages import FileList
from crushpy.security.safe_open import Folder
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import explain_errors, open_place
from crushpy.tools.search.files_below import NOT_SEARCHED, GlobPattern, changed_times
from crushpy.tools.search.ripgrep import (
    SEARCH_TIMEOUT_S,
    list_files,
    require_ripgrep,
    run_program,
)

_MAX_FILES = 100


class GlobArgs(Args, frozen=True):
    pattern: str
    path: Annotated[str, Meta(description="folder to search")] = "."


class GlobTool(ReadingTool[GlobArgs]):
    name = "glob"
    args = GlobArgs
    access = ToolAccess("path", default=".")

    async def run(self, args: GlobArgs, context: CallContext) -> Outcome:
        place = context.find(args.path)
        with explain_errors(context.workspace, place, "searched"):
            opened = open_place(place, "give glob a folder")
        with opened:
            return await self._find(args, context, place.path, opened)

    async def _find(self, args: GlobArgs, context: CallContext, folder: Path, opened: Folder) -> Outcome:
        pattern = GlobPattern(_relative_pattern(args.pattern, folder))
        is_skipped = context.agent.find_skipped(self.name, folder, opened.path)
        found: list[str] = []
        words = list_files(require_ripgrep())
        async with run_program(words, opened, b"\0", SEARCH_TIMEOUT_S) as (records, ended):
            async for record in records:
                path = os.fsdecode(record).removeprefix("./")
                if pattern.matches(path) and not (is_skipped and is_skipped(path)):
                    found.append(path)
        if ended.code not in (0, 1) and not found and ended.errors:
            raise ToolError(f"The files could not be listed: {ended.errors}")
        existing = await asyncio.to_thread(lambda: list(changed_times(opened, found)))
        newest = heapq.nsmallest(_MAX_FILES, existing, key=lambda file: (-file[1], file[0]))
        rows = tuple(encodable(context.workspace.shown(folder / path)) for path, _ in newest)
        notes: list[str] = []
        if not rows:
            notes.append(f"No file matches {encodable(args.pattern)}. Ignored files are left out.")
        if len(existing) > len(rows):
            notes.append(f"[{len(existing) - len(rows):,} older files left out: narrow the pattern]")
        if ended.timed_out:
            notes.append("[stopped after too long: the list is not complete, name a smaller folder]")
        notes += [NOT_SEARCHED] if is_skipped else []
        return Outcome("\n".join((*rows, *notes)), display=FileList(rows, len(existing)))


def _relative_pattern(pattern: str, folder: Path) -> str:
    """The pattern relative to `folder`. Raises ToolError if it leads out of it."""
    if not pattern.strip():
        raise ToolError("The pattern is empty. Use one like **/*.py.")
    pattern = encodable(pattern)
    if pattern.startswith("/"):
        pattern = pattern.removeprefix(f"{folder}/")
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        raise ToolError(f"The pattern {pattern} leads out of {folder}: name the folder in path instead.")
    return pattern
