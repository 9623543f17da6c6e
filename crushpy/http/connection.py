"""One socket that speaks HTTP/1.1: bytes in and out, with h11 minding the protocol."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import h11

from crushpy.http.common import ConnectFailed, HttpTimeout, ProtocolBroken

if TYPE_CHECKING:
    import ssl

HEAD_LIMIT = 1 << 16
READ_SIZE = 1 << 16
COPIED = 1 << 16
"""Neighbouring pieces of a request are joined up to so many bytes; a larger one is written as it is."""
EVENTS_AT_A_TIME = 200
"""So many pieces of an answer are handed out before the loop gets its turn: a piece may be a single byte."""
INTERIM_LIMIT = 100
"""So many answers that are not the last word (103 Early Hints) are passed over."""
UNREAD_LIMIT = 1 << 20
"""More than this unread, and the socket is not read any further for a while."""

Headers = list[tuple[str, str]]
Body = bytes | Sequence[bytes | memoryview]
"""Of a request, in one piece or in several that are sent one after the other."""
Incoming = h11.Response | h11.Data | h11.EndOfMessage
Parsed = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] | h11.RemoteProtocolError


class Connection(asyncio.BufferedProtocol):
    """Made by `loop.create_connection`. At most one request is under way at any moment."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        """`host:port`, for messages."""
        self.idle_since = 0.0
        self.reused = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        # Read into a buffer of our own: asyncio would make one of 256 kB for every few bytes.
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._busy = False
        self._heard = False
        """Whether a byte came since the request, or, between requests, at all."""
        self._unread = 0
        self._handed_out = 0
        self._paused = False
        self._lost = False
        self._full = False
        self._ahead: Parsed | None = None
        """What came behind the piece that was handed out last."""
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._adopt(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            # asyncio has set TCP_NODELAY already. A model may be silent for minutes: keep routers awake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        self._h11.receive_data(bytes(self._buffer[:nbytes]))
        self._unread += nbytes
        if self._unread > UNREAD_LIMIT and not self._paused:
            self._paused = True
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

    # --- what the client calls

    @property
    def usable(self) -> bool:
        """Whether a further request may be sent: nothing came unasked, and the server did not hang up."""
        return not (self._busy or self._heard or self._lost or self._transport.is_closing())

    @property
    def died_idle(self) -> bool:
        """Whether the peer hung up on a connection that had served before, without a byte of an answer."""
        return self.reused and self._lost and not self._heard

    async def send(self, method: str, target: str, headers: Headers, body: Body, timeout_s: float) -> None:
        """Writes a request and returns when its last byte left this process (or the peer hung up)."""
        self._busy, self._heard = True, False
        try:
            head = self._h11.send(h11.Request(method=method, target=target, headers=headers)) or b""
        except (h11.LocalProtocolError, UnicodeEncodeError):
            # The error itself would quote the value, and that may be a key.
            raise ConnectFailed(
                f"the request to {self.peer} cannot be written: a header holds an illegal character",
                "Check the key for a line break or a character that is not plain ASCII.",
            ) from None
        pieces = [body] if isinstance(body, bytes) else body
        for piece in pieces:
            # Its length is known: it is written as it is, and only counted here.
            self._h11.send_with_data_passthrough(h11.Data(data=cast(bytes, piece)))
        self._h11.send(h11.EndOfMessage())
        for block in _blocks([head, *pieces]):
            self._transport.write(block)
            while self._full and not self._lost:  # what waits in the transport is a copy
                await self._wait(timeout_s, "took the request too slowly")

    async def response(self, timeout_s: float) -> h11.Response:
        """The head of the answer."""
        try:
            event = await self._next(timeout_s, "did not answer")
        except ProtocolBroken:
            if self._heard:
                raise
            raise ConnectFailed(f"{self.peer} closed the connection without an answer") from None
        if not isinstance(event, h11.Response):
            raise ProtocolBroken(f"{self.peer} sent no HTTP response")
        return event

    async def piece(self, timeout_s: float) -> bytes | None:
        """What has come of the answer's body since the last time, or None at its end."""
        event = await self._next(timeout_s, "sent nothing more")
        if not isinstance(event, h11.Data):
            return None
        data = [bytes(event.data)]
        while self._ahead is None and len(data) < EVENTS_AT_A_TIME:
            event = self._parsed()
            if isinstance(event, h11.Data):
                data.append(bytes(event.data))
            elif event is not h11.NEED_DATA:
                self._ahead = event
            else:
                break
        self._handed_out += len(data) - 1
        return data[0] if len(data) == 1 else b"".join(data)

    def end(self) -> bool:
        """The answer has been read whole. Returns whether the connection may be kept."""
        self._busy = self._heard = False
        self._ahead = None
        self._stop_timer()
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return not self._h11.trailing_data[0] and self.usable

    def tunnelled(self) -> None:
        """A proxy agreed to CONNECT: from now on this is a connection to the server behind it."""
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._busy = self._heard = False

    async def start_tls(self, context: "ssl.SSLContext", host: str) -> None:
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectFailed(f"{self.peer} closed the connection while TLS was being set up")
        self._adopt(transport)

    def abort(self) -> None:
        """Closes the socket at once."""
        self._stop_timer()
        self._transport.abort()

    # --- inside

    def _adopt(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # No high-water mark: `send` is to return when the request is really on its way. TLS counts its own
        # bytes, and 0 of them as too many.
        transport.set_write_buffer_limits(high=1 if transport.get_extra_info("ssl_object") else 0, low=0)

    async def _next(self, timeout_s: float, silence: str) -> Incoming:
        interim = 0
        while True:
            self._handed_out += 1
            if self._handed_out >= EVENTS_AT_A_TIME:
                self._handed_out = 0
                await asyncio.sleep(0)
            event, self._ahead = self._ahead or self._parsed(), None
            if isinstance(event, h11.RemoteProtocolError):
                what = "broke off in the middle of its answer" if self._lost else f"broke HTTP: {event}"
                raise ProtocolBroken(f"{self.peer} {what}") from None
            if isinstance(event, h11.Response | h11.Data | h11.EndOfMessage):
                return event
            if event is h11.NEED_DATA:
                self._unread = 0
                if self._paused:
                    self._paused = False
                    self._transport.resume_reading()
                await self._wait(timeout_s, silence)
            elif not isinstance(event, h11.InformationalResponse):
                raise ProtocolBroken(f"{self.peer} closed the connection in the middle of its answer")
            elif (interim := interim + 1) > INTERIM_LIMIT:
                raise ProtocolBroken(f"{self.peer} sent {INTERIM_LIMIT} interim answers and no last one")

    def _parsed(self) -> "Parsed":
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            return error

    async def _wait(self, timeout_s: float, silence: str) -> None:
        self._waiter = waiter = self._loop.create_future()
        self._deadline = deadline = self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > deadline:
            self._stop_timer()
            self._timer = self._loop.call_at(deadline, self._expire)
        try:
            await waiter
        except TimeoutError:
            raise HttpTimeout(f"{self.peer} {silence} for {timeout_s:g} s") from None
        finally:
            self._waiter = None

    def _expire(self) -> None:
        """One timer serves many waits: it moves on where its deadline has, as it does with every piece."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._expire)
        else:
            self._waiter.set_exception(TimeoutError())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._stop_timer()
            self._h11.receive_data(b"")
        self._wake()


def _blocks(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in order; small neighbours are joined, so that one write carries them."""
    small: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        if size + len(piece) > COPIED and small:
            yield b"".join(small)
            small, size = [], 0
        if len(piece) > COPIED:
            yield memoryview(piece)
        elif piece:
            small.append(piece)
            size += len(piece)
    if small:
        yield b"".join(small)


def size_of(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))
