"""The status bar: model and method, folder, figures of the context; and the chip with the mode."""

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.core.access import Mode
from crushpy.core.defaults import DEFAULT_THRESHOLD
from crushpy.core.messages import Data, counted, short_count
from crushpy.security.sanitize import clean
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.render.canvas import fit

WARN_AT = DEFAULT_THRESHOLD
FULL_AT = 0.9
ASKS = "asks you"


class Reading(Data, frozen=True):
    """The figures of the window, from the engine: for the bar and the context strip."""

    used: int = 0
    window: int = 0
    estimated: bool = True
    window_known: bool = True
    preparation: str = ""
    """The state of the next compaction: preparing or ready; empty if there is none."""
    parts: dict[str, int] = {}
    """Tokens of each part of the window, and of what is free."""
    thresholds: tuple[float, ...] = ()
    """The share at which the session ends; none if only an overflow ends it."""


class StatusBarState(Data, frozen=True):
    model: str = ""
    method: str = "auto"
    reading: Reading = Reading()
    cost: float = 0.0
    budget: str = ""
    """What is left of it; empty if none is set."""
    asks: bool = False
    """A question waits for the user. The activity line shows what is running."""
    generation: int = 0
    depth: int = 0
    """Open branches that lead to the session."""
    jobs: int = 0
    """Running background jobs."""
    rules: int = 0
    """Standing rules that apply."""
    forecast: str = ""
    """How long the session will last; empty while that is far away."""
    editing: str = ""
    """The mode of vim's keys: INSERT or NORMAL; empty without them."""
    below: int = 0
    """Lines of the transcript below the visible part."""
    folder: str = ""
    branch: str = ""
    line: str = ""
    """The output of the user's own command."""
    warnings: int = 0
    """Warnings about the start; F3 shows them."""
    unconfined: bool = False
    """A sandbox is configured, but none works here."""


def gauge(reading: Reading, *, tokens: bool = True) -> Content:
    """Percent, tokens, and the state of the next compaction. `~` marks an estimate, `?` an unknown window."""
    if not reading.window:
        return Content("")
    share = reading.used / reading.window
    style = "$error" if share >= FULL_AT else "$warning" if share >= WARN_AT else ""
    about, unknown = ("~" if reading.estimated else ""), ("" if reading.window_known else "?")
    percent = f"{about}{reading.used * 100 // reading.window}%" + ("" if tokens else unknown)
    figures = f" {short_count(reading.used)}/{short_count(reading.window)}{unknown}" if tokens else ""
    figures += f" {reading.preparation}" if reading.preparation and tokens else ""
    return Content.styled(f"{percent}{figures}", style)


SHRINKING = (
    *("folder", "folder", "line", "forecast", "rules", "below", "session", "method", "model", "folder"),
    *("line", "model", "session", "gauge", "below", "model", "method", "cost", "budget"),
)
"""The order in which parts are shortened if the line is too narrow."""


def parts(state: StatusBarState) -> dict[str, list[Content]]:
    """The parts of the line in order, each in its forms from the longest to the shortest."""
    model = clean(state.model)
    name = model.rpartition("/")[2]
    below, lines = f"↓ {state.below:,}", counted(state.below, "more line")
    cost = f"${state.cost:.2f}" if state.cost >= 0.01 else "<$0.01"
    warnings = counted(state.warnings, "warning")
    return {
        "asks": _forms(ASKS if state.asks else "", style="$accent"),
        "editing": _forms(state.editing, style="bold"),
        "below": _forms(
            f"↓ {lines} (Ctrl+End)", f"{below} (Ctrl+End)", below, style="$accent", shown=bool(state.below)
        ),
        "model": _forms(model, name, fit(name, 12), ""),
        "method": _forms(f"compaction {state.method}", state.method, ""),
        "folder": _forms(*_where(state), style="$text-disabled"),
        "line": _forms(state.line, fit(state.line, 30), ""),
        "gauge": [gauge(state.reading), gauge(state.reading, tokens=False)],
        "forecast": _forms(state.forecast, "", style="$warning"),
        "jobs": _forms(counted(state.jobs, "job") if state.jobs else "", style="$accent"),
        "rules": _forms(counted(state.rules, "rule") if state.rules else "", ""),
        "session": _forms(f"session {state.generation + 1}" if state.generation else "", ""),
        "depth": _forms(f"branch depth {state.depth}" if state.depth else "", style="$accent"),
        "cost": _forms(cost if state.cost else "", ""),
        "budget": _forms(f"{state.budget} left" if state.budget else "", ""),
        "warnings": _forms(f"{warnings} (F3)" if state.warnings else "", style="$warning"),
        "sandbox": _forms("no sandbox" if state.unconfined else "", style="$warning"),
    }


