"""What every kind of database offers for finding messages by their words."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from crushpy.messages import Data


class IndexedText(Data, frozen=True):
    """A message as the index has it."""

    number: int
    words: str
    """Everything it can be found by."""
    parts: str
    """Its different words, as far as they can be found by a part."""


class FullText(ABC):
    """The index itself: which message holds which words. Lives on the storage thread."""

    @abstractmethod
    def add(self, texts: Sequence[IndexedText]) -> None:
        """Inside a transaction. None of them is in it."""

    @abstractmethod
    def remove(self, text: IndexedText) -> None:
        """Inside the transaction that deletes the message; `text` is what was added."""

    @abstractmethod
    def merge_some(self, *, begin: bool) -> bool:
        """Does a part of the work that makes removed words leave the disk. False where none is left."""

    @abstractmethod
    def words_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        """A query of the numbers of messages with the words of `term`; its values go under `name`."""

    @abstractmethod
    def parts_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        """The same for messages in which `term` may be a part of words; it has three letters at least."""

    @abstractmethod
    def ranked(self, terms: Sequence[str], values: dict[str, Any]) -> str:
        """A query of `number` and `rank` (less is better) of the messages with any of these terms."""
