"""Turns a response into text: pages become Markdown, text stays as it is."""

import asyncio
import codecs
import html
import re
import sys
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.sanitize import encodable
from crushpy.tools.shell.command_output import as_plain_text
from crushpy.tools.web import html_to_markdown

_CONVERSION_TIMEOUT_S = 15
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_TEXT_TYPES = tuple(
    f"application/{name}"
    for name in "json javascript ecmascript xml yaml toml sql x-sh x-yaml x-ndjson".split()  # noqa: SIM905
)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_WITHOUT_BOM = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
_NOT_CHARSETS = ("unicode-escape", "raw-unicode-escape", "idna", "punycode", "utf-7")
"""Codecs that no page uses: they would hide something, or cost too much."""
_SLICE_BYTES = 1 << 15
"""Bytes processed before yielding to the event loop."""
_SNIFFED_BYTES = 2_048
"""A page names its charset in its first bytes or not at all."""


class Page(Data, frozen=True):
    text: str
    title: str = ""
    language: str = ""
    note: str = ""


def is_readable(content_type: str) -> bool:
    """True for types that can be shown. A response without a type is inspected first."""
    kind = media_type(content_type)
    if kind.endswith(("+json", "+xml")):
        return True
    return not kind or kind.startswith("text/") or kind in (*_PAGE_TYPES, *_TEXT_TYPES)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


async def read_page(body: bytes, content_type: str, address: str) -> Page:
    """The text of a response. Untyped data that is not text gives an empty page with a note."""
    kind = media_type(content_type)
    if not kind and b"\0" in body[:_SNIFFED_BYTES]:
        return Page("", note=f"{len(body):,} bytes that are not text")
    is_html = body[:_SNIFFED_BYTES].lstrip().lower().startswith((b"<!doctype html", b"<html"))
    if kind in _PAGE_TYPES or (not kind and is_html):
        charset = _charset(content_type) or _charset(body[:_SNIFFED_BYTES].decode("latin-1"))
        return await _read_html(await _decode_body(body, charset), address)
    text = await _decode_body(body, _charset(content_type))
    language = next((name for name in ("json", "xml", "markdown") if kind.endswith(name)), "")
    return Page(await _clean_lines(text), language=language)


async def _read_html(text: str, address: str) -> Page:
    if not text.strip():
        return Page("")
    try:
        cut, title, content = await _convert(text, address)
    except (OSError, TimeoutError, ValueError):
        bare = await asyncio.to_thread(_strip_tags, text[: html_to_markdown.MAX_HTML_CHARS])
        return Page(await _clean_lines(bare), note="the page could not be converted; this is its bare text")
    note = (
        f"only the first {html_to_markdown.MAX_HTML_CHARS:,} characters of the page were converted"
        if cut
        else ""
    )
    return Page(await _clean_lines(content), title, "markdown", note)


async def _convert(text: str, address: str) -> tuple[bool, str, str]:
    """Runs the converter in a process, which can be killed. -P keeps our folder off its path."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(Path(html_to_markdown.__file__)),
        address,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_CONVERSION_TIMEOUT_S):
            printed, _ = await process.communicate(encodable(text).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError("the converter failed")
    cut, title, content = printed.decode().split("\n", 2)
    return cut == html_to_markdown.CUT, title, content


def _strip_tags(text: str) -> str:
    """`text` without tags, in one pass: the fallback if the converter fails."""
    pieces = html_to_markdown.without_code(text).split("<")
    words = pieces[0] + " ".join(piece.partition(">")[2] for piece in pieces[1:])
    lines = (" ".join(line.split()) for line in html.unescape(words).splitlines())
    return "\n".join(line for line in lines if line)


def _charset(text: str) -> str:
    """The charset named by a header or the beginning of a page; empty if there is none."""
    found = _CHARSET.search(text[:_SNIFFED_BYTES])
    try:
        name = codecs.lookup(found[1]).name if found else ""
    except LookupError:
        return ""
    return "" if name.replace("_", "-") in _NOT_CHARSETS else name


async def _decode_body(body: bytes, charset: str) -> str:
    for mark, marked in _BYTE_ORDER_MARKS.items():
        if body.startswith(mark):
            return await _decode_as(body, marked)
    try:
        return await _decode_as(body, _WITHOUT_BOM.get(charset, charset) or "utf-8")
    except (LookupError, ValueError):  # Python also lists codecs that are not charsets
        return await _decode_as(body, "utf-8")


async def _decode_as(body: bytes, charset: str) -> str:
    """A slice at a time: some codecs take a second for a page of bad bytes."""
    b" ".decode(charset, "replace")  # raises LookupError for codecs that do not produce text
    decoder = codecs.getincrementaldecoder(charset)("replace")
    pieces: list[str] = []
    for start in range(0, len(body), _SLICE_BYTES):
        pieces.append(decoder.decode(body[start : start + _SLICE_BYTES], start + _SLICE_BYTES >= len(body)))
        await asyncio.sleep(0)
    return "".join(pieces)


async def _clean_lines(text: str) -> str:
    """Normalises line endings and removes control sequences, yielding to the event loop in between."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _SLICE_BYTES) + 1 or start + _SLICE_BYTES
        pieces.append(as_plain_text(text[start:end]))
        start = end
        await asyncio.sleep(0)
    return "".join(pieces)