def _where(state: StatusBarState) -> tuple[str, ...]:
    """Folder and branch, then folder name and branch, then the branch."""
    folder, branch = clean(state.folder), clean(state.branch)
    if not folder:
        return ("",)
    name = folder.rpartition("/")[2] or folder
    forms = [f"{folder} · {branch}", f"{name} · {branch}", branch] if branch else [folder, name]
    return (*dict.fromkeys(forms), "")


def _forms(*texts: str, style: str = "", shown: bool = True) -> list[Content]:
    return [Content.styled(text, style) for text in (texts if shown else ("",))]


PLACES = (
    ("asks", "editing", "below", "model", "method"),
    ("folder", "line"),
    ("gauge", "forecast", "jobs", "rules", "session", "depth", "cost", "budget", "warnings", "sandbox"),
)
"""The parts at the left, in the middle and at the right."""
GAP = 2


def fitted(state: StatusBarState, width: int) -> Content:
    """The line, shortened to `width`; the gauge is kept longest."""
    forms = parts(state)
    for giving_way in SHRINKING:
        shown = [form[0].cell_length for form in forms.values() if form[0]]
        if sum(shown) + GAP * (len(shown) - 1) <= width:
            break
        if len(forms[giving_way]) > 1:
            del forms[giving_way][0]
    return _placed([_joined(forms, names) for names in PLACES], width).truncate(max(1, width), ellipsis=True)


def _joined(forms: dict[str, list[Content]], names: Sequence[str]) -> Content:
    return Content(" " * GAP).join([forms[name][0] for name in names if forms[name][0]])


def _placed(places: list[Content], width: int) -> Content:
    """Aligns the right part to the edge and centres the middle one if there is room."""
    left, middle, right = places
    free = width - left.cell_length - middle.cell_length - right.cell_length
    if not middle:
        return Content.assemble(left, " " * max(GAP if left and right else 0, free), right)
    before = max(GAP if left else 0, min((width - middle.cell_length) // 2 - left.cell_length, free - GAP))
    return Content.assemble(left, " " * before, middle, " " * max(GAP, free - before), right)


class StatusBar(Widget):
    """One line, drawn from `state`."""

    DEFAULT_CSS = "StatusBar { height: 1; padding: 0 1; color: $text-muted; }"

    state: reactive[StatusBarState] = reactive(StatusBarState())

    def render(self) -> Content:
        return fitted(self.state, self.size.width - 2)


COLOURS: dict[str, str] = {
    "ask": "$primary",
    "edits": "$warning",
    "plan": "$secondary",
    "yolo": "$error",
}


class ModeChip(Widget):
    """A click switches the mode."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "ModeChip { width: auto; height: auto; padding: 0 1; color: $text-muted; }"

    mode: reactive[Mode] = reactive("ask", layout=True)
    yolo: reactive[bool] = reactive(False, layout=True)

    def render(self) -> Content:
        word = "yolo" if self.yolo and self.mode != "plan" else self.mode
        return Content.styled(f" {word} ", f"bold $background on {COLOURS[word]}")

    async def on_click(self) -> None:
        await app_of(self).run_action("app.command('switch_mode')")
