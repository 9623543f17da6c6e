"""What a command prints: made readable, kept in bounded memory, kept whole in a file when it is large."""

import codecs
import os
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.paths import private_dir
from crushpy.tools.shell.live_output import LiveOutput
from crushpy.tools.shell.terminal_text import as_plain_text
from crushpy.tools.truncate import MAX_OUTPUT_FILE_BYTES, MAX_RESULT_CHARS, HeadTail, Truncated

_MAX_HELD_CHARS = 65_536
"""An unfinished line longer than this is passed on as it is."""


_LAST_CHARS = 2_000
"""How much of the end is kept for whoever looks in."""


class Output:
    """Takes a command's bytes as they come. `take` gives what came since the last `take`, bounded."""

    def __init__(self, folder: Path | None, live: LiveOutput | None = None) -> None:
        """`folder` is for the file that keeps the whole of it; None: what does not fit is gone."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._line = ""
        """The line that is not finished yet: a carriage return may still take it back."""
        self._recent = HeadTail()
        self._last = ""
        self._whole = OutputFile(folder) if folder is not None else None
        self._live = live

    def feed(self, data: bytes, final: bool = False) -> None:
        text = self._line + self._decode(data, final)
        end = text.rfind("\n") + 1
        if final or len(text) - end > _MAX_HELD_CHARS:
            end = len(text)
        self._keep(as_plain_text(text[:end]))
        self._line = text[end:]
        if self._live:
            self._live.show(self._line)

    def take(self) -> Truncated:
        """What came since the last time, the unfinished line too."""
        line, self._line = self._line, ""
        self._keep(as_plain_text(line))
        taken, self._recent = self._recent.text(), HeadTail()
        return taken

    def close(self) -> None:
        """No more will come."""
        self.feed(b"", final=True)
        if self._whole:
            self._whole.close()
        if self._live:
            self._live.close()

    def hide(self) -> None:
        """Nobody watches any more; the rest is only kept."""
        if self._live:
            self._live.close()
        self._live = None

    @property
    def last(self) -> str:
        """The end of all that came, however much of it was taken."""
        return self._last + as_plain_text(self._line)

    @property
    def where(self) -> str:
        """Where the whole output is, in words; empty while it is small."""
        return self._whole.where if self._whole else ""

    def _keep(self, text: str) -> None:
        if not text:
            return
        self._recent.add(text)
        self._last = (self._last + text)[-_LAST_CHARS:]
        if self._whole:
            self._whole.add(text)
        if self._live:
            self._live.add(text)


def describe_output(taken: Truncated, where: str, *notes: str) -> str:
    """What the model reads of a command: its output, where the whole of it is, and the notes."""
    text = taken.text.rstrip("\n")
    said = [f"[{note}]" for note in (where if taken.truncated_chars else "", *notes) if note]
    return "\n".join([text, *said] if text else said) or "(no output)"


class OutputFile:
    """All of a large text: in memory while it is small, in a file from then on, up to a bound."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._early: list[str] = []
        self._chars = 0
        self._file: int | None = None
        self._room = MAX_OUTPUT_FILE_BYTES
        self.where = ""

    def add(self, text: str) -> None:
        if self._file is not None:
            self._write(text)
        elif not self.where:
            self._early.append(text)
            self._chars += len(text)
            if self._chars > MAX_RESULT_CHARS:
                self._open()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        path = self._folder / f"output-{new_id()}.txt"
        try:
            private_dir(self._folder)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.where = f"the whole output could not be kept: {path}: {error.strerror}"
        else:
            self.where = f"whole output: {path}"
            self._write("".join(self._early))
        self._early.clear()

    def _write(self, text: str) -> None:
        assert self._file is not None
        data = text.encode()
        room, self._room = self._room, self._room - len(data)
        try:
            _write_all(self._file, data[:room])
        except OSError as error:
            self.where += f" (cut short: {error.strerror})"
            self.close()
            return
        if self._room < 0:
            self.where += f" (only its first {MAX_OUTPUT_FILE_BYTES // 1_000_000} MB)"
            self.close()


def _write_all(file: int, data: bytes) -> None:
    """Writes every byte or raises; a disk that fills up may take only a part at first."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
