"""Asks what to do with a plan: carry it out, with or without questions, or send it back with comments."""

from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.tui.widgets.grace_period import ARMED, GracePeriod

CHOICES: tuple[tuple[str, str], ...] = (
    ("ask", "Carry it out and ask before each change"),
    ("edits", "Carry it out without asking about edits in this folder"),
    ("back", "Send it back: type what should be different"),
)
HINT = "↑↓ Enter or 1 2 3 · Esc stays in plan mode"
WAIT = "Keys count once typing has paused"


class PlanCard(Widget, can_focus=True):
    """Keys decide once typing has paused."""

    DEFAULT_CSS = """
    PlanCard {
        height: auto; border: round $accent; border-title-color: $accent; border-subtitle-color: $text-muted;
        padding: 0 1; margin: 0 1;
    }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
    ]

    chosen: reactive[int] = reactive(0)

    def __init__(self, typed: Callable[[str], None], decide: Callable[[str], object]) -> None:
        """`typed` gets input of the prompt, `decide` ask, edits, back (comments are typed next) or stay."""
        super().__init__()
        self._typed = typed
        self._decide = decide
        self._grace = GracePeriod(self, typed, self._show_hint)
        self.border_title = "The plan is ready"

    def on_mount(self) -> None:
        self.focus()
        self._grace.begin()
        self._show_hint()

    def _show_hint(self) -> None:
        self.border_subtitle = HINT if self.has_class(ARMED) else WAIT

    def render(self) -> Content:
        return Content("\n").join(
            Content.styled(
                f"{'›' if number == self.chosen else ' '} {number + 1}  {words}",
                "bold" if number == self.chosen else "",
            )
            for number, (_, words) in enumerate(CHOICES)
        )

    def action_move(self, step: int) -> None:
        self.chosen = (self.chosen + step) % len(CHOICES)

    def on_key(self, event: events.Key) -> None:
        numbers = {str(number + 1): number for number in range(len(CHOICES))}
        if event.key == "escape":
            event.stop()
            self._decide("stay")
        elif self._grace.decides(event, ("enter", *numbers)):
            event.stop()
            event.prevent_default()
            self._decide(CHOICES[numbers.get(event.key, self.chosen)][0])

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._typed(event.text)

    def on_click(self, event: events.Click) -> None:
        row = event.get_content_offset(self)
        if row is not None and row.y < len(CHOICES):
            event.stop()
            self._decide(CHOICES[row.y][0])
