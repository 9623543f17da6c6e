"""Undoes a content encoding, piece by piece and bounded, so that a small answer cannot fill the memory."""

import zlib
from collections.abc import Iterator

from crushpy.http.errors import ProtocolBroken

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
        """Whether all of it is undone; what comes after is no part of it."""
        return self._zlib.eof

    def finish(self) -> None:
        if not self._zlib.eof:
            raise ProtocolBroken("the compressed answer ended before its end")
