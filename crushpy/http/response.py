"""A response: its head, and its body as it arrives, decompressed."""

import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import h11

from crushpy.http.common import HttpError, ProtocolBroken
from crushpy.http.connection import Connection

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
