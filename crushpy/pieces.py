"""Text that comes in small pieces: many are joined to one, since each takes more room than the text in it."""

PIECES = 512


class Pieces(list[str]):
    """A list of texts to be joined. Which piece ends where does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = 0
        """How many at the beginning are large already."""
        self.characters = 0
        """Of all that were appended."""

    def append(self, text: str) -> None:
        super().append(text)
        self.characters += len(text)
        self._joined = min(self._joined, len(self) - 1)
        if len(self) - self._joined > PIECES:
            self[self._joined :] = ["".join(self[self._joined :])]
            self._joined = len(self)
