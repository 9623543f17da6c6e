"""Passes every event on to all who listen, in order."""

from collections.abc import Callable

from crushpy.events import Event, Notice, PromptCommitted

Listener = Callable[[Event], None]


class EventBus:
    """Notices wait until a new session's first events, `session` and `prompt`, have passed."""

    def __init__(self, *, opened: bool) -> None:
        self._listeners: list[Listener] = []
        self._opened = opened
        self._held_back: list[Notice] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Every event from now on goes to `listener`. Returns the way to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice) and not self._opened:
            self._held_back.append(event)
            return
        for listener in tuple(self._listeners):
            listener(event)
        if isinstance(event, PromptCommitted) and not self._opened:
            self._opened = True
            for notice in self._held_back:
                self(notice)
