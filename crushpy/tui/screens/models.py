"""The picker of models: windows, prices, missing keys, servers on this machine, thinking effort."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.core.errors import CrushpyError
from crushpy.llm.model_listing import (
    ListedModel,
    ask_servers,
    cached_lists,
    format_price,
    format_window,
    list_local_models,
    list_models,
)
from crushpy.security.sanitize import one_line
from crushpy.settings import Settings
from crushpy.tui.notify import tell
from crushpy.tui.screens.picker import PickScreen, spread

EFFORT_STEPS = ("", "low", "medium", "high")
MOST = 300
"""Rows of models that nobody can use as things are; the words narrow them down."""
WIDE = 60


class ModelsScreen(PickScreen[str | None]):
    """Returns the name of a model, or None. `choose_effort` is told first where the effort was changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Use"),
        Binding("f3", "effort", "Thinking effort"),
        Binding("f5", "refresh", "Ask servers"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = "type to filter all known models, or a name of your own: provider/model"

    def __init__(
        self, settings: Settings, current: str, choose_effort: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._settings = settings
        self._current = current
        self._choose_effort = choose_effort
        self._effort: str = settings.effort
        self._loading = True
        self._known: list[ListedModel] = []
        self._local: list[ListedModel] = []
        self._shown: list[ListedModel | str] = []
        """Offers, and the name as typed where no offer has it."""

    def on_mount(self) -> None:
        self.head(Content("Models"))
        self.run_worker(self._load(), group="load", exclusive=True)

    # --- what is shown -----------------------------------------------------------------------------------

    async def _load(self) -> None:
        lists = await asyncio.to_thread(cached_lists, self._settings)
        self._known = await asyncio.to_thread(list_models, self._settings, None, lists)
        self._loading = False
        self.typed(self.words)
        try:
            self._local = await list_local_models(self._settings)
        except CrushpyError as error:
            tell(self, str(error), "warning")
            return
        if self._local:
            self.typed(self.words)

    async def _ask(self) -> None:
        """Asks every server what it offers, now that the user wants to know."""
        lists = await ask_servers(self._settings, refresh=True)
        self._known = await asyncio.to_thread(list_models, self._settings, None, lists)
        self.typed(self.words)
        for one in lists:
            if one.failure:
                tell(self, f"{one.provider} could not be asked: {one.failure}", "warning")
        if asked := [one.provider for one in lists if not one.failure]:
            tell(self, f"Asked what they offer: {', '.join(asked)}.")
        if not lists:
            tell(self, "There is nobody to ask: no key and no address is set (see /connect).")

    def typed(self, words: str) -> None:
        """Without words: what can be used. With words: everything they fit."""
        current = self._on_cursor()
        served = {offer.info.name for offer in self._local}
        everything = [*self._local, *(offer for offer in self._known if offer.info.name not in served)]
        wanted = words.casefold().split()
        fitting = [
            offer
            for offer in everything
            if all(word in f"{offer.info.name} {offer.how}".casefold() for word in wanted)
        ]
        ready = [offer for offer in fitting if offer.ready or offer.api_base]
        rest = [offer for offer in fitting if not offer.ready and not offer.api_base]
        rest.sort(key=lambda offer: not offer.how.startswith("set "))  # where one variable is all it takes
        self._shown = [*ready, *(rest[:MOST] if wanted else [])]
        typed = words.strip()
        if "/" in typed and " " not in typed and all(offer.info.name != typed for offer in everything):
            self._shown.append(typed)
        self.rows.show(len(self._shown), self._draw, self._place(current))
        self._say_how_many(everything, len(rest) if not wanted else max(0, len(rest) - MOST))

    def _place(self, current: str) -> int:
        names = [offer if isinstance(offer, str) else offer.info.name for offer in self._shown]
        return next((names.index(name) for name in (current, self._current) if name in names), 0)

    def _on_cursor(self) -> str:
        """What the cursor is on; nothing while the user has not moved it."""
        number = self.rows.highlighted
        if not 0 < number < len(self._shown):
            return ""
        row = self._shown[number]
        return row if isinstance(row, str) else row.info.name

    def _say_how_many(self, everything: list[ListedModel], hidden: int) -> None:
        ready = sum(offer.ready for offer in everything)
        text = f"  {ready} within reach" if not self._loading else "  loading …"
        if hidden:
            text += f", {hidden:,} more are known"
        effort = f"  thinking: {self._effort or 'as the model has it'}"
        self.head(Content.assemble("Models", (text + effort, "$text-muted")))

    def _draw(self, number: int, width: int) -> Content:
        row = self._shown[number]
        if isinstance(row, str):
            return Content.assemble("  use ", (one_line(row), "bold"), (" as typed", "$text-muted"))
        info = row.info
        mark = "● " if info.name == self._current else "  "
        left = Content.assemble(mark, (one_line(info.name), "" if row.ready else "$text-muted"))
        if not row.ready:
            left += Content.styled(f"  {one_line(row.how)}", "$warning")
        window = format_window(info.context_window) + ("?" if info.source == "default" else "")
        if width < WIDE:
            return spread(left, Content.styled(f"{window:>6}", "$text-muted"), width)
        figures = f"{window:>6} {format_price(info.input_cost):>6} {format_price(info.output_cost):>6}"
        thinks = "thinks " if info.thinking else "       "
        return spread(left, Content.styled(f"{thinks}{figures}", "$text-muted"), width)

    def describe(self, number: int) -> Content:
        row = self._shown[number]
        if isinstance(row, str):
            return Content("No model of that name is known; the window is then a guess, shown with a ?.")
        info = row.info
        guess = " (a guess)" if info.source == "default" else ""
        words = [
            f"window {info.context_window or 0:,}{guess}",
            f"{format_price(info.input_cost)} in, {format_price(info.output_cost)} out, "
            "in $ for a million tokens",
            one_line(row.how),
        ]
        words += [] if info.tools else ["no tools: it can only talk"]
        about = Content("; ".join(words))
        if row.api_base and not row.ready:
            from crushpy.llm.model_listing import ways

            provider, _, model = one_line(info.name).partition("/")
            once, for_good = ways(provider, row.api_base, model)
            about += Content(f"\nonce: {once}\nfor good: {for_good}")
        return about

    def nothing(self) -> Content:
        if self._loading:
            return Content("Loading …")
        missing = Counter(offer.how for offer in self._known if not offer.ready)
        wishes = [how for how, _ in missing.most_common() if how.startswith("set ")][:4]
        return Content("No model fits. " + ("; ".join(map(one_line, wishes)) if not self.words else ""))

    # --- what the user does ------------------------------------------------------------------------------

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        row = self._shown[number]
        if isinstance(row, ListedModel) and not row.ready:
            way = "the two ways to use it stand below" if row.api_base else f"{row.how} (see /connect)"
            tell(self, f"{row.info.name} is not within reach: {way}.", "warning")
            return
        name = row if isinstance(row, str) else row.info.name
        if self._choose_effort is not None and self._effort != self._settings.effort:
            self._choose_effort(self._effort)
        self.dismiss(name)

    def action_refresh(self) -> None:
        self.run_worker(self._ask(), group="ask", exclusive=True)

    def action_effort(self) -> None:
        """The next effort: as the model has it, low, medium, high."""
        row = self._shown[self.rows.highlighted] if self._shown else ""
        if isinstance(row, ListedModel) and not row.info.thinking:
            tell(self, f"{row.info.name} has no thinking effort.")
            return
        self._effort = EFFORT_STEPS[(EFFORT_STEPS.index(self._effort) + 1) % len(EFFORT_STEPS)]
        self.typed(self.words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._choose_effort is not None if action == "effort" else True
