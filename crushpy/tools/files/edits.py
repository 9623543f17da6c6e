"""Works out what edits make of a file: in order, all of them or none."""

from collections.abc import Sequence

from crushpy.tools.base import Args, ToolContext, ToolError
from crushpy.tools.files.change import Planned, Source, open_source, require_known
from crushpy.tools.files.locate import missing
from crushpy.tools.files.replace import replace
from crushpy.tools.files.text_file import TextFile


class Replacement(Args, frozen=True):
    old_string: str
    new_string: str
    replace_all: bool = False


def plan_edits(context: ToolContext, file_path: str, edits: Sequence[Replacement]) -> Planned:
    """What the file would hold after `edits`. A ToolError names the edit that cannot be made."""
    if not edits:
        raise ToolError("edits is empty: give at least one edit.")
    source = open_source(context, file_path)
    require_known(context, source)
    notes: list[str] = []
    file = source.file
    for number, edit in enumerate(edits, start=1):
        try:
            text, note = _apply(context, source, file, edit, first=number == 1)
        except ToolError as error:
            raise _named(error, source, number, len(edits)) from error
        file = TextFile(text, file.encoding, file.bom, file.bad_bytes)
        if note:
            notes.append(note if len(edits) == 1 else f"edit {number} was {note}")
    if file.text == source.file.text and source.raw is not None:
        raise ToolError(f"{source.shown}: the edits undo each other, so nothing would change.")
    return Planned(source, file.text, tuple(notes))


def _apply(
    context: ToolContext, source: Source, file: TextFile, edit: Replacement, *, first: bool
) -> tuple[str, str]:
    """The text after one edit, and a note on how its place was found."""
    if source.raw is None and first:
        if edit.old_string:
            raise missing(context, source.path)
        file.check(edit.new_string)
        return edit.new_string, ""
    done = replace(file, edit.old_string, edit.new_string, everywhere=edit.replace_all)
    if done.note or not edit.replace_all:
        return done.text, done.note
    return done.text, f"replaced in {done.count} places"


def _named(error: ToolError, source: Source, number: int, total: int) -> ToolError:
    if total > 1:
        return ToolError(f"Edit {number} of {total} cannot be made, so none was. {source.shown}: {error}")
    if source.raw is None:
        return error
    return ToolError(f"{source.shown}: {error}")
