"""Plans edits of a text file: finds the passages, keeps line endings and indentation, all or nothing."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from crushpy.core.messages import Data
from crushpy.core.own_tags import restore_tags
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Outcome
from crushpy.tools.errors import DoesNotFit, ToolError
from crushpy.tools.files.file_change import (
    F,
    FileChange,
    FileChangeTool,
    describe_change,
    make_change,
    require_read,
)
from crushpy.tools.files.locate import NamedText, missing
from crushpy.tools.files.text_file import Newline, TextFile, normalize
from crushpy.tools.truncate import truncate_line

_MAX_SHOWN_LINES = 8
_MAX_LINE_CHARS = 200
_MAX_COMPARED_LINES = 5_000
_MIN_SIMILARITY = 0.6
_LINE_NUMBER = re.compile(r"\s*\d+\t")


def nearest_passage(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """A hint for `wanted`, which is not in `lines`."""
    written = [line for line in wanted if line.strip()]
    if written and all(_LINE_NUMBER.match(line) for line in written):
        return "It contains the line numbers that view adds to each line: leave them out."
    at = _best_start(lines, wanted)
    if at is None:
        return "No line of the file is similar: view the file again and copy the passage exactly."
    end = min(at + max(len(wanted), 1), at + _MAX_SHOWN_LINES, len(lines))
    texts = [truncate_line(encodable(line), _MAX_LINE_CHARS) for line in lines[at:end]]
    shown = "\n".join(f"{n}\t{text}" for n, text in enumerate(texts, at + 1))
    return f"Nearest in the file:\n{shown}\nCopy the passage exactly as it is there."


def _best_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The start of the passage that has the most lines in common with `wanted`."""
    stripped = [line.strip() for line in wanted]
    places = defaultdict[str, list[int]](list)
    for number, line in enumerate(lines):
        places[line.strip()].append(number)
    votes: Counter[int] = Counter()
    for index, text in enumerate(stripped):
        for number in places[text] if text else ():
            # A long line is stronger evidence than a lone bracket.
            votes[max(number - index, 0)] += len(text)
    if votes:
        return max(votes, key=lambda at: (votes[at], -at))
    # Otherwise by the line most similar to the longest of `wanted`.
    from difflib import get_close_matches

    index = max(range(len(stripped)), key=lambda index: len(stripped[index]))
    known = {line.strip()[:_MAX_LINE_CHARS]: at for at, line in enumerate(lines[:_MAX_COMPARED_LINES])}
    near = get_close_matches(stripped[index][:_MAX_LINE_CHARS], known, 1, _MIN_SIMILARITY)
    return max(known[near[0]] - index, 0) if near and near[0] else None


_IndentRule = Callable[[str], str | None]
"""Maps the indentation a model wrote to that of the file; None if it is ambiguous."""


def reindent(new: str, quoted: Sequence[str], in_file: Sequence[str]) -> str | None:
    """Text that is indented like `quoted`, indented like its counterpart `in_file`.

    None if the difference does not follow a rule: guessing could change the meaning of a program.
    """
    pairs = [(_indent(a), _indent(b)) for a, b in zip(quoted, in_file, strict=True) if a.strip()]
    rule = next((rule for rule in _indent_rules(pairs) if all(rule(a) == b for a, b in pairs)), None)
    lines = [(_indent(line), line) for line in new.split("\n")]
    if rule is None or any(rule(indent) is None for indent, line in lines if line.strip()):
        return None
    return "\n".join(
        f"{rule(indent)}{line[len(indent) :]}" if line.strip() else line for indent, line in lines
    )


