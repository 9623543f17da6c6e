"""Small raw servers on loopback, so that every byte of an answer is the test's own."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """Serves each connection with `handler`; counts them."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[str] = []
        self.gone = asyncio.Event()
        """Set when a handler saw the client hang up."""
        self._servers: list[asyncio.Server] = []

    async def start(self, handler: Handler, tls: ssl.SSLContext | None = None) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                await handler(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # asyncio's own streams report a cancelled handler as a crash
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        self._servers.append(server)
        self.port: int = server.sockets[0].getsockname()[1]
        return f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    async def head(self, reader: asyncio.StreamReader) -> str:
        """Reads one request: its head; a body by Content-Length is read and dropped."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        for line in head.lower().split("\r\n"):
            if line.startswith("content-length:"):
                await reader.readexactly(int(line.split(":")[1]))
        return head

    def answering(self, *answers: bytes) -> Handler:
        """A handler that gives each request on any connection the next of `answers`."""
        left = list(answers)

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while left:
                await self.head(reader)
                writer.write(left.pop(0))
                await writer.drain()
            await reader.read()

        return handler

    def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    server = RawServer()
    yield server
    server.close()
