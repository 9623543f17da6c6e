"""Passes every event on to all who listen, in order."""

from collections.abc import Callable

from crushpy.core.events import Event, Notice, PromptCommitted

Listener = Callable[[Event], None]


class EventBus:
    """Notices wait for a front end, and most for a new session's first events, `session` and `prompt`."""

    def __init__(self, *, opened: bool) -> None:
        self._listeners: list[Listener] = []
        self._opened = opened
        self._joined = False
        self._held_back: list[Notice] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Every event from now on goes to `listener`. Returns the way to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def join(self, front_end: Listener) -> Callable[[], None]:
        """The same for who shows them to a person: hears of what came up before, too."""
        leave = self.subscribe(front_end)
        self._joined = True
        self._tell_held_back()
        return leave

    def _tell_held_back(self) -> None:
        if self._joined and self._opened:
            held_back, self._held_back = self._held_back, []
            for notice in held_back:
                self(notice)

    def at_once(self, notice: Notice) -> None:
        """Tells what a person should know while the first prompt itself is still waiting."""
        if self._joined:
            self._tell(notice)
        else:
            self._held_back.append(notice)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice) and not (self._opened and self._joined):
            self._held_back.append(event)
            return
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)
        if isinstance(event, PromptCommitted) and not self._opened:
            self._opened = True
            self._tell_held_back()
