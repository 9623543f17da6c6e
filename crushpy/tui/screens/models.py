"""The model picker: windows, prices, missing keys, servers on this machine."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from textual import events, on
from textual.binding import Binding
from textual.content import Content

from crushpy.llm.model_listing import (
    ListedModel,
    ask_servers,
    cached_lists,
    format_price,
    format_window,
    list_local_models,
    list_models,
    local_model_commands,
)
from crushpy.llm.protocol import ModelInfo
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import Settings
from crushpy.tui.notify import tell
from crushpy.tui.screens.overlay import ListScreen, in_worker, spread

MAX_UNAVAILABLE_ROWS = 300
"""Models shown that cannot be used yet; a longer filter narrows them down."""
MIN_COLUMNS_FOR_PRICES = 60

AS_TYPED = "as typed"
"""Instead of how a model can be used: no known model has the name."""


class ModelsScreen(ListScreen[ListedModel, str | None]):
    """Returns the name of a model, or None."""

    BINDINGS = [
        Binding("enter", "take", "Use"),
        Binding("f5", "refresh", "Query servers"),
        Binding("escape", "close", "Close"),
    ]
    heading = "Models"
    placeholder = "type to filter all known models, or enter any name: provider/model"

    def __init__(self, settings: Settings, current: str) -> None:
        super().__init__()
        self._settings = settings
        self._current = current
        self.is_loading = True
        self._known: list[ListedModel] = []
        self._local: list[ListedModel] = []
        self._hidden = 0
        """Models that match and are not shown."""

    # --- rows --------------------------------------------------------------------------------------------

    @on(events.Mount)
    @in_worker("load")
    async def _load(self) -> None:
        lists = await asyncio.to_thread(cached_lists, self._settings)
        self._known = await asyncio.to_thread(list_models, self._settings, lists)
        self.is_loading = False
        self.refresh_rows()
        self._local = await list_local_models(self._settings)
        if self._local:
            self.refresh_rows()

    @in_worker("query")
    async def action_refresh(self) -> None:
        lists = await ask_servers(self._settings, refresh=True)
        self._known = await asyncio.to_thread(list_models, self._settings, lists)
        self.refresh_rows()
        for listed in lists:
            if listed.failure:
                tell(self, f"{listed.provider} could not be queried: {listed.failure}", "warning")
        if answered := [listed.provider for listed in lists if not listed.failure]:
            tell(self, f"Models updated from {', '.join(answered)}.")
        if not lists:
            tell(self, "There is no server to query: no key and no address is set (see /connect).")

    def row_text(self, row: ListedModel) -> str:
        return f"{row.info.name} {row.how}"

    def filter_rows(self) -> Sequence[ListedModel]:
        """Without a filter the available models, with one all that match it."""
        served = {offer.info.name for offer in self._local}
        everything = [*self._local, *(offer for offer in self._known if offer.info.name not in served)]
        self.all_rows = everything
        matching = super().filter_rows()
        available = [offer for offer in matching if offer.ready or offer.api_base]
        rest = [offer for offer in matching if not offer.ready and not offer.api_base]
        rest.sort(key=lambda offer: not offer.how.startswith("set "))  # only a variable is missing
        typed = self.filter_text.strip()
        shown = rest[:MAX_UNAVAILABLE_ROWS] if typed else []
        self._hidden = len(rest) - len(shown)
        self._show_heading()
        is_new = "/" in typed and " " not in typed and all(model.info.name != typed for model in everything)
        return [*available, *shown, *([ListedModel(ModelInfo(typed), True, AS_TYPED)] if is_new else [])]

    def cursor_after_filter(self, previous: ListedModel | None) -> int:
        names = [row.info.name for row in self.shown]
        moved_to = previous.info.name if previous is not None and self.rows.highlighted else ""
        return next((names.index(name) for name in (moved_to, self._current) if name in names), 0)

    def _show_heading(self) -> None:
        ready = sum(offer.ready for offer in self.all_rows)
        text = "loading …" if self.is_loading else f"{ready} available"
        if self._hidden:
            text += f", {self._hidden:,} more are known"
        self.set_heading("Models", text)

    def draw_row(self, row: ListedModel, width: int) -> Content:
        info = row.info
        if row.how == AS_TYPED:
            return Content.assemble("  use ", (one_line(info.name), "bold"), (f" {AS_TYPED}", "$text-muted"))
        mark = "● " if info.name == self._current else "  "
        left = Content.assemble(mark, (one_line(info.name), "" if row.ready else "$text-muted"))
        if not row.ready:
            left += Content.styled(f"  {one_line(row.how)}", "$warning")
        window = format_window(info.context_window) + ("?" if info.source == "default" else "")
        if width < MIN_COLUMNS_FOR_PRICES:
            return spread(left, Content.styled(f"{window:>6}", "$text-muted"), width)
        figures = f"{window:>6} {format_price(info.input_cost):>6} {format_price(info.output_cost):>6}"
        thinks = "thinks " if info.thinking else "       "
        return spread(left, Content.styled(f"{thinks}{figures}", "$text-muted"), width)

    def describe_row(self, row: ListedModel) -> Content:
        if row.how == AS_TYPED:
            return Content("No model of that name is known; its window is a guess, marked with ?")
        info = row.info
        guess = " (a guess)" if info.source == "default" else ""
        words = [
            f"window {info.context_window or 0:,}{guess}",
            f"{format_price(info.input_cost)} in, {format_price(info.output_cost)} out "
            "($ per million tokens)",
            one_line(row.how),
        ]
        words += [] if info.tools else ["no tools: chat only"]
        about = Content("; ".join(words))
        return about + Content(f"\n{ways_to_use(row)}") if row.api_base and not row.ready else about

    def empty_text(self) -> str:
        missing = Counter(offer.how for offer in self._known if not offer.ready)
        steps = [how for how, _ in missing.most_common() if how.startswith("set ")][:4]
        return "No model matches. " + ("; ".join(map(one_line, steps)) if not self.filter_text else "")

    # --- actions -----------------------------------------------------------------------------------------

    def choose(self, row: ListedModel) -> None:
        if not row.ready:
            way = "two ways to use it are shown below" if row.api_base else f"{row.how} (see /connect)"
            tell(self, f"{row.info.name} is not available: {way}.", "warning")
            return
        self.dismiss(row.info.name)


def ways_to_use(local: ListedModel) -> str:
    """How to use a model of a server on this machine that is not set up."""
    once, for_good = local_model_commands(local)
    return f"once: {once}\npermanently: {for_good}"
