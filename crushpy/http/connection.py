"""One HTTP/1.1 connection on a socket; h11 parses and serializes the protocol."""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import h11

from crushpy.http.common import ConnectFailed, HttpError, HttpTimeout, ProtocolBroken

MAX_HEAD_BYTES = 1 << 16
READ_BUFFER_BYTES = 1 << 16
MAX_EVENTS_PER_YIELD = 200
"""Events passed on before the event loop gets its turn: an event may hold a single byte."""
MAX_INTERIM_RESPONSES = 100
"""Informational responses (103 Early Hints) skipped before the final one."""
MAX_UNREAD_BYTES = 1 << 20
"""Reading from the socket pauses above this."""

Headers = list[tuple[str, str]]
Incoming = h11.Response | h11.Data | h11.EndOfMessage
Parsed = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] | h11.RemoteProtocolError


class Connection(asyncio.BufferedProtocol):
    """Created by `loop.create_connection`. Handles one request at a time."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        """`host:port`, for messages."""
        self.idle_since = 0.0
        self.reused = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        # A buffer of our own: asyncio would allocate 256 kB for every few bytes.
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._busy = False
        self._received = False
        """A byte arrived since the last request was sent, or since the last response ended."""
        self._unread = 0
        self._events_since_yield = 0
        self._lost = False
        self._full = False
        self._next_parsed: Parsed | None = None
        """The event after the data that was returned last."""
        self._waiter: asyncio.Future[None] | None = None

    # --- callbacks from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._adopt(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            # A model may be silent for minutes, and routers drop silent connections. asyncio itself sets
            # TCP_NODELAY.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received = True
        self._h11.receive_data(bytes(self._buffer[:nbytes]))
        self._unread += nbytes
        if self._unread > MAX_UNREAD_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._lose()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    # --- methods for the client

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: no unexpected bytes arrived, and the server did not close."""
        return not (self._busy or self._received or self._lost or self._transport.is_closing())

    @property
    def died_idle(self) -> bool:
        """Whether the peer closed a reused connection without sending a byte of the response."""
        return self.reused and self._lost and not self._received

    async def send(self, method: str, target: str, headers: Headers, body: bytes, timeout_s: float) -> None:
        """Write a request. Returns once its last byte left this process, or the peer closed."""
        self._busy, self._received = True, False
        try:
            head = self._h11.send(h11.Request(method=method, target=target, headers=headers)) or b""
        except (h11.LocalProtocolError, UnicodeEncodeError):
            # The exception itself quotes the value, which may be a key.
            raise ConnectFailed(
                f"the request to {self.peer} cannot be sent: a header contains an illegal character",
                "Check the key for a line break or a non-ASCII character.",
            ) from None
        self._h11.send(h11.Data(data=body))  # has a content-length, so it is sent as it is
        self._h11.send(h11.EndOfMessage())
        self._transport.write(head + body)
        while self._full and not self._lost:
            await self._wait(timeout_s, "accepted the request too slowly")

    async def receive_head(self, timeout_s: float) -> h11.Response:
        try:
            event = await self._next_event(timeout_s, "did not answer")
        except ProtocolBroken:
            if self._received:
                raise
            raise ConnectFailed(f"{self.peer} closed the connection without an answer") from None
        if not isinstance(event, h11.Response):
            raise ProtocolBroken(f"{self.peer} sent no HTTP response")
        return event

    async def receive_data(self, timeout_s: float) -> bytes | None:
        """The bytes of the body that arrived since the last call; None at its end."""
        event = await self._next_event(timeout_s, "sent nothing more")
        if not isinstance(event, h11.Data):
            return None
        data = [bytes(event.data)]
        while self._next_parsed is None and len(data) < MAX_EVENTS_PER_YIELD:
            event = self._parse()
            if isinstance(event, h11.Data):
                data.append(bytes(event.data))
            elif event is not h11.NEED_DATA:
                self._next_parsed = event
            else:
                break
        self._events_since_yield += len(data) - 1
        return data[0] if len(data) == 1 else b"".join(data)

    def finish_response(self) -> bool:
        """Called when the response was read completely. Returns whether the connection can be reused."""
        self._busy = self._received = False
        self._next_parsed = None
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return not self._h11.trailing_data[0] and self.usable

    def start_tunnel(self) -> None:
        """Reset the parser after a proxy accepted CONNECT: the peer is now the server behind it."""
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._busy = self._received = False

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectFailed(f"{self.peer} closed the connection while TLS was being set up")
        self._adopt(transport)

    def abort(self) -> None:
        """Close the socket immediately."""
        self._transport.abort()

    # --- internals

    def _adopt(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # No write buffer: `send` returns only when the request has left. For TLS a limit of 0 would never
        # be met.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("ssl_object") else 0, low=0)

    async def _next_event(self, timeout_s: float, silence: str) -> Incoming:
        interim = 0
        while True:
            self._events_since_yield += 1
            if self._events_since_yield >= MAX_EVENTS_PER_YIELD:
                self._events_since_yield = 0
                await asyncio.sleep(0)
            event, self._next_parsed = self._next_parsed or self._parse(), None
            if isinstance(event, h11.RemoteProtocolError):
                what = "broke off in the middle of its answer" if self._lost else f"broke HTTP: {event}"
                raise ProtocolBroken(f"{self.peer} {what}") from None
            if isinstance(event, h11.Response | h11.Data | h11.EndOfMessage):
                return event
            if event is h11.NEED_DATA:
                self._unread = 0
                self._transport.resume_reading()
                await self._wait(timeout_s, silence)
            elif not isinstance(event, h11.InformationalResponse):
                raise ProtocolBroken(f"{self.peer} closed the connection in the middle of its answer")
            elif (interim := interim + 1) > MAX_INTERIM_RESPONSES:
                raise ProtocolBroken(
                    f"{self.peer} sent {MAX_INTERIM_RESPONSES} interim answers and no final one"
                )

    def _parse(self) -> "Parsed":
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            return error

    async def _wait(self, timeout_s: float, silence: str) -> None:
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            raise HttpTimeout(f"{self.peer} {silence} for {timeout_s:g} s") from None
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._h11.receive_data(b"")
        self._wake()


UNZIP_CHUNK_BYTES = 1 << 16


class Response:
    """Read it to its end, or close it, which closes the socket."""

    def __init__(
        self, connection: Connection, head: h11.Response, idle_timeout: float, release: Callable[[], None]
    ) -> None:
        self.status = head.status_code
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated headers are joined with commas."""
        for raw_name, raw_value in head.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self.idle_timeout = idle_timeout
        """Seconds to wait for the next chunk of the body; may be changed while reading."""
        self.truncated = False
        """`read` stopped at its limit."""
        self._connection = connection
        self._release = release
        self._open = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, chunk by chunk, decompressed. Raises HttpError if it breaks off."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        try:
            async for data in self._raw_chunks() if encoding in ("", "identity") else self._unzip(encoding):
                yield data
            if self._open:
                self._open = False
                self._release()
        except GeneratorExit:
            raise  # `finish` may read the rest, and the caller closes the response
        except BaseException:
            self.close()
            raise

    async def _raw_chunks(self) -> AsyncIterator[bytes]:
        while self._open and (data := await self._connection.receive_data(self.idle_timeout)) is not None:
            yield data

    async def _unzip(self, encoding: str) -> AsyncIterator[bytes]:
        if encoding not in ("gzip", "x-gzip"):
            raise ProtocolBroken(
                f"the server sent an answer encoded as {encoding!r}, which was not requested"
            )
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
        empty = True
        async for data in self._raw_chunks():
            empty = False
            if decoder.eof:
                self.close()  # padding, which may be endless
                return
            rest = data
            while rest:
                try:
                    yield decoder.decompress(rest, UNZIP_CHUNK_BYTES)
                except zlib.error as error:
                    raise ProtocolBroken(f"the answer cannot be decompressed: {error}") from None
                rest = decoder.unconsumed_tail
        if self._open and not (empty or decoder.eof):
            raise ProtocolBroken("the compressed answer is incomplete")

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body, or its first `limit` bytes with `truncated` set and the socket closed."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.chunks():
            pieces.append(piece)
            size += len(piece)
            if limit is not None and size > limit:
                self.truncated = True
                self.close()
                break
        return b"".join(pieces)[:limit]

    async def finish(self, within: float) -> None:
        """Read the end of the body so that the connection can be reused; close it if that fails."""
        self.idle_timeout = within
        with suppress(HttpError):
            await self.read(limit=0)

    def close(self) -> None:
        """Close the socket, unless the response was read to its end."""
        if self._open:
            self._open = False
            self._connection.abort()

    def __enter__(self) -> "Response":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
