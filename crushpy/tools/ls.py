"""The tool `ls`: the contents of a folder as a tree."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from crushpy.core.access import ToolAccess
from crushpy.core.messages import FileList
from crushpy.security.safe_open import Folder, open_folder
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.files.locate import explain_errors, open_place
from crushpy.tools.search.files_below import NOT_SEARCHED, VERSION_CONTROL, IgnoreRules

_MAX_ENTRIES = 400
IsSkipped = Callable[[Path], bool] | None


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
        self.names, self.files = _list(path, rules, is_skipped)
        """Its subfolders, sorted; everything else by name, with what is shown of a link's target."""
        self.size = len(self.names) + len(self.files)
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


def _list(folder: Path, rules: IgnoreRules, is_skipped: IsSkipped) -> tuple[list[str], dict[str, str]]:
    """What `_Folder` has of a folder; nothing if it cannot be read."""
    names: list[str] = []
    files: dict[str, str] = {}
    try:
        with open_folder(folder) as opened, opened.entries() as found:
            for entry in found:
                is_folder = entry.is_dir(follow_symlinks=False)
                path = folder / entry.name
                if entry.name in VERSION_CONTROL or rules.ignores(str(path), is_folder=is_folder):
                    continue
                if is_skipped is not None and is_skipped(path):
                    continue
                if is_folder:
                    names.append(entry.name)
                else:
                    files[entry.name] = _link_suffix(opened, entry)
    except OSError:
        return [], {}
    return sorted(names), files


def _link_suffix(folder: Folder, entry: "os.DirEntry[str]") -> str:
    if not entry.is_symlink():
        return ""
    try:
        return f" -> {folder.link_target(entry.name)}"
    except OSError:
        return " -> ?"


def _expand_folders(root: _Folder, is_skipped: IsSkipped) -> int:
    """Expands folders level by level while they fit; returns how many entries are not shown."""
    root.shown = min(root.size, _MAX_ENTRIES)
    hidden_count = root.size - root.shown
    remaining = _MAX_ENTRIES - root.shown
    queue = deque([root])
    while queue:
        folder = queue.popleft()
        for name in folder.names[: folder.shown]:
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
    for name in sorted(folder.files)[: folder.shown - len(folder.folders)]:
        yield f"{indent}{name}{folder.files[name]}"
