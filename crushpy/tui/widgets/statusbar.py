"""The line that is always in view: model, compaction method, how full the window is, and the cost."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.messages import Data
from crushpy.sanitize import clean

WARN_AT = 0.75
FULL_AT = 0.9
BAR = 10


class Reading(Data, frozen=True):
    """What the gauge shows: the engine's budget, in the words of the screen."""

    used: int = 0
    window: int = 0
    estimated: bool = True
    window_known: bool = True


class State(Data, frozen=True):
    """Everything the line shows."""

    model: str = ""
    method: str = "auto"
    reading: Reading = Reading()
    cost: float = 0.0
    yolo: bool = False
    activity: str = ""
    """What the agent is doing; empty when it waits."""
    generation: int = 0
    below: int = 0
    """Lines of the transcript below what is seen."""


def short(tokens: int) -> str:
    """12,345 as 12k."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 10_000 else f"{tokens // 1_000}k"


def gauge(reading: Reading) -> Content:
    """A bar, percent and tokens. `~` marks an estimate, `?` a window nobody knows."""
    if not reading.window:
        return Content("")
    share = reading.used / reading.window
    style = "$error" if share >= FULL_AT else "$warning" if share >= WARN_AT else "$success"
    filled = min(BAR, round(share * BAR))
    about, unknown = ("~" if reading.estimated else ""), ("" if reading.window_known else "?")
    figures = f" {about}{share:.0%} {short(reading.used)}/{short(reading.window)}{unknown}"
    return Content.assemble(
        Content.styled("━" * filled, style), Content.styled("━" * (BAR - filled), "dim"), figures
    )


class StatusBar(Widget):
    """One line. Data goes down: set `state`."""

    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 1; color: $text-muted; }
    """

    state: reactive[State] = reactive(State())

    def render(self) -> Content:
        state = self.state
        parts: list[Content | str] = []
        if state.activity:
            parts.append(Content.styled(clean(state.activity), "$accent"))
        if state.below:
            parts.append(Content.styled(f"↓ {state.below} more lines (Ctrl+End)", "$accent"))
        parts.append(clean(state.model))
        parts.append(f"compaction {state.method}")
        parts.append(gauge(state.reading))
        if state.generation:
            parts.append(f"session {state.generation + 1}")
        if state.cost:
            parts.append(f"${state.cost:.2f}" if state.cost >= 0.01 else "<$0.01")
        if state.yolo:
            parts.append(Content.styled("yolo", "bold $error"))
        shown = [Content(part) if isinstance(part, str) else part for part in parts if part]
        line = Content("  ").join(shown)
        return line.truncate(max(1, self.size.width - 2), ellipsis=True)
