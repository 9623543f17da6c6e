"""Works out what edits make of a file: in order, all of them or none."""

from collections.abc import Sequence

from crushpy.tools.base import Args, ToolContext
from crushpy.tools.errors import DoesNotFit, ToolError
from crushpy.tools.files.file_change import FileChange, OriginalFile, open_original, require_known
from crushpy.tools.files.locate import missing
from crushpy.tools.files.passage_replacement import replace_passage
from crushpy.tools.files.text_file import TextFile


class Replacement(Args, frozen=True):
    old_string: str
    new_string: str
    replace_all: bool = False


def plan_edits(context: ToolContext, file_path: str, edits: Sequence[Replacement]) -> FileChange:
    """What the file would hold after `edits`. A ToolError names the edit that cannot be made."""
    if not edits:
        raise ToolError("edits is empty: give at least one edit.")
    original = open_original(context, file_path)
    require_known(context, original)
    notes: list[str] = []
    file = original.file
    for number, edit in enumerate(edits, start=1):
        try:
            text, note = _apply(context, original, file, edit, first=number == 1)
        except ToolError as error:
            raise _named(error, original, number, len(edits)) from error
        file = TextFile(text, file.encoding, file.bom, file.bad_bytes)
        if note:
            notes.append(note if len(edits) == 1 else f"edit {number} was {note}")
    if file.text == original.file.text and original.raw is not None:
        raise DoesNotFit(f"{original.shown}: the edits undo each other, so nothing would change.")
    return FileChange(original, file.text, tuple(notes))


def _apply(
    context: ToolContext, original: OriginalFile, file: TextFile, edit: Replacement, *, first: bool
) -> tuple[str, str]:
    """The text after one edit, and a note on how its place was found."""
    if original.raw is None and first:
        if edit.old_string:
            raise missing(context, original.path, original.real)
        file.check(edit.new_string)
        return edit.new_string, ""
    done = replace_passage(file, edit.old_string, edit.new_string, everywhere=edit.replace_all)
    if done.note or not edit.replace_all:
        return done.text, done.note
    return done.text, f"replaced in {done.count} places"


def _named(error: ToolError, original: OriginalFile, number: int, total: int) -> ToolError:
    kind = ToolError if original.raw is None else DoesNotFit
    if total > 1:
        return kind(f"Edit {number} of {total} cannot be made, so none was. {original.shown}: {error}")
    return error if original.raw is None else kind(f"{original.shown}: {error}")