def _indent_rules(pairs: Sequence[tuple[str, str]]) -> Iterator[_IndentRule]:
    """The rules that the first lines suggest."""
    first, there = pairs[0]
    if there.endswith(first):  # the file has the same extra indentation on each line, or none
        more = there.removesuffix(first)
        yield lambda indent: more + indent
    if first.endswith(there):  # the file lacks the same indentation on each line
        less = first.removesuffix(there)
        yield lambda indent: indent.removeprefix(less) if indent.startswith(less) else None
    quoted, in_file = next(((a, b) for a, b in pairs if a and b), ("", ""))

    def scale(indent: str) -> str | None:
        if indent.strip(quoted[0]) or len(indent) * len(in_file) % len(quoted):
            return None
        return in_file[0] * (len(indent) * len(in_file) // len(quoted))

    if quoted:  # tabs for spaces, or another number of spaces, in one constant proportion
        yield scale


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_MAX_LISTED_LINES = 10


class _Passage(Data, frozen=True):
    """A range of the text as the model sees it, and its replacement."""

    start: int
    end: int
    new: str


def replace_passage(file: TextFile, old: str, new: str, *, everywhere: bool = False) -> tuple[str, str]:
    """The file's text with `old` replaced by `new`: the only occurrence, or all of them; and a note on how it
    was found, if not exactly as written.

    Line endings are ignored when searching; the replacement gets those of its surroundings.
    Raises ToolError with the reason if it cannot be done.
    """
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolError("old_string is empty. Use write to set the whole content of a file.")
    if old == new:
        raise ToolError("old_string and new_string are identical (line endings are kept as they are).")
    file.check(new)
    seen = normalize(file.text)
    starts = _occurrences(seen, old)
    if not starts and (raw := restore_tags(old, seen)) != old:
        old, new = raw, restore_tags(new, seen)
        starts = _occurrences(seen, old)
    if not starts:
        passage, note = _find_ignoring_whitespace(seen, old, new)
        return _apply_passages(file, seen, [passage]), note
    if len(starts) > 1 and not everywhere:
        raise ToolError(
            f"old_string is not unique: {len(starts)} places (lines {_line_numbers(seen, starts)}). "
            "Add surrounding lines to it, or set replace_all."
        )
    passages = [_Passage(start, start + len(old), new) for start in starts]
    return _apply_passages(file, seen, passages), f"replaced in {len(starts)} places" if everywhere else ""


def _occurrences(text: str, old: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(old), text)]


def _line_numbers(text: str, starts: list[int]) -> str:
    numbers = [str(text.count("\n", 0, start) + 1) for start in starts[:_MAX_LISTED_LINES]]
    more = len(starts) - len(numbers)
    return ", ".join(numbers) + (f" and {more} more" if more else "")


# --- inserting the replacement, with the file's line endings -----------------------------------------------


def _apply_passages(file: TextFile, seen: str, passages: list[_Passage]) -> str:
    """The file's text with the passages, found in `seen`, replaced."""
    text = file.text
    # The positions in `seen` at which a carriage return was dropped.
    returns = re.finditer("\r\n", text) if len(text) != len(seen) else ()
    dropped = [found.start() - number for number, found in enumerate(returns)]
    pieces: list[str] = []
    done = 0
    for passage in passages:
        start = passage.start + bisect_left(dropped, passage.start)
        end = passage.end + bisect_left(dropped, passage.end)
        newline = _newline_near(file, start, end) if "\n" in passage.new else "\n"
        pieces += (text[done:start], passage.new.replace("\n", newline))
        done = end
    return "".join((*pieces, text[done:]))


def _newline_near(file: TextFile, start: int, end: int) -> Newline:
    """The line ending between `start` and `end`, or of the line that contains them."""
    text = file.text
    inside = TextFile(text[start:end])
    if not inside.mixed_newlines and "\n" in inside.text:
        return inside.newline
    if "\n" not in inside.text and (after := text.find("\n", end)) >= 0:
        return "\r\n" if text[after - 1 : after] == "\r" else "\n"
    return file.newline


# --- searching again, ignoring white space -----------------------------------------------------------------


