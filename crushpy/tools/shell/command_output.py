"""Collects the output of a command: head and tail in memory, all of it in a file, live pieces for the UI."""

import asyncio
import codecs
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from crushpy.core.ids import new_id
from crushpy.core.paths import private_dir
from crushpy.tools.truncate import (
    MAX_LIVE_CHARS,
    MAX_OUTPUT_FILE_BYTES,
    MAX_RESULT_CHARS,
    HeadTail,
    Truncated,
)
from crushpy.util.lazy_pattern import lazy_pattern

_CONTROL_CHARS = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPE = lazy_pattern(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, clipboard
    r"|[PX^_][^\x1b\n]*(?:\x1b\\)?"  # device strings
    r"|[ -/]*[0-~]"  # other short sequences
    r")"
)
# Each is tried once per line or run, not at every character: a line can be very long.
_LINE_END = lazy_pattern(r"(?<!\r)\r++(?=\n|\Z)")
_OVERWRITTEN = lazy_pattern(r"^[^\n]*\r", re.MULTILINE)
_BACKSPACED = lazy_pattern(r"[^\n\x08]\x08")


def as_plain_text(text: str) -> str:
    """`text` without escape sequences, and with only the last state of a progress line."""
    if not _CONTROL_CHARS.search(text):
        return text
    text = _ESCAPE.sub("", text)
    text = _OVERWRITTEN.sub("", _LINE_END.sub("", text))
    return _CONTROL_CHARS.sub("", _BACKSPACED.sub("", text))


_LIVE_INTERVAL_S = 0.1


class LiveOutput:
    """Sends chunks to `emit`, at most ten per second. A command that ends before the first one sends none."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._pending = HeadTail(MAX_LIVE_CHARS)
        self._line = ""
        self._shown = ""
        """The part of the unfinished line that was sent."""
        self._timer: asyncio.TimerHandle | None = None
        self._started = False

    def add(self, text: str) -> None:
        """Finished lines."""
        if self._shown:
            # The partly shown line is complete now: send the rest, or all of it if it was rewritten.
            text = text.removeprefix(self._shown) if text.startswith(self._shown) else "\n" + text
            self._shown = ""
        self._pending.add(text)
        self._schedule_flush()

    def show(self, line: str) -> None:
        """The unfinished line, unprocessed."""
        self._line = line
        if line:
            self._schedule_flush()

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._started:
            self._flush()
        self._timer = None

    def _schedule_flush(self) -> None:
        if not self._timer:
            self._timer = asyncio.get_running_loop().call_later(_LIVE_INTERVAL_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._started = True
        chunk = self._pending.text().text
        self._pending = HeadTail(MAX_LIVE_CHARS)
        line = as_plain_text(self._line)[:MAX_LIVE_CHARS]
        if line.startswith(self._shown):
            chunk += line[len(self._shown) :]
            self._shown = line
        if chunk:
            self._emit(chunk)


_MAX_LINE_CHARS = 65_536
"""An unfinished line longer than this is processed as it is."""


_MAX_LAST_CHARS = 2_000
"""Characters of the end that are kept for display."""


class Output:
    """Receives a command's output. `take` returns what arrived since the last `take`, truncated."""

    def __init__(
        self, folder: Path | None, live: LiveOutput | None = None, limit: int = MAX_RESULT_CHARS
    ) -> None:
        """`folder`: for the file with the full output; None if the rest is discarded. `limit`: of `take`."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._line = ""
        """The unfinished line, which a carriage return may still erase."""
        self._recent, self._limit = HeadTail(limit), limit
        self._last = ""
        self._file = OutputFile(folder, limit) if folder is not None else None
        self._live = live

    def feed(self, data: bytes, final: bool = False) -> None:
        text = self._line + self._decode(data, final)
        end = text.rfind("\n") + 1
        if final or len(text) - end > _MAX_LINE_CHARS:
            end = len(text)
        self._record(as_plain_text(text[:end]))
        self._line = text[end:]
        if self._live:
            self._live.show(self._line)

    def take(self) -> Truncated:
        """The output since the last call, including the unfinished line."""
        line, self._line = self._line, ""
        self._record(as_plain_text(line))
        taken, self._recent = self._recent.text(), HeadTail(self._limit)
        return taken

    def close(self) -> None:
        """Marks the end of the output."""
        self.feed(b"", final=True)
        if self._file:
            self._file.close()
        if self._live:
            self._live.close()

    def hide(self) -> None:
        """Stops the live output; the rest is only collected."""
        if self._live:
            self._live.close()
        self._live = None

    @property
    def last(self) -> str:
        """The end of the whole output, taken or not."""
        return self._last + as_plain_text(self._line)

    @property
    def where(self) -> str:
        """A sentence that names the file with the full output; empty while it is small."""
        return self._file.where if self._file else ""

    def _record(self, text: str) -> None:
        if not text:
            return
        self._recent.add(text)
        self._last = (self._last + text)[-_MAX_LAST_CHARS:]
        if self._file:
            self._file.add(text)
        if self._live:
            self._live.add(text)


def describe_output(taken: Truncated, where: str, *notes: str) -> str:
    """The text of a command for the model: its output, the file with the full output, and notes."""
    text = taken.text.rstrip("\n")
    brackets = [f"[{note}]" for note in (where if taken.truncated_chars else "", *notes) if note]
    return "\n".join([text, *brackets] if text else brackets) or "(no output)"


class OutputFile:
    """The full text: in memory while it is small, then in a file, up to a limit."""

    def __init__(self, folder: Path, limit: int = MAX_RESULT_CHARS) -> None:
        """`limit`: characters up to which there is no file."""
        self._folder, self._limit = folder, limit
        self._buffered: list[str] = []
        self._chars = 0
        self._file: BinaryIO | None = None
        self._remaining_bytes = MAX_OUTPUT_FILE_BYTES
        self.where = ""

    def add(self, text: str) -> None:
        if self._file is not None:
            self._write(text)
        elif not self.where:
            self._buffered.append(text)
            self._chars += len(text)
            if self._chars > self._limit:
                self._open()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # reported by the last write
                self._file.close()
            self._file = None

    def _open(self) -> None:
        path = self._folder / f"output-{new_id()}.txt"
        try:
            private_dir(self._folder)
            self._file = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")  # noqa: SIM115
        except OSError as error:
            self.where = f"the whole output could not be kept: {path}: {error.strerror}"
        else:
            self.where = f"whole output: {path}"
            self._write("".join(self._buffered))
        self._buffered.clear()

    def _write(self, text: str) -> None:
        assert self._file is not None
        data = text.encode()
        remaining, self._remaining_bytes = self._remaining_bytes, self._remaining_bytes - len(data)
        try:
            self._file.write(data[:remaining])
            self._file.flush()
        except OSError as error:
            self.where += f" (cut short: {error.strerror})"
            self.close()
            return
        if self._remaining_bytes < 0:
            self.where += f" (only its first {MAX_OUTPUT_FILE_BYTES // 1_000_000} MB)"
            self.close()
