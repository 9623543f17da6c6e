"""An HTTP proxy through which sandboxed commands reach the hosts they were granted, and no others.

Commands without any granted host have one too: a refused host then fails at once and by name, instead of
after the retries of a program that cannot resolve it.
"""

import asyncio
import os
import re
import socket
import ssl
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crushpy.core.messages import Data
from crushpy.http.public_addresses import is_public, read_address
from crushpy.security.safe_open import open_folder
from crushpy.util.spawn import spawn, spawn_among

if TYPE_CHECKING:
    import h11

MAX_HELLO_BYTES = 1 << 16
ALERT = b"\x15\x03\x01\x00\x02\x02\x70"
"""The TLS alert `unrecognized_name`."""


class NotTls(ValueError):
    """The data is not the beginning of a TLS connection."""


def read_server_name(data: bytes) -> str | None:
    """The server name in a ClientHello, in lower case; empty if there is none, None while it is incomplete.

    OpenSSL parses it. Raises NotTls.
    """
    names: list[str] = []

    def stop(_connection: object, name: str | None, _context: object) -> int:
        names.append((name or "").lower().rstrip("."))
        return ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = stop
    received = ssl.MemoryBIO()
    received.write(data)
    # Python would print that it cannot decode a name which is not ASCII: the handshake fails anyway.
    print_unraisable = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        context.wrap_bio(received, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError as error:
        if not names:
            raise NotTls(f"it does not begin with a valid ClientHello: {error.reason}") from None
    finally:
        sys.unraisablehook = print_unraisable
    return names[0]


_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_CHARS = 253


class HostPort(Data, frozen=True):
    """A host and a port as a client names them, normalised."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HostList:
    """Which hosts may be reached: names, `*.name`, addresses; with or without a port. `!name` denies one."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self._parsed = [_parse(entry) for entry in entries if not entry.startswith("!")]
        denied = [entry[1:] for entry in entries if entry.startswith("!")]
        self._denied = HostList(denied) if denied else None

    def allows(self, wanted: HostPort) -> bool:
        if self.denies(wanted):
            return False
        is_name = read_address(wanted.host) is None
        return self.spells(wanted) or any(
            pattern == "*" or (pattern.startswith("*.") and is_name and wanted.host.endswith(pattern[1:]))
            for pattern, port in self._parsed
            if port in ("", str(wanted.port))
        )

    def denies(self, wanted: HostPort) -> bool:
        return self._denied is not None and self._denied.allows(wanted)

    def spells(self, wanted: HostPort) -> bool:
        """True if an entry is exactly this host, not a pattern that covers it."""
        return any(entry in ((wanted.host, ""), (wanted.host, str(wanted.port))) for entry in self._parsed)


def read_host_port(text: str, default_port: int = 0) -> HostPort | None:
    """Parses `host:port` or `[address]:port`; None if it is neither."""
    host, port = _parse(text)
    port = port or str(default_port)
    if not _PORT.fullmatch(port) or not 0 < int(port) <= 65_535:
        return None
    is_address = read_address(host) is not None and "%" not in host
    is_name = len(host) <= _MAX_CHARS and _NAME.fullmatch(host)
    return HostPort(host, int(port)) if is_address or is_name else None


def _parse(text: str) -> tuple[str, str]:
    """The host, normalised if it is an address, and the port; empty if there is none."""
    host, port = text.strip().lower(), ""
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    host = host.rstrip(".")
    return str(read_address(host) or host), port.removeprefix(":")


CHUNK_BYTES = 1 << 16
IDLE_TIMEOUT_S = 600.0
"""How long a connection may be silent."""
_HOP_BY_HOP = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te", b"upgrade", b"host")
)


class ProxyRefusal(Exception):
    """The connection is refused; `status` and the message are the response."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


async def forward_request(
    from_client: "h11.Connection",
    request: "h11.Request",
    path: str,
    authority: str,
    reader: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
) -> None:
    """Forwards the request and its body, and nothing after it."""
    import h11

    outgoing = h11.Connection(h11.CLIENT)
    end_to_end = [(name, value) for name, value in request.headers if name not in _HOP_BY_HOP]
    headers = [(b"host", authority.encode("latin-1")), *end_to_end, (b"connection", b"close")]
    try:
        head = outgoing.send(
            h11.Request(method=request.method, target=path.encode("latin-1"), headers=headers)
        )
        to_server.write(head or b"")
        while not isinstance(event := from_client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                to_server.write(outgoing.send(event) or b"")
                await to_server.drain()
            elif event is h11.NEED_DATA:
                async with asyncio.timeout(IDLE_TIMEOUT_S):
                    from_client.receive_data(await reader.read(CHUNK_BYTES))
            else:
                raise EOFError
        to_server.write(outgoing.send(event) or b"")
        await to_server.drain()
    except h11.ProtocolError as error:
        raise ProxyRefusal("400 Bad Request", str(error)) from None


async def relay(*directions: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copies until all directions have ended, one fails, or all are silent for too long.

    A long download is silent in the other direction, so there is one timeout for all.
    """
    loop = asyncio.get_running_loop()

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            silence.reschedule(loop.time() + IDLE_TIMEOUT_S)
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()

    async with asyncio.timeout(IDLE_TIMEOUT_S) as silence:
        copying = [spawn(copy(*direction)) for direction in directions]
        try:
            await asyncio.gather(*copying)
        finally:
            for task in copying:
                task.cancel()


