"""One client connection of the scripted server: HTTP/1.1 with keep-alive, and nothing of models."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests"}


class ClientGone(Exception):
    """The client closed the socket before it had the whole answer."""


@dataclass
class Recorded:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)
    """Empty where the request carried no JSON object."""
    connection: int = 0
    """The same number for requests on the same socket."""
    closed_early: bool = False
    """The client went before the answer was complete."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def tool_names(self) -> list[str]:
        """What tools were offered, in whatever format."""
        tools = self.body.get("tools", [])
        if tools and "functionDeclarations" in tools[0]:
            tools = tools[0]["functionDeclarations"]
        return [tool.get("name") or tool["function"]["name"] for tool in tools]


class Connection(asyncio.Protocol):
    def __init__(self, number: int, serve: Callable[["Connection"], Awaitable[None]]) -> None:
        self.number = number
        self.gone = asyncio.Event()
        self._serve = serve
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        self.task = asyncio.ensure_future(self._serve(self))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._more.set()

    def eof_received(self) -> None:
        self._lost()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _lost(self) -> None:
        self.gone.set()
        self._more.set()
        self._writable.set()

    # --- reading

    async def request(self) -> Recorded | None:
        """The next request; None when the client is done."""
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        raw = await self._body(headers)
        if raw is None:
            return None
        return Recorded(method, path, headers, raw, _object(raw), self.number)

    async def _body(self, headers: dict[str, str]) -> bytes | None:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._exactly(int(headers.get("content-length", "0")))
        whole = b""
        while True:
            size = await self._until(b"\r\n")
            if size is None:
                return None
            piece = await self._exactly(int(size.split(b";")[0], 16) + 2)
            if piece is None or piece == b"\r\n":
                return None if piece is None else whole
            whole += piece[:-2]

    async def _until(self, mark: bytes) -> bytes | None:
        while (at := self._buffer.find(mark)) < 0:
            if not await self._wait():
                return None
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(mark)]
        return found

    async def _exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not await self._wait():
                return None
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    async def _wait(self) -> bool:
        if self.gone.is_set():
            return False
        self._more.clear()
        await self._more.wait()
        return True

    # --- writing

    async def send(self, data: bytes) -> None:
        if self.gone.is_set():
            raise ClientGone
        self.transport.write(data)
        await self._writable.wait()

    async def whole(self, status: int, body: bytes, content_type: str, headers: dict[str, str]) -> None:
        """An answer in one go."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"Content-Type: {content_type}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        await self.send("\r\n".join(lines).encode() + body)

    async def start_events(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    async def event(self, data: str, name: str = "") -> None:
        """One server-sent event, as one HTTP chunk."""
        payload = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
        await self.chunk(payload.encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_events(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def pause(self, seconds: float) -> None:
        """Waits, unless the client goes meanwhile."""
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            return
        raise ClientGone

    async def pause_until(self, event: asyncio.Event) -> None:
        """Waits for `event`, unless the client goes first."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self.gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.gone.is_set():
            raise ClientGone


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
