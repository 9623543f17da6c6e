"""One change to one text file: planned first, so that it can be shown as a diff, then made."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import groupby
from typing import TypeVar

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Data, Diff
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Tool
from crushpy.tools.errors import DoesNotFit, ToolError
from crushpy.tools.files.locate import NamedText
from crushpy.tools.files.text_file import normalize, split_lines
from crushpy.tools.truncate import truncate_line
from crushpy.util.uncancellable import in_thread

_CONTEXT_LINES = 2
_MAX_SHOWN_CHANGES = 3
_MAX_SHOWN_LINES = 6
"""Lines shown of one change; of a longer one both ends are shown."""
_MAX_LINE_CHARS = 200


class FileChange(Data, frozen=True):
    """The content of a file after a change."""

    original: NamedText
    text: str
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> str | None:
        return self.original.file.text if self.original.exists else None

    @property
    def changed(self) -> tuple[str, str | None]:
        raw = (self.before or "").encode(errors="surrogateescape")
        return str(self.original.real), None if self.before is None else raw.decode(errors="replace")

    def diff(self) -> Diff:
        return make_diff(self.original.shown, self.before, self.text)


def require_read(context: CallContext, original: NamedText) -> None:
    """Raises ToolError unless the model has read the current content of the file."""
    if not original.exists:
        return
    state = context.agent.memory.state(original.real, original.raw)
    if state == "unread":
        raise ToolError(f"{original.shown} has not been read yet: view it first.")
    if state == "changed":
        raise ToolError(f"{original.shown} has changed since it was read: view it again first.")


async def make_change(context: CallContext, plan: Callable[[], FileChange]) -> tuple[FileChange, Diff]:
    def plan_and_write() -> tuple[FileChange, Diff]:
        change = plan()
        original = change.original
        content = original.file.encode(change.text)
        diff = change.diff()
        before = original.raw if original.exists else None
        note = context.workspace.files.write(original, content, before)
        context.agent.memory.remember(original.real, content)
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

    def plan(self, args: F, context: CallContext) -> FileChange:
        """The change that a call would make. Raises ToolError."""
        raise NotImplementedError

    async def preview(self, args: F, context: CallContext) -> Diff | None:
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
    places = LineMatcher(split_lines(normalize(change.before or "")), after).changes()
    width = len(str(len(after)))
    shown = "\n...\n".join(
        "\n".join(_numbered_lines(after, start, end, width)) for *_, start, end in places[:_MAX_SHOWN_CHANGES]
    )
    omitted = len(places) - _MAX_SHOWN_CHANGES
    rest = f"\n[{omitted} more changed places not shown]" if omitted > 0 else ""
    return f"{summary} (+{diff.added} -{diff.removed}).{notes}" + (f"\n{shown}{rest}" if shown else "")


def _numbered_lines(lines: Sequence[str], start: int, end: int, width: int) -> list[str]:
    first, last = max(start - _CONTEXT_LINES, 0), min(end + _CONTEXT_LINES, len(lines))
    texts = [truncate_line(encodable(line), _MAX_LINE_CHARS) for line in lines[first:last]]
    rows = [f"{n:>{width}}\t{text}" for n, text in enumerate(texts, first + 1)]
    if end - start > _MAX_SHOWN_LINES:
        keep = _MAX_SHOWN_LINES // 2 + _CONTEXT_LINES
        rows[keep:-keep] = ["..."]
    return rows


# --- comparing two texts line by line


_DIFF_CONTEXT_LINES = 3
_MAX_DIFF_LINE_CHARS = 500
_MAX_DIFF_LINES = 800
Opcode = tuple[str, int, int, int, int]
"""What happens to which lines of the old text, and to which of the new: as in `SequenceMatcher`."""
_MAX_LINE_PAIRS = 1_000_000
"""Lines before times lines after: beyond that, finding the best diff would take seconds."""


class LineMatcher(SequenceMatcher[str]):
    """Compares two texts line by line; in linear time if they are large."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()  # which would index all lines
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        old, new = self._old, self._new
        head = _common_prefix_length(old, new)
        tail = _common_prefix_length(old[head:][::-1], new[head:][::-1])
        end, new_end = len(old) - tail, len(new) - tail
        a, b = old[head:end], new[head:new_end]
        found: list[Match] = []
        if len(a) * len(b) <= _MAX_LINE_PAIRS:
            found = SequenceMatcher(None, a, b).get_matching_blocks()
        elif len(a) == len(b):  # replacements all over a file
            runs = [list(run) for same, run in groupby(range(len(a)), lambda at: a[at] == b[at]) if same]
            found = [Match(run[0], run[0], len(run)) for run in runs]
        inner = (Match(block.a + head, block.b + head, block.size) for block in found)
        return [Match(0, 0, head), *inner, Match(end, new_end, tail), Match(len(old), len(new), 0)]

    def changes(self) -> list[Opcode]:
        return [opcode for opcode in self.get_opcodes() if opcode[0] != "equal"]


def make_diff(path: str, before: str | None, after: str) -> Diff:
    """The diff of a change to one file; `before` is None if the file is new."""
    old, new = _lines_with_ends(before or ""), _lines_with_ends(after)
    matcher = LineMatcher(old, new)
    hunks = matcher.get_grouped_opcodes(_DIFF_CONTEXT_LINES)
    unified = [row for opcodes in hunks for row in _hunk_rows(old, new, opcodes)]
    left_out = len(unified) - _MAX_DIFF_LINES
    if left_out > 0:
        unified[_MAX_DIFF_LINES:] = [f"\\ {left_out:,} more lines are not shown"]
    name = encodable(path)
    header = [f"--- {'/dev/null' if before is None else name}", f"+++ {name}"] if unified else []
    return Diff(
        name,
        "\n".join((*header, *unified)),
        added=sum(new_end - new_start for *_, new_start, new_end in matcher.changes()),
        removed=sum(end - start for _, start, end, *_ in matcher.changes()),
        created=before is None,
    )


def _lines_with_ends(text: str) -> list[str]:
    """Lines with their newlines, so that a missing last one is visible."""
    lines = [line + "\n" for line in normalize(text).split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _common_prefix_length(a: Sequence[str], b: Sequence[str]) -> int:
    differing = (number for number, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differing, min(len(a), len(b)))


def _hunk_rows(old: Sequence[str], new: Sequence[str], opcodes: Sequence[Opcode]) -> Iterator[str]:
    (_, start, _, new_start, _), (_, _, end, _, new_end) = opcodes[0], opcodes[-1]
    yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@"
    for tag, first, last, new_first, new_last in opcodes:
        if tag == "equal":
            yield from _prefix_lines(" ", old[first:last])
        else:
            yield from _prefix_lines("-", old[first:last])
            yield from _prefix_lines("+", new[new_first:new_last])


def _range(start: int, end: int) -> str:
    """A range as diff writes it: an empty one is named by the line before it."""
    return f"{start + 1 if end > start else start},{end - start}"


def _prefix_lines(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + truncate_line(encodable(line.removesuffix("\n")), _MAX_DIFF_LINE_CHARS)
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
