"""The tool `ls`: the contents of a folder as a tree."""

import asyncio
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.access import ToolAccess
from crushpy.core.messages import FileList
from crushpy.security.safe_open import open_folder
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.files.locate import explain_errors, open_place
from crushpy.tools.search.files_below import NOT_SEARCHED, IgnoreRules, IsSkipped

_MAX_ENTRIES = 400


class LsArgs(Args, frozen=True):
    path: str = "."


class LsTool(ReadingTool[LsArgs]):
    name = "ls"
    args = LsArgs
    access = ToolAccess("path", default=".")

    async def run(self, args: LsArgs, context: CallContext) -> Outcome:
        return await asyncio.to_thread(_ls, args, context)


class _Folder:
    """A folder of the tree. Its entries are counted at once, and shown if they fit."""

    def __init__(self, path: Path, rules: IgnoreRules, is_skipped: IsSkipped) -> None:
        self.path = path
        self.rules = rules
        self.found = rules.entries(str(path), is_skipped)
        self.size = len(self.found.folders) + len(self.found.files)
        self.shown = 0
        """How many entries are shown: folders first."""
        self.folders: list[_Folder] = []


def _ls(args: LsArgs, context: CallContext) -> Outcome:
    place = context.find(args.path)
    real, name = place.real, place.shown
    with (
        explain_errors(context.workspace, place, "listed"),
        open_place(place, "use view") as folder,
        folder.entries() as entries,
    ):
        next(entries, None)
    below = context.agent.find_skipped("ls", place.path, real)
    is_skipped: IsSkipped = (lambda found: below(str(found.relative_to(real)))) if below else None
    skip_note = f"\n{NOT_SEARCHED}" if below else ""
    root = _Folder(real, IgnoreRules.at(real), is_skipped)
    if not root.size:
        return Outcome(f"{name}/ is empty, or all in it is ignored.{skip_note}", display=FileList(()))
    hidden_count = _expand_folders(root, is_skipped)
    rows = tuple(encodable(row) for row in _tree_rows(root, ""))
    note = f"\n[{hidden_count:,} entries left out: ls a folder to see what is in it]" if hidden_count else ""
    return Outcome(
        f"{name}/\n" + "\n".join(rows) + note + skip_note, display=FileList(rows, len(rows) + hidden_count)
    )


def _expand_folders(root: _Folder, is_skipped: IsSkipped) -> int:
    """Expands folders level by level while they fit; returns how many entries are not shown."""
    root.shown = min(root.size, _MAX_ENTRIES)
    hidden_count = root.size - root.shown
    remaining = _MAX_ENTRIES - root.shown
    queue = deque([root])
    while queue:
        folder = queue.popleft()
        for name in folder.found.folders[: folder.shown]:
            path = folder.path / name
            below = _Folder(path, folder.rules.inside(str(path)), is_skipped)
            folder.folders.append(below)
            if below.size > remaining:
                hidden_count += below.size
                continue
            remaining -= below.size
            below.shown = below.size
            queue.append(below)
    return hidden_count


def _tree_rows(folder: _Folder, indent: str) -> Iterator[str]:
    for below in folder.folders:
        count_note = f" ({below.size:,} entries)" if below.shown < below.size else ""
        yield f"{indent}{below.path.name}/{count_note}"
        yield from _tree_rows(below, indent + "  ")
    for name in folder.found.files[: folder.shown - len(folder.folders)]:
        yield f"{indent}{name}{_link_suffix(folder, name)}"


def _link_suffix(folder: _Folder, name: str) -> str:
    if name not in folder.found.links:
        return ""
    try:
        with open_folder(folder.path) as opened:
            return f" -> {opened.link_target(name)}"
    except OSError:
        return " -> ?"
