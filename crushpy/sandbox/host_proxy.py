"""A proxy that lets commands in the sandbox reach the hosts that were allowed, and no others.

It reads the host of CONNECT, and then the server's name in the first words of TLS, which must be the same; of
plain HTTP it reads the request. It finds the addresses itself. What is inside TLS it cannot see.
"""

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.http.public_addresses import is_public
from crushpy.sandbox.client_hello import ALERT, MAX_HELLO, NotTls, read_hello
from crushpy.sandbox.host_list import HostList, HostPort, read_host_port
from crushpy.sandbox.relay import PIECE, BrokenRequest, pass_on, relay
from crushpy.security.safe_open import open_folder
from crushpy.util.spawn import spawn

MAX_HEAD = 1 << 15
MAX_CONNECTIONS = 256
PATIENCE = 15.0
"""Seconds for a head, for the first words of TLS, and for a server to answer."""
_MAX_REFUSALS = 50


class Refused(Exception):
    """A connection is not made. `status` and the words are the answer."""

    def __init__(self, status: str, words: str) -> None:
        super().__init__(words)
        self.status = status


class HostProxy:
    """One proxy, for all commands that may reach the same hosts. Belongs to one event loop."""

    def __init__(
        self, hosts: Sequence[str], *, allow_private: bool = False, patience: float = PATIENCE
    ) -> None:
        """`allow_private`: names may lead to addresses of this machine and network, too."""
        self.hosts = HostList(hosts)
        self.place = Path()
        """Where its socket is."""
        self.refusals: deque[str] = deque(maxlen=_MAX_REFUSALS)
        """What was refused, in words for the agent; whoever tells it empties this."""
        self._allow_private = allow_private
        self._patience = patience
        self._listening: asyncio.Task[asyncio.Server] | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def start(self, path: Path) -> None:
        """Takes connections at a unix socket, which is made in a folder that is there. Raises OSError."""
        self.place = path
        self._listening = spawn(self._listen(_bound(path)))

    async def _listen(self, taken: socket.socket) -> asyncio.Server:
        # Newer Pythons would remove the file when it is closed, by a path that does not hold any more.
        keeping: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        return await asyncio.start_unix_server(self._begin, sock=taken, limit=PIECE, **keeping)

    def told(self) -> list[str]:
        """What was refused since, in words for the agent."""
        said = [f"The sandbox refused a connection: {words}." for words in self.refusals]
        self.refusals.clear()
        return said

    async def close(self) -> None:
        """Ends all connections."""
        if self._listening is not None:
            (await self._listening).close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    # --- one connection -----------------------------------------------------------------------------------

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = spawn(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except Refused as refused:
            await _say(writer, refused)
        except BrokenRequest as error:
            await _say(writer, Refused("400 Bad Request", str(error)))
        except (OSError, TimeoutError, EOFError):
            pass  # the client, or its server, went away
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._patience):
            head = await _head(reader)
        method, target = _request_line(head)
        if method == b"CONNECT":
            await self._tunnel(reader, writer, target)
        else:
            await self._forward(reader, writer, head, target)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
        wanted = read_host_port(target)
        if wanted is None:
            raise Refused("400 Bad Request", "CONNECT takes a host and a port")
        server, to_server = await self._open(wanted)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            try:
                async with asyncio.timeout(self._patience):
                    first = await self._agreed_hello(reader, wanted)
            except (NotTls, TimeoutError) as error:
                why = "it said nothing" if isinstance(error, TimeoutError) else str(error)
                self._note(
                    f"the connection to {wanted} was ended: only TLS that names its server goes there ({why})"
                )
                writer.write(ALERT)
                return
            to_server.write(first)
            await relay((reader, to_server), (server, writer))
        finally:
            to_server.close()

    async def _agreed_hello(self, reader: asyncio.StreamReader, wanted: HostPort) -> bytes:
        """The first words of TLS, once they name the host that was asked for."""
        data = b""
        while (hello := read_hello(data)) is None:
            if len(data) > MAX_HELLO:
                raise NotTls("its first words have no end")
            more = await reader.read(PIECE)
            if not more:
                raise EOFError
            data += more
        # A client names no address there; one that was allowed needs no other name.
        if hello.server_name != wanted.host and (hello.server_name or not wanted.is_address):
            named = f"it names {hello.server_name}" if hello.server_name else "it names none"
            raise NotTls(named)
        return data

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, target: str
    ) -> None:
        """One plain request. The server is told to close, so that the next one is looked at as well."""
        import h11

        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() != "http":
            raise Refused("400 Bad Request", "this is a proxy: what it is asked for begins with http://")
        authority, slash, path = rest.partition("/")
        if not slash:
            authority, mark, query = authority.partition("?")
            path = f"{mark}{query}"
        wanted = None if "@" in authority else read_host_port(authority, 80)
        if wanted is None:
            raise Refused("400 Bad Request", "the address names no host, or a password with it")
        from_client = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        from_client.receive_data(head)
        try:
            request = from_client.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused("400 Bad Request", str(error)) from None
        assert isinstance(request, h11.Request)
        for name, value in request.headers:
            if name == b"host" and read_host_port(value.decode("latin-1"), 80) != wanted:
                raise Refused("400 Bad Request", f"the request is for {wanted}, its Host header for another")
        server, to_server = await self._open(wanted)
        try:
            await pass_on(from_client, request, f"/{path}", authority, reader, to_server)
            await relay((server, writer))
        finally:
            to_server.close()

    # --- who may be reached -------------------------------------------------------------------------------

    async def _open(self, wanted: HostPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.hosts.allows(wanted):
            raise self._refusal(
                f"{wanted} is not among the hosts that this command may reach "
                f"({', '.join(self.hosts.entries) or 'none'})"
            )
        trouble = "it does not answer"
        for address in await self._addresses(wanted):
            try:
                async with asyncio.timeout(self._patience):
                    return await asyncio.open_connection(address, wanted.port, limit=PIECE)
            except TimeoutError:
                continue
            except OSError as error:
                trouble = os.strerror(error.errno) if error.errno else str(error)
        raise Refused("502 Bad Gateway", f"{wanted} could not be reached: {trouble}")

    async def _addresses(self, wanted: HostPort) -> list[str]:
        """Those of its addresses that may be reached: private ones only where they were allowed as such."""
        try:
            async with asyncio.timeout(self._patience):
                found = await asyncio.get_running_loop().getaddrinfo(
                    wanted.host, wanted.port, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError, TimeoutError):
            raise Refused("502 Bad Gateway", f"no host named {wanted.host} was found") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        spelled = self.hosts.spells(wanted) and (wanted.is_address or wanted.host == "localhost")
        allowed = [one for one in addresses if spelled or self._allow_private or is_public(one)]
        if not allowed:
            raise self._refusal(
                f"{wanted.host} is a private address ({addresses[0]}); that must be allowed by its number, "
                "or by the setting permissions.private_hosts"
            )
        return allowed

    def _refusal(self, words: str) -> Refused:
        self._note(words)
        return Refused("403 Forbidden", words)

    def _note(self, words: str) -> None:
        if words not in self.refusals:
            self.refusals.append(words)


def _bound(path: Path) -> socket.socket:
    """A socket that takes connections at `path`, for its owner alone."""
    with open_folder(Path(os.path.realpath(path.parent))) as folder:
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # By the folder's handle, since the path of a socket may have no more than 107 bytes.
            place = f"{folder.as_cwd()}/{path.name}"
            taken.bind(place)
            os.chmod(place, 0o600)  # noqa: PTH101
            taken.listen(64)
            taken.setblocking(False)
        except BaseException:
            taken.close()
            raise
        return taken


def proxy_environment(port: int) -> dict[str, str]:
    """What tells programs to use a proxy at this port of their loopback."""
    address = f"http://127.0.0.1:{port}"
    near = "localhost,127.0.0.1,::1"
    told = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": near}
    return {**told, **{name.lower(): value for name, value in told.items()}, "NODE_USE_ENV_PROXY": "1"}


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused("431 Request Header Fields Too Large", "the head of the request has no end") from None


def _request_line(head: bytes) -> tuple[bytes, str]:
    if len(head) > MAX_HEAD:
        raise Refused("431 Request Header Fields Too Large", f"a head may have {MAX_HEAD:,} bytes")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Refused("400 Bad Request", "this is a proxy for HTTP: what came is no request for one")
    return words[0], words[1].decode("latin-1")


async def _say(writer: asyncio.StreamWriter, refused: Refused) -> None:
    body = f"crushpy: {refused}\n".encode()
    head = (
        f"HTTP/1.1 {refused.status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            writer.write(head.encode() + body)
            await writer.drain()
