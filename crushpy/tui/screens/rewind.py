"""The prompts one can go back to, the latest first, each with what changed since."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.core.messages import counted
from crushpy.engine.rewind.rewinder import PointSummary
from crushpy.security.sanitize import one_line
from crushpy.tui.screens.picker import PickScreen, spread

SHOWN_PATHS = 8


class RewindScreen(PickScreen[str]):
    """Returns the id of the prompt to go back to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Go back to before it"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = "type to filter your prompts"

    def __init__(self, points: Sequence[PointSummary], folder: str) -> None:
        super().__init__()
        self._folder = folder.rstrip("/") + "/"
        self._all = list(reversed(points))
        self._shown = self._all

    def on_mount(self) -> None:
        self.head("Rewind: go back to before which prompt?")
        self.typed("")

    def typed(self, words: str) -> None:
        wanted = words.casefold().split()
        self._shown = [
            one for one in self._all if all(word in one.message.text.casefold() for word in wanted)
        ]
        self.rows.show(len(self._shown), self._row)

    def _row(self, number: int, width: int) -> Content:
        point = self._shown[number]
        files = f"{counted(point.files, 'file')} since" if point.files else "no file since"
        return spread(
            Content(one_line(point.message.text) or "(a picture)"),
            Content.styled(files, "$text-muted"),
            width,
        )

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        self.dismiss(self._shown[number].message.id)

    def describe(self, number: int) -> Content:
        paths = self._shown[number].paths
        if not paths:
            return Content("Nothing that was done since changed a file.")
        more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
        named = ", ".join([path.removeprefix(self._folder) for path in paths[:SHOWN_PATHS]])
        return Content(one_line(f"Changed since: {named}{more}"))

    def nothing(self) -> Content:
        return Content("No prompt holds these words.")
