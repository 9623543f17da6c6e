"""The tool `write`: sets the whole content of a file."""

from crushpy.core.own_tags import restore_tags
from crushpy.tools.base import CallContext, Outcome
from crushpy.tools.errors import ToolError
from crushpy.tools.files import file_change
from crushpy.tools.files.locate import NamedText
from crushpy.tools.files.text_file import TextFile


class WriteArgs(file_change.FileChangeArgs, frozen=True):
    content: str


class _Unchanged(ToolError):
    """The file already has this content: nothing to do, and not an error for the model."""

    def __init__(self, original: NamedText) -> None:
        super().__init__(f"{original.shown} already has exactly this content: nothing was written.")
        self.original = original


class WriteTool(file_change.FileChangeTool[WriteArgs]):
    name = "write"
    args = WriteArgs

    def plan(self, args: WriteArgs, context: CallContext) -> file_change.FileChange:
        original = context.open_text(args.file_path, may_be_new=True)
        file = original.file
        file.check(args.content)
        if not original.exists:
            return file_change.FileChange(original, args.content)
        text, note = _with_newlines_of(file, restore_tags(args.content, file.text))
        if file.encode(text) == original.raw:
            raise _Unchanged(original)
        file_change.require_read(context, original)
        if file.bad_bytes:
            raise ToolError(
                f"{original.shown} holds {file.bad_bytes:,} bytes that are not UTF-8 and would be lost. "
                "Use edit on the other parts, or bash to replace the file."
            )
        return file_change.FileChange(original, text, (note,) if note else ())

    async def run(self, args: WriteArgs, context: CallContext) -> Outcome:
        try:
            change, diff = await file_change.make_change(context, lambda: self.plan(args, context))
        except _Unchanged as unchanged:
            context.agent.memory.remember(unchanged.original.real, unchanged.original.raw)
            return Outcome(str(unchanged))
        verb = "Created" if diff.created else "Wrote"
        notes = "".join(f"\nNote: {note}." for note in change.notes)
        text = f"{verb} {change.original.shown} (+{diff.added} -{diff.removed}).{notes}"
        return Outcome(text, display=diff, changed=change.changed)


def _with_newlines_of(file: TextFile, content: str) -> tuple[str, str]:
    """`content` with the line endings of the file it replaces, and a note if those were mixed."""
    if file.bom:
        content = content.removeprefix("\ufeff")
    if "\r" in content or not file.text:
        return content, ""
    note = "line endings were mixed and are now uniform" if file.mixed_newlines else ""
    return content.replace("\n", file.newline), note
