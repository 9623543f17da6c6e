"""Searches lines in open files: no path is resolved again between finding a file and reading it."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from crushpy.security.safe_open import Folder
from crushpy.tools.search.files_below import OpenedFile, close_files, opened_files
from crushpy.tools.search.ripgrep import ProgramEnd, find_lines, list_matching_files, read_records
from crushpy.util.spawn import spawn

TakesLine = Callable[[str, str, str], bool]
"""Called with a path, a line's number and its text; returns False to stop."""

_BATCHES = (40, 240, 240, 240, 240)
"""Numbers of files open at a time, below the limit of 256 (macOS) or 1,024. Few at first, which is often
enough; no more than all of these are read."""
_RECORD = re.compile(rb"([^\0]+)\0(\d+):(.*)", re.DOTALL)


class LineSearch:
    """One search: `pattern` as ripgrep reads it, `seconds` at most."""

    def __init__(self, rg: str, pattern: str, seconds: float) -> None:
        self._rg = rg
        self._pattern = pattern
        self._end = time.monotonic() + seconds
        self._at_least = seconds / 5

    async def in_folder(
        self,
        folder: Folder,
        include: str,
        is_wanted: Callable[[str], bool],
        take: TakesLine,
        is_enough: Callable[[], bool],
    ) -> ProgramEnd:
        """Files with a match are found by path; meanwhile their lines are read by descriptor.

        `is_enough`: asked between files; whether no more of them need to be read.
        """
        listed: list[str] = []
        is_batch_there = asyncio.Event()
        wanted_at_once = _BATCHES[0]

        def note(record: bytes) -> bool:
            path = os.fsdecode(record).removeprefix("./")
            if is_wanted(path):
                listed.append(path)
            if len(listed) >= wanted_at_once:
                is_batch_there.set()
            return True

        words = list_matching_files(self._rg, self._pattern, include)
        walk = spawn(read_records(words, note, folder=folder, separator=b"\0", seconds=self._seconds))
        walk.add_done_callback(lambda _: is_batch_there.set())
        ended = ProgramEnd(1, "")
        try:
            for size in _BATCHES:
                wanted_at_once = size
                if len(listed) < size and not walk.done():
                    is_batch_there.clear()
                await is_batch_there.wait()
                is_last = walk.done() and len(listed) <= size
                batch, listed[:] = listed[:size], listed[size:]
                ended = await self._in_batch(folder, batch, take)
                if not is_last and is_enough():
                    ended = msgspec.structs.replace(ended, stopped=True)
                if is_last or ended.stopped or ended.timed_out:
                    break
            else:
                ended = msgspec.structs.replace(ended, stopped=True)
        finally:
            walk.cancel()
            await asyncio.wait([walk])
        if walk.cancelled():
            return ended
        walked = walk.result()
        return msgspec.structs.replace(
            walked, timed_out=walked.timed_out or ended.timed_out, stopped=ended.stopped
        )

    async def _in_batch(self, folder: Folder, paths: Sequence[str], take: TakesLine) -> ProgramEnd:
        opened = opened_files(folder, paths)
        try:
            return await self.in_files(folder, opened, take)
        finally:
            close_files(opened)

    async def in_files(self, folder: Folder, opened: Sequence[OpenedFile], take: TakesLine) -> ProgramEnd:
        """The matching lines of open files, in order."""
        names = {file.as_argument: file.path for file in opened}

        def read(record: bytes) -> bool:
            parsed = _RECORD.fullmatch(record)
            path = names.get(os.fsdecode(parsed[1])) if parsed else None
            if parsed is None or path is None:
                return True  # ripgrep's message about binary files
            return take(path, parsed[2].decode(), parsed[3].decode("utf-8", "replace").rstrip())

        if not opened:
            return ProgramEnd(1, "")
        return await read_records(
            find_lines(self._rg, self._pattern, list(names)),
            read,
            folder=folder,
            separator=b"\n",
            seconds=self._seconds,
            handles=[file.handle for file in opened],
        )

    @property
    def _seconds(self) -> float:
        """The remaining time; if the walk used all of it, a little more for what it found."""
        return max(self._end - time.monotonic(), self._at_least)
