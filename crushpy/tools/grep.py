"""The tool `grep`: finds lines by a regular expression."""

import os
import re
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.core.messages import FileList
from crushpy.security.safe_open import NotRegular, open_folder
from crushpy.security.sanitize import encodable
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import NamedPath, explain_errors
from crushpy.tools.search.files_below import NOT_SEARCHED
from crushpy.tools.search.ripgrep import SEARCH_TIMEOUT_S, LineSearch, ProgramEnd, require_ripgrep

_MAX_MATCHES = 200
_MAX_COUNTED = 10_000
_NOTE_CHARS = 500
_LINE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")


class GrepArgs(Args, frozen=True):
    pattern: Annotated[str, Meta(description="regular expression")]
    path: Annotated[str, Meta(description="default: the whole project")] = "."
    include: Annotated[str, Meta(description="only files like *.{ts,tsx}")] = ""


class GrepTool(ReadingTool[GrepArgs]):
    name = "grep"
    args = GrepArgs
    access = ToolAccess("path", default=".")

    async def run(self, args: GrepArgs, context: CallContext) -> Outcome:
        _check_pattern(args.pattern, args.include)
        place, most = context.find(args.path), context.agent.result_chars()
        search = LineSearch(require_ripgrep(), args.pattern, SEARCH_TIMEOUT_S)
        found = Matches(lambda path: context.workspace.shown(place.path / path), most)
        with explain_errors(context.workspace, place, "searched"):
            try:
                folder = open_folder(place.real)
            except NotADirectoryError:
                return _format_result(args, found, await _search_file(search, place, found), ())
            with folder:
                is_skipped = context.agent.find_skipped(self.name, place.path, place.real)
                notes = (NOT_SEARCHED,) if is_skipped else ()
                ended = await search.in_folder(
                    folder, args.include, is_skipped, found.add, lambda: found.total > found.kept
                )
        return _format_result(args, found, ended, notes)


async def _search_file(search: LineSearch, place: NamedPath, found: "Matches") -> ProgramEnd:
    """The file is passed as a descriptor, so that it is the one that was checked."""
    name = place.real.name
    with open_folder(place.real.parent) as folder:
        try:
            handle = folder.open_regular(name)
        except NotRegular:
            raise ToolError(f"{place.shown} is not a file or a folder.") from None
        with os.fdopen(handle, "rb"):
            return await search.in_files(folder, {handle: ""}, found.add)  # "": `place` itself


class Matches:
    """The matches so far: the first ones are kept, the rest is counted."""

    def __init__(self, shown: Callable[[str], str], max_chars: int) -> None:
        """`shown`: the display form of a found path."""
        self._shown = shown
        self.by_file: dict[str, list[str]] = {}
        self.kept = self.total = 0
        self._remaining_chars = max_chars - _NOTE_CHARS

    def add(self, path: str, number: str, text: str) -> bool:
        """Keeps or counts one matching line; False to stop."""
        self.total += 1
        if self.kept == self.total - 1 and self.kept < _MAX_MATCHES:
            self._keep_row(path, f"{number}: {text}")
        return self.total < _MAX_COUNTED

    def _keep_row(self, path: str, row: str) -> None:
        shown = encodable(self._shown(path))
        self._remaining_chars -= len(row) + 3 + (0 if shown in self.by_file else len(shown) + 2)
        if self._remaining_chars < 0:
            return
        self.by_file.setdefault(shown, []).append(row)
        self.kept += 1


def _check_pattern(pattern: str, include: str) -> None:
    if not pattern:
        raise ToolError("The pattern is empty.")
    if "\0" in pattern + include or encodable(pattern + include) != pattern + include:
        raise ToolError("The pattern contains NUL or a lone surrogate, which no text contains.")
    if _LINE_BREAK.search(pattern):
        raise ToolError(
            "grep looks at one line at a time, so a pattern with \\n finds nothing: search one line."
        )


def _format_result(args: GrepArgs, found: Matches, ended: ProgramEnd, notes: tuple[str, ...]) -> Outcome:
    if not found.total and ended.errors and not ended.timed_out:
        raise ToolError(
            f"grep could not search for {args.pattern}: {ended.errors}\n"
            "To find text as it is, put a backslash before each of ( ) [ ] { } . * + ? ^ $ | \\."
        )
    timeout_note = (
        f"stopped after {SEARCH_TIMEOUT_S:g} seconds: name a smaller folder, or use a simpler pattern"
    )
    if not found.total and ended.timed_out:
        raise ToolError(f"grep was {timeout_note}.")
    if not found.total:
        scope = f" in files like {args.include}" if args.include else ""
        message = f"No line matches {args.pattern}{scope}. Ignored files are left out."
        return Outcome("\n".join((message, *notes)), display=FileList(()))
    blocks = [f"{path}\n" + "\n".join(f"  {row}" for row in rows) for path, rows in found.by_file.items()]
    omitted = found.total - found.kept
    if omitted:
        at_least = "at least " if ended.stopped or ended.timed_out else ""
        blocks.append(
            f"[{at_least}{omitted:,} more matches left out: narrow the search with path or include]"
        )
    if ended.timed_out:
        blocks.append(f"[{timeout_note}]")
    rows = tuple(f"{path}:{row}" for path, rows in found.by_file.items() for row in rows)
    return Outcome("\n".join((*blocks, *notes)), display=FileList(rows, found.total))
