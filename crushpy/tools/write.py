"""The tool `write`: sets the whole content of a file."""

from pathlib import Path

from crushpy.access import Access
from crushpy.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext, ToolError
from crushpy.tools.files.change import Planned, make, open_source, require_known, show
from crushpy.tools.files.locate import touched
from crushpy.tools.files.text_file import TextFile


class WriteArgs(Args, frozen=True):
    file_path: str
    content: str


class _Unchanged(ToolError):
    """The file holds exactly this already: nothing to do, and no error for the model."""

    def __init__(self, path: Path, shown: str, raw: bytes) -> None:
        super().__init__(f"{shown} holds exactly this already: nothing was written.")
        self.path = path
        self.raw = raw


class Write(Tool[WriteArgs]):
    name = "write"
    args = WriteArgs

    def accesses(self, args: WriteArgs, context: ToolContext) -> tuple[Access, ...]:
        return touched(self.name, context, args.file_path, writes=True)

    async def preview(self, args: WriteArgs, context: ToolContext) -> Diff | None:
        return await show(lambda: _plan(context, args))

    async def run(self, args: WriteArgs, context: ToolContext) -> Outcome:
        try:
            planned, diff = await make(context, lambda: _plan(context, args))
        except _Unchanged as unchanged:
            context.memory.remember(unchanged.path, unchanged.raw)
            return Outcome(str(unchanged))
        verb = "Created" if diff.created else "Wrote"
        notes = "".join(f"\nNote: {note}." for note in planned.notes)
        text = f"{verb} {planned.source.shown} (+{diff.added} -{diff.removed}).{notes}"
        return Outcome(text, display=diff)


def _plan(context: ToolContext, args: WriteArgs) -> Planned:
    source = open_source(context, args.file_path)
    file = source.file
    file.check(args.content)
    if source.raw is None:
        return Planned(source, args.content)
    text, note = _in_form_of(file, args.content)
    if file.encode(text) == source.raw:
        raise _Unchanged(source.path, source.shown, source.raw)
    require_known(context, source)
    if file.bad_bytes:
        raise ToolError(
            f"{source.shown} holds {file.bad_bytes:,} bytes that are not valid UTF-8 and would be lost. "
            "Use edit on the other parts, or bash to replace the file."
        )
    return Planned(source, text, (note,) if note else ())


def _in_form_of(file: TextFile, content: str) -> tuple[str, str]:
    """`content` with the line endings of the file it replaces, and a note where those were mixed."""
    if file.bom:
        content = content.removeprefix("\ufeff")
    if "\r" in content or not file.text:
        return content, ""
    note = "line endings were mixed and are now all alike" if file.mixed_newlines else ""
    return content.replace("\n", file.newline), note
