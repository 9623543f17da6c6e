"""How much of one reply is taken: a server that never stops must not fill the memory."""

from crushpy.llm.errors import ReplyTooLarge
from crushpy.llm.protocol import CallPiece, Piece, TextPiece, ThinkingPiece

MOST_TEXT = 16_000_000
"""Letters of text and thinking: ten times what the longest replies have."""
MOST_ARGUMENTS = 16_000_000
"""Letters of all its calls' arguments."""
MOST_CALLS = 20_000
MOST_BYTES = 1_000_000_000
"""Bytes of the stream, compression undone."""


class ReplyMeter:
    """Counts one reply as it comes. Raises ReplyTooLarge."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._bytes = 0
        self._text = 0
        self._arguments = 0
        self._calls: set[int] = set()

    def stream(self, data: bytes) -> None:
        self._bytes += len(data)
        self._check(self._bytes, MOST_BYTES, "bytes")

    def pieces(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, TextPiece | ThinkingPiece):
                self._text += len(piece.text)
            elif isinstance(piece, CallPiece):
                self._arguments += len(piece.args)
                self._calls.add(piece.index)
        self._check(self._text, MOST_TEXT, "characters of text")
        self._check(self._arguments, MOST_ARGUMENTS, "characters of arguments")
        self._check(len(self._calls), MOST_CALLS, "tool calls")

    def _check(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise ReplyTooLarge(f"the reply of {self._server} was ended: it has more than {most:,} {what}")
