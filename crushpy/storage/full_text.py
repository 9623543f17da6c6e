"""What every kind of database offers for finding messages by their words."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from crushpy.core.messages import Data

LETTERS = re.compile(r"[^\W_]")
"""What a term must have one of to be found by its words."""


class IndexedText(Data, frozen=True):
    """A message as the index has it."""

    number: int
    words: str
    """Everything it can be found by."""
    parts: str
    """Its different words, as far as they can be found by a part."""


class FullText(ABC):
    """The index itself: which message holds which words. Lives on the storage thread."""

    whole_words_first: bool
    """Whether whole words are found so much sooner that parts of words are better looked for after them."""

    @abstractmethod
    def add(self, texts: Sequence[IndexedText]) -> None:
        """Inside a transaction. None of them is in it."""

    @abstractmethod
    def remove(self, texts: Sequence[IndexedText]) -> None:
        """Inside the transaction that deletes the messages; `texts` are what was added."""

    @abstractmethod
    def merge_some(self, *, begin: bool) -> bool:
        """Does a part of the work that makes removed words leave the disk. False where none is left."""

    @abstractmethod
    def messages_with(self, name: str, term: str, values: dict[str, Any], *, whole: bool) -> str | None:
        """A query of the numbers of all messages in which `term` stands, and of few others.

        Its values go under names that begin with `name`. None where the index cannot tell: each message is
        looked at then. Of one or two plain letters and digits only the beginning of words is looked for. With
        `whole`, where that is sooner found, only messages in which its words stand as they are.
        """

    @abstractmethod
    def ranking(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        """What `message` is joined with (its left side), and the rank of a message then: less is better,
        and NULL where it has none.

        Each was asked for just before (`messages_with`), and has a letter or a digit.
        """
