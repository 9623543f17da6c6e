"""An answer: its head, and its body as it arrives, decompressed."""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator

import h11

from crushpy.http.common import HttpError, ProtocolBroken
from crushpy.http.connection import Connection


class Response:
    """Read it to its end, or close it; closing it before its end closes the socket."""

    def __init__(
        self, connection: Connection, head: h11.Response, url: str, idle: float, keep: Callable[[], None]
    ) -> None:
        self.status = head.status_code
        self.url = url
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated ones joined with commas."""
        for raw_name, raw_value in head.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self.idle_timeout = idle
        """Seconds to wait for the next piece of the body; may be changed while reading."""
        self.truncated = False
        """`read` stopped at its limit."""
        self._connection = connection
        self._keep = keep
        self._open = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece, with any compression undone. Raises HttpError where it breaks off."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        try:
            if encoding in ("", "identity"):
                while self._open and (data := await self._connection.piece(self.idle_timeout)) is not None:
                    yield data
            else:
                async for data in self._decoded(encoding):
                    yield data
            if self._open:
                self._open = False
                self._keep()
        except GeneratorExit:
            raise  # left before the end: `finish` may read the rest, and the caller closes the answer
        except BaseException:
            self.close()
            raise

    async def _decoded(self, encoding: str) -> AsyncIterator[bytes]:
        decoder = Decoder(encoding)
        empty = True
        while self._open and (data := await self._connection.piece(self.idle_timeout)) is not None:
            empty = False
            if decoder.ended:
                self.close()  # padding, which may have no end
                return
            for piece in decoder.decode(data):
                yield piece
        if self._open and not empty:
            decoder.finish()

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body; or its first `limit` bytes, with `truncated` set and the socket closed."""
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
        """Nothing more is wanted: reads a last few bytes so that the connection can be kept, or closes it."""
        self.idle_timeout = within
        try:
            await self.read(limit=0)
        except HttpError:
            pass

    def close(self) -> None:
        """Closes the socket, unless the answer was read to its end."""
        if self._open:
            self._open = False
            self._connection.abort()

    def __enter__(self) -> "Response":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


PIECE = 1 << 16


class Decoder:
    """gzip or deflate."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ProtocolBroken(
                f"the server sent an answer encoded as {encoding!r}, which was not asked for",
            )
        # 32 added: zlib finds out itself whether it is gzip or zlib.
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._raw = encoding == "deflate"
        """Some servers mean bare deflate data; known after the first piece."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            yield self._piece(data)
            data = self._zlib.unconsumed_tail

    def _piece(self, data: bytes) -> bytes:
        try:
            piece = self._zlib.decompress(data, PIECE)
        except zlib.error as error:
            if not self._raw:
                raise ProtocolBroken(f"the answer cannot be decompressed: {error}") from None
            self._raw = False
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._piece(data)
        self._raw = False
        return piece

    @property
    def ended(self) -> bool:
        """Whether the end was reached; what follows does not belong to it."""
        return self._zlib.eof

    def finish(self) -> None:
        if not self._zlib.eof:
            raise ProtocolBroken("the compressed answer ended before its end")
