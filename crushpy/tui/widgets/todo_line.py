"""The todos in one line above the prompt until all are done; a click or a command opens the list."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from crushpy.core.messages import Todo
from crushpy.security.sanitize import one_line

MOST_ROWS = 10
MARKS = {"pending": "○", "in_progress": "◐", "completed": "✓"}


class TodoLine(Static):
    """Takes no space if there are no open todos."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TodoLine {
        height: auto; max-height: 11; display: none; padding: 0 1; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._todos: tuple[Todo, ...] = ()
        self._opened = False

    def show(self, todos: Sequence[Todo]) -> None:
        self._todos = tuple(todos)
        self.display = any(todo.status != "completed" for todo in self._todos)
        self._draw()

    def toggle(self) -> bool:
        """Opens or folds the list; False if there is none."""
        self._opened = not self._opened
        self._draw()
        return self.display

    def on_click(self) -> None:
        self.toggle()

    def _draw(self) -> None:
        if self.display:
            self.update(Content("\n").join([self._headline(), *(self._rows() if self._opened else ())]))

    def _headline(self) -> Content:
        done = sum([todo.status == "completed" for todo in self._todos])
        now = next((todo for todo in self._todos if todo.status == "in_progress"), None)
        upcoming = next((todo for todo in self._todos if todo.status == "pending"), None)
        word, todo = ("now", now) if now is not None else ("next", upcoming)
        fold = "▾" if self._opened else "▸"
        about = f" · {word}: {one_line(todo.text)}" if todo is not None else ""
        return Content(f"{fold} {done}/{len(self._todos)}{about}")

    def _rows(self) -> list[Content]:
        """The rows to show; if there are too many, completed ones are left out first."""
        todos = list(self._todos)
        while len(todos) > MOST_ROWS and todos[0].status == "completed":
            todos.pop(0)
        return [Content(f"  {MARKS[todo.status]} {one_line(todo.text)}") for todo in todos[:MOST_ROWS]]
