"""Remembers of a list of tasks what the result of a run tells: how each ended, and the last report."""

from crushpy.core.events import Event, ListedTaskChanged, MessageCommitted, TaskEvent


class TaskEnds:
    def __init__(self) -> None:
        self._stands: dict[str, ListedTaskChanged] = {}
        self._said: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case ListedTaskChanged():
                self._stands[event.name] = event
            case TaskEvent(name, MessageCommitted() as message) if message.text.strip():
                self._said[name] = message.text
            case _:
                pass

    @property
    def all(self) -> tuple[ListedTaskChanged, ...]:
        """In the order of the list, as each stands now."""
        return tuple(sorted(self._stands.values(), key=lambda task: task.number))

    @property
    def text(self) -> str:
        """What the last task of the list said that was done in this run."""
        done = [task.name for task in self.all if task.state == "done" and task.name in self._said]
        return self._said[done[-1]] if done else ""
