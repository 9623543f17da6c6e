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

OnLine = Callable[[str, str, str], bool]
"""Called with a path, a line's number and its text; returns False to stop."""

_BATCH_SIZES = (40, 240, 240, 240, 240)
"""Numbers of files open at a time, below the limit of 256 (macOS) or 1,024. Few at first, which is often
enough; no more than all of these are read."""
_RECORD = re.compile(rb"([^\0]+)\0(\d+):(.*)", re.DOTALL)


class LineSearch:
    """One search: `pattern` as ripgrep reads it, `seconds` at most."""

    def __init__(self, rg: str, pattern: str, seconds: float) -> None:
        self._rg = rg
        self._pattern = pattern
        self._deadline = time.monotonic() + seconds
        self._min_seconds = seconds / 5

    async def in_folder(
        self,
        folder: Folder,
        include: str,
        is_wanted: Callable[[str], bool],
        take: OnLine,
        is_enough: Callable[[], bool],
    ) -> ProgramEnd:
        """Files with a match are found by path; meanwhile their lines are read by descriptor.

        `is_enough`: asked between files; whether no more of them need to be read.
        """
        pending: list[str] = []
        batch_ready = asyncio.Event()
        batch_size = _BATCH_SIZES[0]

        def add_file(record: bytes) -> bool:
            path = os.fsdecode(record).removeprefix("./")
            if is_wanted(path):
                pending.append(path)
            if len(pending) >= batch_size:
                batch_ready.set()
            return True

        words = list_matching_files(self._rg, self._pattern, include)
        walk_task = spawn(
            read_records(words, add_file, folder=folder, separator=b"\0", seconds=self._remaining_seconds)
        )
        walk_task.add_done_callback(lambda _: batch_ready.set())
        ended = ProgramEnd(1, "")
        try:
            for size in _BATCH_SIZES:
                batch_size = size
                if len(pending) < size and not walk_task.done():
                    batch_ready.clear()
                await batch_ready.wait()
                is_last = walk_task.done() and len(pending) <= size
                batch, pending[:] = pending[:size], pending[size:]
                opened = opened_files(folder, batch)
                try:
                    ended = await self.in_files(folder, opened, take)
                finally:
                    close_files(opened)
                if not is_last and is_enough():
                    ended = msgspec.structs.replace(ended, stopped=True)
                if is_last or ended.stopped or ended.timed_out:
                    break
            else:
                ended = msgspec.structs.replace(ended, stopped=True)
        finally:
            walk_task.cancel()
            await asyncio.wait([walk_task])
        if walk_task.cancelled():
            return ended
        walked = walk_task.result()
        return msgspec.structs.replace(
            walked, timed_out=walked.timed_out or ended.timed_out, stopped=ended.stopped
        )

    async def in_files(self, folder: Folder, opened: Sequence[OpenedFile], take: OnLine) -> ProgramEnd:
        """The matching lines of open files, in order."""
        names = {file.path_for_child: file.path for file in opened}

        def on_record(record: bytes) -> bool:
            parsed = _RECORD.fullmatch(record)
            path = names.get(os.fsdecode(parsed[1])) if parsed else None
            if parsed is None or path is None:
                return True  # ripgrep's message about binary files
            return take(path, parsed[2].decode(), parsed[3].decode("utf-8", "replace").rstrip())

        if not opened:
            return ProgramEnd(1, "")
        return await read_records(
            find_lines(self._rg, self._pattern, list(names)),
            on_record,
            folder=folder,
            separator=b"\n",
            seconds=self._remaining_seconds,
            handles=[file.handle for file in opened],
        )

    @property
    def _remaining_seconds(self) -> float:
        """The remaining time; if the walk used all of it, a little more for what it found."""
        return max(self._deadline - time.monotonic(), self._min_seconds)