def _find_ignoring_whitespace(seen: str, old: str, new: str) -> tuple[_Passage, str]:
    """The one passage that equals `old` except for white space at both ends of its lines."""
    wanted = old.removesuffix("\n").split("\n")
    lines = seen.split("\n")
    found = _find_stripped(lines, [line.strip() for line in wanted])
    if not found:
        raise ToolError(f"old_string was not found. {nearest_passage(lines, wanted)}")
    if len(found) > 1:
        numbers = ", ".join(str(at + 1) for at in found[:_MAX_LISTED_LINES])
        raise ToolError(
            f"old_string was not found as written; ignoring white space, it is at {len(found)} places "
            f"(lines {numbers}). Copy the passage exactly, with more lines around it."
        )
    at = found[0]
    in_file = lines[at : at + len(wanted)]
    adjusted = reindent(new, wanted, in_file)
    if adjusted is None:
        raise ToolError(
            "old_string was not found as written: its indentation differs in a way that cannot be "
            f"carried over to new_string. {nearest_passage(lines, wanted)}"
        )
    start = sum(len(line) + 1 for line in lines[:at])
    end = start + sum(len(line) + 1 for line in in_file) - 1
    if old.endswith("\n") and end < len(seen):
        end += 1
    elif old.endswith("\n"):
        # The file's last line has no newline, and keeps none.
        adjusted = adjusted.removesuffix("\n")
    if seen[start:end] == adjusted:
        raise ToolError("Nothing would change: old_string and new_string differ only in white space.")
    last = at + len(wanted)
    where = f"line {last}" if last == at + 1 else f"lines {at + 1}-{last}"
    changed = " and new_string was indented to fit" if adjusted != new else ""
    return _Passage(start, end, adjusted), f"found at {where} with other white space than written{changed}"


def _find_stripped(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The positions of `wanted` in `lines`, ignoring white space at both ends."""
    if not any(wanted):
        return []
    found, size = [line.strip() for line in lines], len(wanted)
    return [at for at in range(len(found) - size + 1) if found[at : at + size] == wanted]


class Replacement(Args, frozen=True):
    old_string: str
    new_string: str
    replace_all: bool = False


def plan_edits(context: CallContext, file_path: str, edits: Sequence[Replacement]) -> FileChange:
    """The content of the file after `edits`. Raises a ToolError that names the edit that cannot be made."""
    if not edits:
        raise ToolError("edits is empty: give at least one edit.")
    original = context.open_text(file_path, may_be_new=True)
    require_read(context, original)
    notes: list[str] = []
    file = original.file
    for number, edit in enumerate(edits, start=1):
        try:
            text, note = _apply_edit(context, original, file, edit, first=number == 1)
        except ToolError as error:
            kind = DoesNotFit if original.exists else ToolError
            if len(edits) > 1:
                which = f"Edit {number} of {len(edits)} cannot be made, so none was. {original.shown}"
                raise kind(f"{which}: {error}") from error
            raise kind(f"{original.shown}: {error}") if original.exists else error from error
        file = TextFile(text, file.encoding, file.bom, file.bad_bytes)
        if note:
            notes.append(note if len(edits) == 1 else f"edit {number} was {note}")
    if file.text == original.file.text and original.exists:
        raise DoesNotFit(f"{original.shown}: the edits undo each other, so nothing would change.")
    return FileChange(original, file.text, tuple(notes))


def _apply_edit(
    context: CallContext, original: NamedText, file: TextFile, edit: Replacement, *, first: bool
) -> tuple[str, str]:
    """The text after one edit, and a note on how the passage was found."""
    if not original.exists and first:
        if edit.old_string:
            raise missing(context.workspace, original)
        file.check(edit.new_string)
        return edit.new_string, ""
    return replace_passage(file, edit.old_string, edit.new_string, everywhere=edit.replace_all)


class TextEditTool(FileChangeTool[F]):
    """The base of `edit` and `multiedit`."""

    def replacements(self, args: F) -> Sequence[Replacement]:
        raise NotImplementedError

    def describe_count(self, args: F) -> str:
        return ""

    def plan(self, args: F, context: CallContext) -> FileChange:
        return plan_edits(context, args.file_path, self.replacements(args))

    async def run(self, args: F, context: CallContext) -> Outcome:
        change, diff = await make_change(context, lambda: self.plan(args, context))
        verb = "Created" if diff.created else "Edited"
        summary = f"{verb} {change.original.shown}{self.describe_count(args)}"
        return Outcome(describe_change(change, diff, summary), display=diff, changed=change.changed)
