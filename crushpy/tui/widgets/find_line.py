"""The line in which one types what to find in the transcript."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from crushpy.tui.widgets.fields import LineField


class FindLine(LineField):
    DEFAULT_CSS = """
    FindLine, FindLine:focus { background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "end_find", "End", show=False)]

    class Ended(Message):
        """Nothing is to be found any more."""

    def __init__(self) -> None:
        super().__init__(placeholder="Find in the transcript. Enter, then n and N go on. Esc ends.")

    def action_end_find(self) -> None:
        self.post_message(self.Ended())
