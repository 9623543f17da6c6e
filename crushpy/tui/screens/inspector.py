"""The context inspector: what fills the model's window, by kind and part by part."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.reactive import var
from textual.widgets import Static

from crushpy.context.edits import (
    SUPERSEDED,
    ContextEdit,
    EditEffect,
    EditKind,
    effect_words,
    offer_words,
    undoing,
)
from crushpy.context.forecast import forecast_lines
from crushpy.context.inspect import (
    FREE,
    WINDOW_PARTS,
    Inspection,
    RequestMade,
    Row,
    dropped_words,
    part_of,
    window_parts,
)
from crushpy.core.messages import short_count
from crushpy.security.sanitize import one_line
from crushpy.tui.items import NOT_WHOLE
from crushpy.tui.notify import dismiss_toasts, tell
from crushpy.tui.screens.overlay import OverlayScreen, in_worker, spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.context_strip import THRESHOLD, draw_strip, glyphs, part_style, strip_cells
from crushpy.tui.widgets.key_bar import flow
from crushpy.tui.widgets.row_list import RowList

EIGHTHS = " ▁▂▃▄▅▆▇█"
CACHED = "▒"
MARK = "▼"
LINE = "╌"
AXIS_COLUMNS = 7
"""Columns at the left for the figures."""
MIN_CHART_ROWS = 3
MAX_REQUEST_COLUMNS = 6
"""Columns that one request takes at most."""


def window_chart(
    requests: Sequence[RequestMade], window: int, width: int, height: int, threshold: float | None = None
) -> Content:
    """The size of each request over time, with boundaries and the threshold. Empty if nothing was sent."""
    columns = _columns(requests, max(1, width - AXIS_COLUMNS))
    if not columns or window <= 0 or height < MIN_CHART_ROWS:
        return Content("")
    top = max(window, *(column.tokens for column in columns))
    limit = round(threshold * window / top * height) if threshold is not None else -1
    marks = "".join(MARK if column.opens else " " for column in columns)
    rows = [Content.assemble(" " * AXIS_COLUMNS, (marks, "$accent"))]
    for level in range(height, 0, -1):
        label = short_count(top) if level == height else "0" if level == 1 else ""
        pieces = [_cell(column, level, top, height, line=level == limit) for column in columns]
        rows.append(Content.assemble((f"{label:>{AXIS_COLUMNS - 1}} ", "$text-muted"), *_runs(pieces)))
    words = f"{len(requests)} requests · {CACHED} cached · {MARK} compacted"
    words += f" · {LINE} threshold {threshold:.0%}" if threshold is not None else ""
    rows.append(Content.styled(f"{'':{AXIS_COLUMNS}}{words}"[:width], "$text-muted"))
    return Content("\n").join(rows)


def _cell(column: RequestMade, level: int, top: int, height: int, *, line: bool) -> tuple[str, str]:
    filled = column.tokens / top * height - (level - 1)
    if filled <= 0:
        return (LINE, "$warning") if line else (" ", "")
    if column.cached / top * height >= level:
        return CACHED, "$success"
    return EIGHTHS[max(1, min(8, round(filled * 8)))], "$accent"


def _runs(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    runs = groupby(pieces, key=lambda piece: piece[1])
    return [("".join([text for text, _ in run]), style) for style, run in runs]


def _columns(requests: Sequence[RequestMade], width: int) -> list[RequestMade]:
    """A column for each request; if there are too many, each column shows the largest of several."""
    many = len(requests)
    columns = many * min(MAX_REQUEST_COLUMNS, width // many) if 0 < many <= width else min(many, width)
    found: list[RequestMade] = []
    for column in range(columns):
        start = column * many // columns
        some = requests[start : max(start + 1, (column + 1) * many // columns)]
        fullest = max(some, key=lambda row: row.tokens)
        begins = columns <= many or column * many % columns == 0
        found.append(RequestMade(fullest.tokens, fullest.cached, begins and any(row.opens for row in some)))
    return found


MESSAGES = ("user", "assistant", "tool output")
TOOL = "tool"
MIN_ROWS_FOR_TIME_CHART = 30
"""Terminal rows from which the chart over time is shown by default."""
TIME_CHART_ROWS = 6
MAX_FORECAST_ROWS = 2


def _grouped(rows: Sequence[Row]) -> list[Row]:
    """The rows, with all tools as one."""
    tools = [row for row in rows if row.kind == TOOL]
    if len(tools) < 2:
        return list(rows)
    tokens, cached = sum(row.tokens for row in tools), all(row.cached for row in tools)
    group = Row(TOOL, f"{len(tools)} tools", tokens, cached)
    return [group, *(row for row in rows if row.kind != TOOL)]


def _place(row: Row) -> tuple[str, str, str]:
    return row.message_id, row.kind, "" if row.message_id or row.kind == TOOL else row.name


def _ordered(by_kind: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(by_kind.items(), key=lambda pair: list(WINDOW_PARTS).index(part_of(pair[0])))


@dataclass(frozen=True)
class ContextControls:
    """What the inspector can do with the context of a running conversation."""

    pin: Callable[[str], Awaitable[str]]
    """Pins a message by its id, and returns what to tell the user. May raise CrushpyError."""
    edit: Callable[..., Awaitable[EditEffect]]
    """Makes edits (`ContextEdit`); with `dry_run` only returns their effect. May raise CrushpyError."""
    requests: Callable[[], Awaitable[Sequence[RequestMade]]]
    """The sizes of the requests sent so far."""
    rules: Callable[[], Awaitable[None]]
    """Shows the standing rules, to pin or drop them. May raise CrushpyError."""
    count: Callable[[], Awaitable[None]]
    """Replaces estimates by counts: loading the vocabulary takes half a second the first time."""


class InspectorScreen(OverlayScreen[None]):
    """`read` returns the current figures; `thresholds` are shares of the window with their names.

    An edit takes two presses: the first shows its effect, the second applies it.
    """

    DEFAULT_CSS = """
    InspectorScreen .title { text-style: none; }
    InspectorScreen #figures { height: auto; padding: 0 1; margin-bottom: 1; }
    InspectorScreen.-short #figures { margin-bottom: 0; }
    InspectorScreen.-tiny #figures { display: none; }
    """
    BINDINGS = [
        Binding("s", "toggle('largest_first')", "Largest first or in order"),
        Binding("k", "toggle('by_kind')", "Kinds or parts"),
        Binding("t", "toggle('tools_apart')", "Tools"),
        Binding("w", "over_time", "Window over time"),
        Binding("p", "pin", "Pin"),
        Binding("l", "rules", "Rules"),
        Binding("r", "refresh_figures", "Refresh"),
        Binding("d", "edit('drop')", "Drop or restore"),
        Binding("a", "drop_repeats", "Drop with repeats"),
        Binding("c", "edit('shorten')", "Shorten"),
        Binding("u", "undo", "Undo"),
        Binding("o", "shorten_old_views", "Old views"),
        Binding("escape", "close", "Close"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (16, "-short"), (20, "-tall")]
    largest_first: var[bool] = var(True, init=False)
    by_kind: var[bool] = var(False, init=False)
    tools_apart: var[bool] = var(False, init=False)
    """Each tool on its own row, or all in one."""

    def __init__(
        self,
        read: Callable[[], Inspection],
        method: str,
        thresholds: Mapping[str, float],
        controls: ContextControls,
        part: str = "",
    ) -> None:
        """The cursor starts in `part` of the window."""
        super().__init__()
        self._part = part
        self._controls = controls
        self._read = read
        self._method = method
        self._thresholds = thresholds
        self._inspection = read()
        self._rows: list[Row] = []
        self._requests: Sequence[RequestMade] = ()
        self._effects: list[EditEffect] = []
        """Of the edits made here, the last one last."""
        self._over_time: bool | None = None
        """Whether the chart over time is shown; None: if there is room for it."""

    def compose_body(self) -> ComposeResult:
        yield Static(id="figures")
        yield RowList()

    def on_mount(self) -> None:
        self.call_after_refresh(self._load)

    @in_worker("load")
    async def _load(self) -> None:
        """What is not needed for the first frame."""
        self._requests = await self._controls.requests()
        self._show()
        await self._controls.count()
        self.action_refresh_figures()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        inspection, width = self._inspection, max(1, self._width)
        view = "by kind" if self.by_kind else "largest first" if self.largest_first else "in order"
        detail = f"compaction {one_line(self._method)}  {view}"
        self.set_heading(f"Context  {inspection.budget.words}", detail)
        forecast = inspection.forecast
        lines = forecast_lines(forecast) if forecast and forecast.turns else []
        views = inspection.old_views
        lines += [f"{offer_words(views)}: press o to shorten them"] if views.message_ids else []
        words = " · ".join([*dropped_words(inspection), *lines])
        told = Content.styled(words, "$text-muted").wrap(width)[:MAX_FORECAST_ROWS] if words else []
        parts = window_parts(inspection.by_kind(), inspection.budget)
        cells = strip_cells(parts, width, tuple(self._thresholds.values()))
        strip = draw_strip(cells, coloured=not app_of(self).no_color)
        legend = self._legend().split("\n")[: 2 if self.has_class("-short") else 5]
        shown = [*told, *self._time_chart(width), strip, *legend]
        self.query_one("#figures", Static).update(Content("\n").join(shown))
        self._fill()

    def _time_chart(self, width: int) -> list[Content]:
        high = app_of(self).size.height >= MIN_ROWS_FOR_TIME_CHART
        if len(self._requests) < 2 or not (high if self._over_time is None else self._over_time):
            return []
        threshold = self._thresholds.get("auto", self._thresholds.get("fallback"))
        rows, window = TIME_CHART_ROWS if high else MIN_CHART_ROWS, self._inspection.budget.window
        return [window_chart(self._requests, window, width, rows, threshold)]

    def _legend(self) -> Content:
        inspection = self._inspection
        by_kind = inspection.by_kind()
        labels = [
            Content.assemble(self._mark(kind), f" {kind} {short_count(size)} {self._share(size)}")
            for kind, size in _ordered(by_kind)
        ]
        free, left = (self._glyphs[FREE], f"${part_style(FREE)}"), short_count(inspection.budget.remaining)
        labels.append(Content.assemble(free, (f" free {left}", "$text-muted")))
        for name, share in sorted(self._thresholds.items()):
            labels.append(Content(f"{self._glyphs[THRESHOLD]} {share:.0%} {name}"))
        if inspection.budget.clamped:
            counted = short_count(sum(by_kind.values()))
            labels.append(Content.styled(f"over the window: {counted} counted", "$error"))
        return flow(labels, self._width)

    @property
    def _width(self) -> int:
        """Columns within frame and padding."""
        return app_of(self).size.width - (4 if self.has_class("-tall") else 2)

    @property
    def _glyphs(self) -> dict[str, str]:
        drawn = glyphs(coloured=not app_of(self).no_color)
        return {part: character.replace("▀", "■") for part, character in drawn.items()}

    def _mark(self, kind: str) -> tuple[str, str]:
        part = part_of(kind)
        return self._glyphs[part], f"${part_style(part)}"

    def _share(self, tokens: int) -> str:
        return f"{tokens * 100 / self._inspection.budget.window:.1f}%"

    def _fill(self) -> None:
        if self.by_kind:
            rows = [Row(kind, "", size, False) for kind, size in _ordered(self._inspection.by_kind())]
        else:
            rows = list(self._inspection.rows) if self.tools_apart else _grouped(self._inspection.rows)
        here, wanted, self._part = self._current, self._part, ""
        if self.largest_first:  # an edited message keeps its place
            rows.sort(key=lambda row: -max(row.tokens, row.whole_tokens))
        self._rows = rows
        found = (
            number
            for number, row in enumerate(self._rows)
            if (part_of(row.kind) == wanted if wanted else here and _place(row) == _place(here))
        )
        at = next(found, self.query_one(RowList).highlighted)
        self.query_one(RowList).show(len(rows), self._draw, at)

    def _draw(self, number: int, width: int) -> Content:
        row = self._rows[number]
        if row.state == "dropped":
            line = f"  {row.whole_tokens:>8,} {'':6}  {row.kind}  {one_line(row.name)}"
            words = Content.styled(NOT_WHOLE[row.state], "$warning")
            return spread(Content.styled(line, "strike $text-muted"), words, width)
        size = f"{row.tokens:>9,} {self._share(row.tokens):>6}"
        left = Content.assemble(self._mark(row.kind), f" {size}  {row.kind}")
        if row.name and row.name not in (row.kind, "system prompt"):
            left += Content.assemble("  ", (one_line(row.name), "$text-muted"))
        if row.state:
            words = f"{NOT_WHOLE[row.state]}, whole {row.whole_tokens:,}"
            return spread(left, Content.styled(words, "$warning"), width)
        return spread(left, Content.styled("cached" if row.cached else "", "$success"), width)

    watch_largest_first = watch_by_kind = _show

    def watch_tools_apart(self) -> None:
        self.by_kind = False  # which has one row for all tools
        self._show()

    def action_over_time(self) -> None:
        self._over_time = not self._time_chart(self._width)
        self._show()

    @property
    def _current(self) -> Row | None:
        return self._rows[self.query_one(RowList).highlighted] if self._rows else None

    @in_worker("pin")
    async def action_pin(self) -> None:
        row = self._current
        if row is None or row.kind not in MESSAGES:
            tell(self, "Only messages can be pinned.", "warning")
            return
        tell(self, await self._controls.pin(row.message_id))

    @in_worker("rules")
    async def action_rules(self) -> None:
        await self._controls.rules()
        self.action_refresh_figures()

    def action_refresh_figures(self) -> None:
        self._inspection = self._read()
        self._show()

    # --- edits -------------------------------------------------------------------------------------------

    def action_edit(self, kind: EditKind) -> None:
        row = self._current
        if row is None or not row.message_id:
            tell(self, "Only messages can be edited: the system prompt and tools are always sent.", "warning")
            return
        dropped = kind == "drop" and row.state == "dropped"
        self._apply(ContextEdit("restore" if dropped else kind, row.message_id))

    def action_undo(self) -> None:
        """Takes the last edit back, wherever the cursor is; if none was made here, restores the message."""
        if self._effects:
            self._take_back(self._effects.pop())
        else:
            self.action_edit("restore")

    @in_worker("edit")
    async def _take_back(self, effect: EditEffect) -> None:
        self._cancel()
        done = await self._controls.edit(undoing(effect))
        self.action_refresh_figures()
        tell(self, f"Undone: {effect_words(done)}.")

    def action_drop_repeats(self) -> None:
        """Drops a message and those that repeat its text."""
        if row := self._current:
            self._apply(ContextEdit("drop", row.message_id, also=True))

    def action_shorten_old_views(self) -> None:
        self._apply(ContextEdit("shorten", SUPERSEDED))

    @in_worker("edit")
    async def _apply(self, edit: ContextEdit) -> None:
        confirmed = self.confirming == repr(edit)
        self._cancel()
        effect = await self._controls.edit([edit], dry_run=not confirmed)
        if confirmed:
            self._effects.append(effect)
            self.action_refresh_figures()
            tell(self, f"Done: {effect_words(effect)}.")
        else:
            more = " (a drops them, too)" if effect.repeated and not effect.also else ""
            self.confirm(repr(edit), f"{effect_words(effect)}{more}.\nPress again to confirm, Esc to cancel.")

    @on(RowList.Highlighted)
    def _cancel(self) -> bool:
        """Cancels an edit that waits for confirmation; False if there is none."""
        asked, self.confirming = self.confirming, ""
        return bool(asked) and dismiss_toasts(self)

    def action_close(self) -> None:
        if not self._cancel():
            self.dismiss(None)
