"""Downloads one page: redirects, limits, and only public addresses."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urljoin

import msgspec

from crushpy.core.messages import Excerpt
from crushpy.http.client import Client
from crushpy.http.common import ConnectFailed, HttpError, Target, Timeouts, parse_url
from crushpy.http.public_addresses import is_public
from crushpy.http.response import Response
from crushpy.tools.base import Outcome, ToolContext
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import OutputFile
from crushpy.tools.truncate import MAX_FETCH_BYTES, cut_line, truncate
from crushpy.tools.web.page_text import is_readable, media_type, read_page


async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
    """The addresses of `host` that may be contacted, best first. Raises `ToolError` if there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"No host named {host} was found. Check the address and the network.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if allow_private or is_public(address)]
    if not allowed:
        raise ToolError(
            f"{host} is a private address ({addresses[0]}); fetch reads public ones only. "
            "The user can allow it with the setting permissions.private_hosts."
        )
    return allowed


MAX_REDIRECTS = 5
_MAX_ERROR_CHARS = 2_000
_MAX_NAME_CHARS = 200
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_HEADERS = {
    "accept": "text/markdown, text/html;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.5",
    "accept-encoding": "gzip",
}
LookUp = Callable[[str, int, bool], Awaitable[list[str]]]
"""Maps a host, a port and whether private addresses are allowed to the addresses that may be contacted."""


async def visit(url: str, context: ToolContext, seconds: float, look_up: LookUp = resolve) -> Outcome:
    """Fetches `url`. Raises `ToolError` if it may not be fetched, or not within `seconds`."""
    client = Client(Timeouts(connect=10, response=seconds, idle=seconds))
    try:
        async with asyncio.timeout(seconds):
            return await _follow_redirects(client, url, context, look_up)
    except TimeoutError:
        raise ToolError(
            f"{url} was not read within {seconds:g} s. Try again, or use curl with bash."
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


async def _follow_redirects(client: Client, url: str, context: ToolContext, look_up: LookUp) -> Outcome:
    for _ in range(MAX_REDIRECTS + 1):
        target = target_of(url)
        url = f"{target.scheme}://{target.authority}{target.path}"
        addresses = await look_up(target.host, target.port, context.allow_private_hosts)
        with await _request(client, url, addresses) as response:
            location = response.headers.get("location", "")
            if response.status not in _REDIRECT_STATUSES or not location:
                return await _page_outcome(response, url, context)
        url = _redirect_target(url, location)
        if _site(target_of(url)) != _site(target):
            # The user allowed one host; another host is another question.
            return Outcome(f"{target.authority} redirects to {cut_line(url)}. Fetch that URL to go on.")
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


async def _page_outcome(response: Response, url: str, context: ToolContext) -> Outcome:
    content_type = response.headers.get("content-type", "")
    phrase = next((one.phrase for one in HTTPStatus if one == response.status), "")
    status = f"{response.status} {phrase}".strip()
    if response.status >= 300:
        return await _error_outcome(response, url, content_type, status)
    if not is_readable(content_type):
        size = response.headers.get("content-length", "")
        raise ToolError(
            f"{url} is {cut_line(media_type(content_type), _MAX_NAME_CHARS)}"
            + (f", {int(size):,} bytes" if size.isdecimal() and len(size) < 20 else "")
            + ": fetch reads only pages and text. Use curl with bash to keep it as a file."
        )
    page = await read_page(await response.read(MAX_FETCH_BYTES), content_type, url)
    output_file = OutputFile(context.output_dir)
    output_file.add(page.text)
    output_file.close()
    shown = truncate(page.text)
    notes = [
        page.note,
        f"only the first {MAX_FETCH_BYTES // 1_000_000} MB were read" if response.truncated else "",
        output_file.where if shown.truncated_chars else "",
    ]
    note_lines = "".join(f"\n[{note}]" for note in notes if note)
    title = cut_line(page.title, _MAX_NAME_CHARS)
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