MAX_HEAD_BYTES = 1 << 15
MAX_CONNECTIONS = 256
CONNECT_TIMEOUT_S = 15.0
"""For a request head, for the ClientHello, and for a server to accept."""
_MAX_REFUSALS = 50


class HostProxy:
    """One proxy for all commands that may reach the same hosts. Bound to one event loop."""

    def __init__(self, hosts: Sequence[str], *, allow_private: bool = False) -> None:
        """`allow_private`: names may also resolve to addresses of this machine and network."""
        self.hosts = HostList(hosts)
        self.place = Path()
        """The path of its socket."""
        self.refusals: deque[str] = deque(maxlen=_MAX_REFUSALS)
        """Refusals the agent was not told about yet."""
        self._missing_hosts: dict[str, None] = {}
        """The hosts among them that were not granted."""
        self._allow_private = allow_private
        self._server_task: asyncio.Task[asyncio.Server] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def start(self, path: Path) -> None:
        """Accepts connections on a Unix socket, created in an existing folder. Raises OSError."""
        self.place = path
        self._server_task = spawn(self._listen(_bind_socket(path)))

    async def _listen(self, listener: socket.socket) -> asyncio.Server:
        # From 3.13 on Python would unlink the socket on close, by a path that is no longer valid.
        options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        return await asyncio.start_unix_server(self._accept, sock=listener, limit=CHUNK_BYTES, **options)

    def take_refusals(self) -> list[str]:
        """Messages about what was refused since the last call."""
        lines = [f"The sandbox refused a connection: {message}." for message in self.refusals]
        if self._missing_hosts:
            lines.append(f"To ask for it, call again with needs.network: {', '.join(self._missing_hosts)}.")
        self.refusals.clear()
        self._missing_hosts.clear()
        return lines

    async def close(self) -> None:
        """Ends all connections."""
        if self._server_task is not None:
            (await self._server_task).close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # --- one connection -----------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        spawn_among(self._connections, self._handle(reader, writer))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handle_request(reader, writer)
        except ProxyRefusal as refusal:
            await _send_refusal(writer, refusal)
        except (OSError, TimeoutError, EOFError):
            pass  # the client or the server closed the connection
        finally:
            writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b" " * (MAX_HEAD_BYTES + 1)
        if len(head) > MAX_HEAD_BYTES:
            status = "431 Request Header Fields Too Large"
            raise ProxyRefusal(status, f"the limit is {MAX_HEAD_BYTES:,} bytes")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            raise ProxyRefusal("400 Bad Request", "this is an HTTP proxy, and this is not a proxy request")
        method, target = words[0], words[1].decode("latin-1")
        if method == b"CONNECT":
            await self._tunnel(reader, writer, target)
        else:
            await self._forward(reader, writer, head, target)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
        wanted = read_host_port(target)
        if wanted is None:
            raise ProxyRefusal("400 Bad Request", "CONNECT takes a host and a port")
        server, to_server = await self._open(wanted)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    first = await self._read_matching_hello(reader, wanted)
            except (NotTls, TimeoutError) as error:
                why = "no data" if isinstance(error, TimeoutError) else str(error)
                self._record_refusal(
                    f"the connection to {wanted} was closed: only TLS with a server name is allowed ({why})"
                )
                writer.write(ALERT)
                return
            to_server.write(first)
            await relay((reader, to_server), (server, writer))
        finally:
            to_server.close()

    async def _read_matching_hello(self, reader: asyncio.StreamReader, wanted: HostPort) -> bytes:
        """The ClientHello, checked to name the requested host."""
        data = b""
        while (named := read_server_name(data)) is None:
            if len(data) > MAX_HELLO_BYTES:
                raise NotTls("its ClientHello is too long")
            chunk = await reader.read(CHUNK_BYTES)
            if not chunk:
                raise EOFError
            data += chunk
        # Clients do not send an address as the server name; an allowed address needs none.
        if named != wanted.host and (named or read_address(wanted.host) is None):
            raise NotTls(f"it names {named or 'none'}")
        return data

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, target: str
    ) -> None:
        """Forwards one plain HTTP request. The server must close, so that the next request is checked."""
        import h11

        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() != "http":
            raise ProxyRefusal("400 Bad Request", "this is a proxy: the target must begin with http://")
        authority, slash, path = rest.partition("/")
        if not slash:
            authority, mark, query = authority.partition("?")
            path = f"{mark}{query}"
        wanted = None if "@" in authority else read_host_port(authority, 80)
        if wanted is None:
            raise ProxyRefusal("400 Bad Request", "the address has no host, or contains a password")
        from_client = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        from_client.receive_data(head)
        try:
            request = from_client.next_event()
        except h11.RemoteProtocolError as error:
            raise ProxyRefusal("400 Bad Request", str(error)) from None
        assert isinstance(request, h11.Request)
        for name, value in request.headers:
            if name == b"host" and read_host_port(value.decode("latin-1"), 80) != wanted:
                raise ProxyRefusal(
                    "400 Bad Request", f"the request is for {wanted}, its Host header for another"
                )
        server, to_server = await self._open(wanted)
        try:
            await forward_request(from_client, request, f"/{path}", authority, reader, to_server)
            await relay((server, writer))
        finally:
            to_server.close()

    # --- allowed hosts ------------------------------------------------------------------------------------

    async def _open(self, wanted: HostPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.hosts.denies(wanted):
            raise self._refusal(f"{wanted} is denied by a rule")
        if not self.hosts.allows(wanted):
            if len(self._missing_hosts) < _MAX_REFUSALS:
                self._missing_hosts[wanted.host] = None
            raise self._refusal(
                f"{wanted} is not a host that this command may reach "
                f"({', '.join(self.hosts.entries) or 'none'})"
            )
        reason = "it does not answer"
        for address in await self._addresses(wanted):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(address, wanted.port, limit=CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
        raise ProxyRefusal("502 Bad Gateway", f"{wanted} could not be reached: {reason}")

    async def _addresses(self, wanted: HostPort) -> list[str]:
        """The addresses of the host that may be reached: private ones only if allowed explicitly."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                found = await asyncio.get_running_loop().getaddrinfo(
                    wanted.host, wanted.port, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError, TimeoutError):
            raise ProxyRefusal("502 Bad Gateway", f"no host named {wanted.host} was found") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        is_address = wanted.host == "localhost" or read_address(wanted.host) is not None
        is_exact = self.hosts.spells(wanted) and is_address
        allowed = [address for address in addresses if is_exact or self._allow_private or is_public(address)]
        if not allowed:
            raise self._refusal(
                f"{wanted.host} is a private address ({addresses[0]}); allow the address itself, "
                "or set permissions.private_hosts"
            )
        return allowed

    def _refusal(self, message: str) -> ProxyRefusal:
        self._record_refusal(message)
        return ProxyRefusal("403 Forbidden", message)

    def _record_refusal(self, message: str) -> None:
        if message not in self.refusals:
            self.refusals.append(message)


def _bind_socket(path: Path) -> socket.socket:
    """A socket that listens at `path`, accessible to its owner only."""
    with open_folder(Path(os.path.realpath(path.parent))) as folder:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Relative to the folder's descriptor: a socket path is limited to 107 bytes.
            place = f"{folder.as_cwd()}/{path.name}"
            listener.bind(place)
            os.chmod(place, 0o600)  # noqa: PTH101
            listener.listen(64)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener


_NO_RETRIES = {
    "PIP_RETRIES": "0",
    "UV_HTTP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
    "npm_config_fetch_retries": "0",
}
"""For commands that may reach no host: these programs also retry after a 403, for up to 12 seconds."""


def proxy_environment(port: int, *, retries: bool) -> dict[str, str]:
    """The variables that make programs use a proxy at this loopback port."""
    address = f"http://127.0.0.1:{port}"
    no_proxy = f"localhost,127.0.0.1,::1,0.0.0.0,{os.uname().nodename}"
    variables = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": no_proxy}
    lower = {name.lower(): value for name, value in variables.items()}
    return {**variables, **lower, "NODE_USE_ENV_PROXY": "1", **({} if retries else _NO_RETRIES)}


async def _send_refusal(writer: asyncio.StreamWriter, refusal: ProxyRefusal) -> None:
    body = f"crushpy: {refusal}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            writer.write(head.encode() + body)
            await writer.drain()
