"""The tool `write`: sets the whole content of a file."""

from pathlib import Path

from crushpy.core.access import Access, ToolAccess
from crushpy.core.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.errors import ToolError
from crushpy.tools.files.file_change import (
    FileChange,
    make_change,
    open_original,
    preview_change,
    require_known,
)
from crushpy.tools.files.locate import real_path
from crushpy.tools.files.text_file import TextFile


class WriteArgs(Args, frozen=True):
    file_path: str
    content: str


class _Unchanged(ToolError):
    """The file already has this content: nothing to do, and not an error for the model."""

    def __init__(self, path: Path, shown: str, raw: bytes) -> None:
        super().__init__(f"{shown} already has exactly this content: nothing was written.")
        self.path = path
        self.raw = raw


class WriteTool(Tool[WriteArgs]):
    name = "write"
    args = WriteArgs
    access = ToolAccess("path", writes=True)

    def accesses(self, args: WriteArgs, context: ToolContext) -> tuple[Access, ...]:
        return self.touches(real_path(context, args.file_path))

    async def preview(self, args: WriteArgs, context: ToolContext) -> Diff | None:
        return await preview_change(lambda: _plan(context, args))

    async def run(self, args: WriteArgs, context: ToolContext) -> Outcome:
        try:
            change, diff = await make_change(context, lambda: _plan(context, args))
        except _Unchanged as unchanged:
            context.memory.remember(unchanged.path, unchanged.raw)
            return Outcome(str(unchanged))
        verb = "Created" if diff.created else "Wrote"
        notes = "".join(f"\nNote: {note}." for note in change.notes)
        text = f"{verb} {change.original.shown} (+{diff.added} -{diff.removed}).{notes}"
        return Outcome(text, display=diff)


def _plan(context: ToolContext, args: WriteArgs) -> FileChange:
    original = open_original(context, args.file_path)
    file = original.file
    file.check(args.content)
    if original.raw is None:
        return FileChange(original, args.content)
    text, note = _in_form_of(file, args.content)
    if file.encode(text) == original.raw:
        raise _Unchanged(original.real, original.shown, original.raw)
    require_known(context, original)
    if file.bad_bytes:
        raise ToolError(
            f"{original.shown} holds {file.bad_bytes:,} bytes that are not valid UTF-8 and would be lost. "
            "Use edit on the other parts, or bash to replace the file."
        )
    return FileChange(original, text, (note,) if note else ())


def _in_form_of(file: TextFile, content: str) -> tuple[str, str]:
    """`content` with the line endings of the file it replaces, and a note if those were mixed."""
    if file.bom:
        content = content.removeprefix("\ufeff")
    if "\r" in content or not file.text:
        return content, ""
    note = "line endings were mixed and are now uniform" if file.mixed_newlines else ""
    return content.replace("\n", file.newline), note
