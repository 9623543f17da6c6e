"""Bounds the size of one reply, so that a server that never stops cannot fill the memory."""

from crushpy.llm.protocol import CallPiece, Piece, TextPiece, ThinkingPiece

MAX_REPLY_BYTES = 2_000_000
"""UTF-8 bytes of text, thinking and arguments together: four times the longest reply any model gives."""
MAX_REPLY_CALLS = 20_000


class ReplyMeter:
    """Counts one reply as it arrives. The piece that reaches a limit is truncated, and `full` is set."""

    def __init__(self) -> None:
        self._left = MAX_REPLY_BYTES
        self._calls: set[int] = set()
        self.full = False

    def measure(self, piece: Piece) -> Piece:
        """Count a piece. Returns as much of it as the limit allows."""
        match piece:
            case TextPiece():
                return TextPiece(self._fit(piece.text))
            case ThinkingPiece():
                return ThinkingPiece(self._fit(piece.text))
            case CallPiece():
                self._calls.add(piece.index)
                self.full = self.full or len(self._calls) >= MAX_REPLY_CALLS
                return CallPiece(piece.index, piece.id, piece.name, self._fit(piece.args), piece.opaque)
            case _:
                return piece

    def _fit(self, text: str) -> str:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > self._left:
            self.full = True
            text = text.encode("utf-8", "surrogatepass")[: self._left].decode("utf-8", "ignore")
        self._left -= min(size, self._left)
        return text
