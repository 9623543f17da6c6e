"""An answer: its head, and its body as it comes."""

from collections.abc import AsyncIterator, Callable

import h11

from crushpy.http.connection import Connection
from crushpy.http.errors import HttpError


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
            raise  # left before the end: `finish` may read the rest, and whoever holds the answer closes it
        except BaseException:
            self.close()
            raise

    async def _decoded(self, encoding: str) -> AsyncIterator[bytes]:
        from crushpy.http.decoding import Decoder

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
