"""Caches what was derived from a sequence that mostly grows at its end, such as a session's messages."""

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
State = TypeVar("State")


class PrefixCache(Generic[Item, State]):
    """Each item is processed once while the sequence only grows.

    No explicit invalidation is needed: the state is created again if the sequence no longer begins with the
    items seen before (compared by identity first, so this is fast) or if `key` changed.
    """

    def __init__(self, create_state: Callable[[], State]) -> None:
        self._create_state = create_state
        self._items: tuple[Item, ...] = ()
        self._key: object = None
        self.state = create_state()

    def is_prefix_of(self, items: tuple[Item, ...]) -> bool:
        """Whether `items` begins with everything processed so far, and goes on."""
        return len(items) > len(self._items) and items[: len(self._items)] == self._items

    def advance(self, items: tuple[Item, ...], key: object = None) -> tuple[Item, ...]:
        """Make `state` the one to extend for `items`. Returns the items that it does not cover yet."""
        cached = self._items
        if key != self._key or (items is not cached and items[: len(cached)] != cached):
            self.state = self._create_state()
            self._items = ()
        added = items[len(self._items) :]
        self._items, self._key = items, key
        return added

    def __len__(self) -> int:
        """Number of items processed."""
        return len(self._items)
