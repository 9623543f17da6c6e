"""Downloads one page: redirects, limits, and only public addresses."""

import asyncio
import codecs
import re
import socket
import sys
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urljoin

import msgspec

from crushpy.core.messages import Data, Excerpt
from crushpy.http.client import Client
from crushpy.http.common import ConnectFailed, HttpError, Target, Timeouts, parse_url
from crushpy.http.connection import Response
from crushpy.http.public_addresses import is_public
from crushpy.http.routing import is_loopback
from crushpy.security.sanitize import encodable
from crushpy.tools.base import CallContext, Outcome
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import OutputFile, as_plain_text
from crushpy.tools.truncate import MAX_FETCH_BYTES, truncate, truncate_line
from crushpy.tools.web import html_to_markdown


async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
    """The addresses of `host` that may be contacted, best first. Raises `ToolError` if there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"No host named {host} was found. Check the address and the network.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if allow_private or is_public(address)]
    if not allowed:
        raise _private(host, addresses[0])
    return allowed


def check_written_address(host: str) -> None:
    """Raises `ToolError` if `host` is a private address in any notation. Looks nothing up, since the user has
    not been asked yet."""
    with suppress(OSError, UnicodeError):  # it is a name
        name = "127.0.0.1" if is_loopback(host) else host
        address = str(socket.getaddrinfo(name, None, flags=socket.AI_NUMERICHOST)[0][4][0])
        if not is_public(address):
            raise _private(host, address)


def _private(host: str, address: str) -> ToolError:
    return ToolError(
        f"{host} is a private address ({address}); fetch reads public ones only. "
        "The user can allow it with the setting permissions.private_hosts."
    )


MAX_REDIRECTS = 5
_MAX_ERROR_CHARS = 2_000
_MAX_NAME_CHARS = 200
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_HEADERS = {
    "accept": "text/markdown, text/html;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.5",
    "accept-encoding": "gzip",
}
FETCH_TIMEOUT_S = 30.0


async def visit(url: str, context: CallContext) -> Outcome:
    """Fetches `url`. Raises `ToolError` if it may not be fetched, or not in time."""
    client = Client(Timeouts(connect=10, response=FETCH_TIMEOUT_S, idle=FETCH_TIMEOUT_S))
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            return await _follow_redirects(client, url, context)
    except TimeoutError:
        raise ToolError(
            f"{url} was not read within {FETCH_TIMEOUT_S:g} s. Try again, or use curl with bash."
        ) from None
    except HttpError as error:
        raise ToolError(f"{url}: {error}") from None
    finally:
        await client.close()


def target_of(url: str) -> Target:
    """The server and path of `url`. Raises `ToolError` if it may not be fetched."""
    try:
        target = parse_url(url)
    except HttpError as error:
        raise ToolError(str(error)) from None
    if target.userinfo:
        raise ToolError("fetch takes no user name or password in a URL. Use curl with bash.")
    # A trailing dot does not change a name; rules must see it without.
    return msgspec.structs.replace(target, host=target.host.rstrip("."))


async def _follow_redirects(client: Client, url: str, context: CallContext) -> Outcome:
    for _ in range(MAX_REDIRECTS + 1):
        target = target_of(url)
        url = f"{target.scheme}://{target.authority}{target.path}"
        addresses = await resolve(target.host, target.port, context.workspace.allow_private_hosts)
        with await _request(client, url, addresses) as response:
            location = response.headers.get("location", "")
            if response.status not in _REDIRECT_STATUSES or not location:
                return await _page_outcome(response, url, context)
        url = _redirect_target(url, location)
        if _site(target_of(url)) != _site(target):
            # The user allowed one host; another host is another question.
            return Outcome(f"{target.authority} redirects to {truncate_line(url)}. Fetch that URL to go on.")
    raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times. Fetch its last target directly.")


async def _request(client: Client, url: str, addresses: list[str]) -> Response:
    """Sends the request to the address that was checked, without resolving the name again."""
    failed = ConnectFailed(f"no address is known for {url}")
    for address in addresses:
        try:
            return await client.request("GET", url, _HEADERS, connect_to=address)
        except ConnectFailed as error:
            failed = error
    raise failed


def _redirect_target(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
    except ValueError:
        raise ToolError(f"{url} redirects to {location!r}, which is not a URL.") from None
    if url.lower().startswith("https:") and not target.lower().startswith("https:"):
        raise ToolError(f"{url} redirects to {target}, which is not encrypted. Fetch that URL if you must.")
    return target


def _site(target: Target) -> str:
    return target.authority.removeprefix("www.")


async def _page_outcome(response: Response, url: str, context: CallContext) -> Outcome:
    content_type = response.headers.get("content-type", "")
    phrase = next((status.phrase for status in HTTPStatus if status == response.status), "")
    status = f"{response.status} {phrase}".strip()
    if response.status >= 300:
        return await _error_outcome(response, url, content_type, status)
    if not is_readable(content_type):
        size = response.headers.get("content-length", "")
        raise ToolError(
            f"{url} is {truncate_line(media_type(content_type), _MAX_NAME_CHARS)}"
            + (f", {int(size):,} bytes" if size.isdecimal() and len(size) < 20 else "")
            + ": fetch reads only pages and text. Use curl with bash to keep it as a file."
        )
    page = await read_page(await response.read(MAX_FETCH_BYTES), content_type, url)
    output_file = OutputFile(context.workspace.output_dir)
    output_file.add(page.text)
    output_file.close()
    shown = truncate(page.text)
    notes = [
        page.note,
        f"only the first {MAX_FETCH_BYTES // 1_000_000} MB were read" if response.truncated else "",
        output_file.where if shown.truncated_chars else "",
    ]
    note_lines = "".join(f"\n[{note}]" for note in notes if note)
    title = truncate_line(page.title, _MAX_NAME_CHARS)
    heading = f"Title: {title}\n\n" if title else ""
    return Outcome(
        f"{heading}{shown.text or '(empty)'}{note_lines}",
        display=Excerpt(title or url, shown.text, page.language),
    )


async def _error_outcome(response: Response, url: str, content_type: str, status: str) -> Outcome:
    """The beginning of an error response."""
    body = ""
    if is_readable(content_type):
        page = await read_page(await response.read(MAX_FETCH_BYTES), content_type, url)
        body = truncate(page.text, _MAX_ERROR_CHARS).text
    text = f"{url} answered {status}."
    return Outcome(f"{text}\n\n{body}" if body else text, is_error=True, display=Excerpt(text, body))


# --- the text of a response: pages become Markdown, text stays as it is


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
"""Bytes decoded at a time: some codecs take a second for a page of bad bytes, and other threads wait."""
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
        return await _read_html(await asyncio.to_thread(_decode_body, body, charset), address)
    text = await asyncio.to_thread(_decode_body, body, _charset(content_type))
    language = next((name for name in ("json", "xml", "markdown") if kind.endswith(name)), "")
    return Page(await asyncio.to_thread(_clean_lines, text), language=language)


async def _read_html(text: str, address: str) -> Page:
    if not text.strip():
        return Page("")
    try:
        is_truncated, title, content = await _convert(text, address)
    except (OSError, TimeoutError, ValueError):
        return Page("", note="the page could not be converted: use curl with bash")
    note = f"only the first {html_to_markdown.MAX_HTML_CHARS:,} characters of the page were converted"
    lines = await asyncio.to_thread(_clean_lines, content)
    return Page(lines, title, "markdown", note if is_truncated else "")


async def _convert(text: str, address: str) -> tuple[bool, str, str]:
    """Runs the converter in a process, which can be killed. -P keeps our folder off its path."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(Path(html_to_markdown.__file__)), address),
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
    mark, title, content = printed.decode().split("\n", 2)
    return mark == html_to_markdown.TRUNCATED, title, content


def _charset(text: str) -> str:
    """The charset named by a header or the beginning of a page; empty if there is none."""
    found = _CHARSET.search(text[:_SNIFFED_BYTES])
    try:
        name = codecs.lookup(found[1]).name if found else ""
    except LookupError:
        return ""
    return "" if name.replace("_", "-") in _NOT_CHARSETS else name


def _decode_body(body: bytes, charset: str) -> str:
    marked = next((marked for mark, marked in _BYTE_ORDER_MARKS.items() if body.startswith(mark)), "")
    try:
        return _decode_as(body, marked or _WITHOUT_BOM.get(charset, charset) or "utf-8")
    except (LookupError, ValueError):  # Python also lists codecs that are not charsets
        return _decode_as(body, "utf-8")


def _decode_as(body: bytes, charset: str) -> str:
    b" ".decode(charset, "replace")  # raises LookupError for codecs that do not produce text
    slices = (body[start : start + _SLICE_BYTES] for start in range(0, len(body), _SLICE_BYTES))
    return "".join(codecs.iterdecode(slices, charset, "replace"))


def _clean_lines(text: str) -> str:
    """Normalises line endings and removes control sequences."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(map(as_plain_text, text.splitlines(keepends=True)))
