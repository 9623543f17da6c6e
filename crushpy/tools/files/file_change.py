"""One change to one text file: planned first, so that it can be shown, then made."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Data, Diff
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, Tool, ToolContext
from crushpy.tools.errors import DoesNotFit, ToolError, reason
from crushpy.tools.files.line_diff import changed_lines, make_diff
from crushpy.tools.files.locate import NamedPath, find_place
from crushpy.tools.files.text_file import TextFile, decode, normalize, split_lines
from crushpy.tools.truncate import cut_line
from crushpy.util.uncancellable import in_thread

_CONTEXT_LINES = 2
_MAX_SHOWN_CHANGES = 3
_MAX_SHOWN_LINES = 6
"""Lines shown of one change; of a longer one both ends are shown."""
_MAX_LINE_CHARS = 200


class OriginalFile(NamedPath, frozen=True):
    """The file to change, as it is now."""

    raw: bytes | None
    """None if there is no file yet."""
    file: TextFile


class FileChange(Data, frozen=True):
    """The content of a file after a change."""

    original: OriginalFile
    text: str
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> str | None:
        return None if self.original.raw is None else self.original.file.text

    @property
    def changed(self) -> tuple[str, str | None]:
        raw = (self.before or "").encode(errors="surrogateescape")
        return str(self.original.real), None if self.before is None else raw.decode(errors="replace")

    def diff(self) -> Diff:
        return make_diff(self.original.shown, self.before, self.text)


PlanChange = Callable[[], FileChange]


def open_original(context: ToolContext, file_path: str) -> OriginalFile:
    """The text file at `file_path`, or the path for a new one. Raises ToolError for anything else."""
    place = find_place(context, file_path)
    where = place.path, place.real, place.shown
    try:
        raw = context.files.read(*where)
    except (FileNotFoundError, NotADirectoryError):
        return OriginalFile(*where, None, TextFile(""))
    except OSError as error:
        raise ToolError(f"{place.shown} cannot be read: {reason(error)}.") from error
    file = decode(raw)
    if file is None:
        raise ToolError(f"{place.shown} is a binary file: only text can be written here. Use bash.")
    return OriginalFile(*where, raw, file)


def require_read(context: ToolContext, original: OriginalFile) -> None:
    """Raises ToolError unless the model has read the current content of the file."""
    if original.raw is None:
        return
    state = context.memory.state(original.real, original.raw)
    if state == "unread":
        raise ToolError(f"{original.shown} has not been read yet: view it first.")
    if state == "changed":
        raise ToolError(f"{original.shown} has changed since it was read: view it again first.")


async def make_change(context: ToolContext, plan: PlanChange) -> tuple[FileChange, Diff]:
    def plan_and_write() -> tuple[FileChange, Diff]:
        change = plan()
        original = change.original
        content = original.file.encode(change.text)
        diff = change.diff()
        note = context.files.write(original.path, original.real, original.shown, content, original.raw)
        context.memory.remember(original.real, content)
        if note:
            change = FileChange(original, change.text, (*change.notes, note))
        return change, diff

    return await in_thread(plan_and_write)


class FileChangeArgs(Args, frozen=True):
    file_path: str


F = TypeVar("F", bound=FileChangeArgs)


class FileChangeTool(Tool[F]):
    """A tool that changes one file, and can show the change before it is made."""

    access = ToolAccess("path", writes=True)

    def plan(self, args: F, context: ToolContext) -> FileChange:
        """The change that a call would make. Raises ToolError."""
        raise NotImplementedError

    async def preview(self, args: F, context: ToolContext) -> Diff | None:
        """The diff of the change; None if it would fail.

        Raises DoesNotFit, which reveals nothing new: the model has read that file.
        """
        try:
            return await asyncio.to_thread(lambda: self.plan(args, context).diff())
        except DoesNotFit:
            raise
        except ToolError:
            return None


def describe_change(change: FileChange, diff: Diff, summary: str) -> str:
    """Describes a change for the model: what was done, and the changed lines with their new numbers."""
    notes = "".join(f"\nNote: {note}." for note in change.notes)
    after = split_lines(normalize(change.text))
    places = changed_lines(split_lines(normalize(change.before or "")), after)
    width = len(str(len(after)))
    shown = "\n...\n".join(
        "\n".join(_numbered_lines(after, place.new_start, place.new_end, width))
        for place in places[:_MAX_SHOWN_CHANGES]
    )
    omitted = len(places) - _MAX_SHOWN_CHANGES
    rest = f"\n[{omitted} more changed places not shown]" if omitted > 0 else ""
    return f"{summary} (+{diff.added} -{diff.removed}).{notes}" + (f"\n{shown}{rest}" if shown else "")


def _numbered_lines(lines: Sequence[str], start: int, end: int, width: int) -> list[str]:
    first, last = max(start - _CONTEXT_LINES, 0), min(end + _CONTEXT_LINES, len(lines))
    rows = [f"{n + 1:>{width}}\t{cut_line(encodable(lines[n]), _MAX_LINE_CHARS)}" for n in range(first, last)]
    if end - start > _MAX_SHOWN_LINES:
        keep = _MAX_SHOWN_LINES // 2 + _CONTEXT_LINES
        rows[keep:-keep] = ["..."]
    return rows
