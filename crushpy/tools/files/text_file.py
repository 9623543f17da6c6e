"""Reads a file as text without losing a byte: encoding, byte order mark, line endings."""

import codecs
import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, NotRegular, open_folder
from crushpy.tools.errors import ToolError
from crushpy.util.lazy_pattern import lazy_pattern

MAX_FILE_BYTES = 50_000_000
"""Larger files must be read in parts, by commands."""
_SNIFFED_BYTES = 8_192
_MIN_READ_BYTES, _CHUNK_BYTES = 1 << 14, 1 << 20
"""Bytes requested per read: a buffer of that size is allocated, however little is read."""
_SURROGATE = lazy_pattern("[\ud800-\udfff]")
_CONTROL = lazy_pattern(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    # Before UTF-16: the little-endian mark of UTF-32 begins with the one of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

Newline = Literal["\n", "\r\n", "\r"]


class TextFile(Data, frozen=True):
    """A file's text, and what is needed to encode another text the same way."""

    text: str
    """With its original line endings. Undecodable bytes are lone surrogates."""
    encoding: str = "utf-8"
    bom: bytes = b""
    bad_bytes: int = 0
    """Bytes in a UTF-8 text that are not UTF-8."""

    @property
    def newline(self) -> Newline:
        """The line ending of most lines."""
        windows = self.text.count("\r\n")
        unix = self.text.count("\n") - windows
        if not unix and not windows:
            return "\r" if "\r" in self.text else "\n"
        return "\r\n" if windows > unix else "\n"

    @property
    def mixed_newlines(self) -> bool:
        windows = self.text.count("\r\n")
        return 0 < windows < self.text.count("\n")

    @property
    def form(self) -> str:
        """A note about the encoding; empty for plain UTF-8."""
        if self.bad_bytes:
            return f"UTF-8 with {self.bad_bytes:,} bad bytes, shown as \ufffd"
        if self.encoding == "utf-8":
            return ""
        return f"not UTF-8, read as {self.encoding}"

    def check(self, new: str) -> None:
        """Raises ToolError if `new` cannot be written in this file's encoding."""
        try:
            new.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = new[error.start]
            what = f"U+{ord(character):04X}" + ("" if _SURROGATE.match(character) else f" ({character})")
            advice = (
                "Leave it out."
                if self.encoding == "utf-8"
                else "Write without it, or convert the file first (iconv in bash)."
            )
            raise ToolError(f"The file is {self.encoding}, which cannot hold {what}. {advice}") from error

    def encode(self, text: str) -> bytes:
        """`text` in this file's encoding. New parts must have passed `check`."""
        return self.bom + text.encode(self.encoding, "surrogateescape" if self.bad_bytes else "strict")


def decode(raw: bytes) -> TextFile | None:
    """`raw` as text that encodes to the same bytes again; None if it is not text."""
    for bom, encoding in _BYTE_ORDER_MARKS:
        if raw.startswith(bom):
            rest = raw[len(bom) :]
            try:
                return TextFile(rest.decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                return _decode_damaged(rest, bom) if encoding == "utf-8" else None
    head = raw[:_SNIFFED_BYTES]
    if b"\0" in head:
        return None
    with suppress(UnicodeDecodeError):
        return TextFile(raw.decode("utf-8"))
    if len(_CONTROL.findall(head)) * 20 > len(head):
        return None
    if damaged := _decode_damaged(raw):
        return damaged
    with suppress(UnicodeDecodeError):
        return TextFile(raw.decode("cp1252"), "cp1252")
    return TextFile(raw.decode("latin-1"), "latin-1")


def _decode_damaged(raw: bytes, bom: bytes = b"") -> TextFile | None:
    """UTF-8 with some bad bytes: more non-ASCII characters are valid than broken."""
    text = raw.decode("utf-8", "surrogateescape")
    bad = len(_SURROGATE.findall(text))
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    if not bom and beyond_ascii - bad <= bad:
        return None
    return TextFile(text, "utf-8", bom, bad)


def read_regular(path: Path, shown: str) -> bytes:
    """All bytes of the regular file at a real path.

    Pipes and devices are never opened: that could wait forever.
    """
    if not path.name:
        raise _not_regular_error(stat.S_IFDIR, shown)
    with open_folder(path.parent) as folder:
        return read_regular_in(folder, path.name, shown)


def read_regular_in(folder: Folder, name: str, shown: str) -> bytes:
    """The same for a file in an open folder."""
    try:
        handle = folder.open_regular(name)
    except NotRegular as error:
        raise _not_regular_error(error.mode, shown) from None
    try:
        expected = os.fstat(handle).st_size
        if expected > MAX_FILE_BYTES:
            raise _too_large_error(shown, expected)
        chunks: list[bytes] = []
        size = 0
        # It may have grown since, and some files of /proc report a size of 0.
        while chunk := os.read(handle, min(max(expected - size, _MIN_READ_BYTES), _CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise _too_large_error(shown, size)
    except BlockingIOError as error:
        raise OSError(errno.EAGAIN, "it has nothing to read now", shown) from error
    finally:
        os.close(handle)
    return b"".join(chunks)


def _not_regular_error(mode: int, shown: str) -> ToolError:
    if stat.S_ISDIR(mode):
        return ToolError(f"{shown} is a folder, not a file.")
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    kind = kinds.get(stat.S_IFMT(mode), "special file")
    return ToolError(f"{shown} is a {kind}, not a file: it is not opened.")


def _too_large_error(shown: str, size: int) -> ToolError:
    return ToolError(
        f"{shown} is too large ({size:,} bytes or more; the limit is {MAX_FILE_BYTES:,}). "
        "Use grep, or bash with head, tail or sed -n."
    )


def normalize(text: str) -> str:
    """`text` as the model sees it: every line ends with a plain newline."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def split_lines(text: str) -> list[str]:
    """The lines of a text whose endings are `normalize`d. Splits at newlines only, as grep counts."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
