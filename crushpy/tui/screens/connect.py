"""How to connect a model: for each provider what to set, what is there already, and whether it works."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.engine.probe import probe_model
from crushpy.errors import CrushpyError
from crushpy.llm import catalog, vendors
from crushpy.llm.model_listing import ListedModel, list_local_models
from crushpy.llm.provider_factory import BASE_VARIABLES, openai_base
from crushpy.messages import Data
from crushpy.sanitize import clean, one_line
from crushpy.settings import Settings
from crushpy.tui.notify import tell
from crushpy.tui.screens.picker import PickScreen, spread

TryModel = Callable[[str], Awaitable[str]]
"""Tries a model: words that say it works, or a CrushpyError that says why not."""

AGAIN = "Then start crushpy again from that shell: a running program does not see new variables."


class ModelSource(Data, frozen=True):
    """Somewhere models come from."""

    name: str
    ready: bool
    state: str
    model: str
    """What would be used of it; empty where the user has to name one."""
    how: str
    """What to do to use it."""


def model_sources(settings: Settings, environ: Mapping[str, str]) -> list[ModelSource]:
    """Every way to a model, those that are ready first. Contacts nobody and never shows a key."""
    found = [_provider(provider, settings, environ) for provider in vendors.PROVIDERS]
    known = {provider.name for provider in vendors.PROVIDERS}
    for name, chosen in settings.providers.items():
        if name not in known:
            missing = bool(chosen.api_key_env) and not environ.get(chosen.api_key_env)
            state = (
                f"{chosen.api_key_env} is not set"
                if missing
                else f"at {chosen.api_base or 'its usual address'}"
            )
            how = f"In your settings. Its models are named {name}/<model>; pick one with /model."
            found.append(ModelSource(name, not missing, state, "", how))
    if not openai_base(environ):
        found.append(
            ModelSource(
                "any OpenAI-compatible server",
                False,
                f"{BASE_VARIABLES[0]} is not set",
                "",
                f"export {BASE_VARIABLES[0]}=http://host:port/v1 (and OPENAI_API_KEY where it wants one), "
                f"or for good: crushpy config set providers.<name>.api_base http://host:port/v1. {AGAIN}",
            )
        )
    demo = ModelSource(
        catalog.DEMO, True, "built in, needs no key", catalog.DEMO, "A tour of crushpy: no network, no cost."
    )
    return [*(one for one in found if one.ready), demo, *(one for one in found if not one.ready)]


def _provider(provider: vendors.KnownProvider, settings: Settings, environ: Mapping[str, str]) -> ModelSource:
    chosen = settings.providers.get(provider.name)
    own = chosen.api_key_env if chosen else ""
    variables = (own,) if own else provider.variables
    held = next((name for name in variables if environ.get(name)), "")
    base = (chosen.api_base if chosen else "") or (openai_base(environ) if provider.name == "openai" else "")
    state = f"{held} is set" if held else f"{variables[0]} is not set"
    if base:
        state = f"at {base}" + (f", {held} is set" if held else "")
    how = f"export {variables[0]}=<your key>. {AGAIN}"
    if held or base:
        how = f"Enter uses {provider.default_model}; F5 tries it first; /model lists the others."
    if base:  # a server of the user's own: nobody knows what it serves
        how = f"Its models are named {provider.name}/<model>; pick one with /model."
    return ModelSource(provider.name, bool(held or base), state, "" if base else provider.default_model, how)


class ConnectScreen(PickScreen[str | None]):
    """Returns the name of the model to use from now on, or None. `provider` is what to look at first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Use it"),
        Binding("f5", "try", "Try it"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = "type to filter"
    one_click = False

    def __init__(
        self,
        settings: Settings,
        provider: str = "",
        check: TryModel | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._provider = provider
        self._check: TryModel = check or (lambda model: probe_model(model, settings))
        self._environ = os.environ if environ is None else environ
        self._all: list[ModelSource] = model_sources(settings, self._environ)
        self._shown: list[ModelSource] = []
        self._verdicts: dict[str, tuple[bool | None, str]] = {}
        """For each place that was tried: whether it works (None: being tried), and in words."""

    def first_words(self) -> str:
        return one_line(self._provider)

    def on_mount(self) -> None:
        self.head(Content("Connect a model"))
        self.typed(self.words)
        self.run_worker(self._look_around(), group="local", exclusive=True)

    async def _look_around(self) -> None:
        """Servers on this machine, which are asked for their models."""
        try:
            found = await list_local_models(self._settings, self._environ)
        except CrushpyError as error:
            tell(self, str(error), "warning")
            return
        servers: dict[str, list[ListedModel]] = {}
        for offer in found:
            servers.setdefault(offer.api_base, []).append(offer)
        self._all = [*(_server(base, served) for base, served in servers.items()), *self._all]
        self.typed(self.words)

    # --- what is shown -----------------------------------------------------------------------------------

    def typed(self, words: str) -> None:
        wanted = words.casefold().split()
        self._shown = [
            place
            for place in self._all
            if all(word in f"{place.name} {place.state} {place.model}".casefold() for word in wanted)
        ]
        self.rows.show(len(self._shown), self._draw)

    def _draw(self, number: int, width: int) -> Content:
        place = self._shown[number]
        works, _ = self._verdicts.get(place.name, (place.ready, ""))
        mark, style = {True: ("✓", "$success"), False: ("✗", "$text-muted"), None: ("…", "$warning")}[works]
        left = Content.assemble((f"{mark} ", style), (one_line(place.name), "bold" if place.ready else ""))
        left += Content.styled(f"  {one_line(place.state)}", "$text-muted")
        return spread(
            left, Content.styled(one_line(place.model) if width >= 70 else "", "$text-muted"), width
        )

    def describe(self, number: int) -> Content:
        place = self._shown[number]
        how = Content(clean(place.how))
        if place.name not in self._verdicts:
            return how
        works, words = self._verdicts[place.name]
        style = {True: "$success", False: "$error", None: "$warning"}[works]
        return Content.assemble((clean(words), style), "\n", how)

    # --- what the user does ------------------------------------------------------------------------------

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        place = self._shown[number]
        if place.ready and place.model:
            self.dismiss(place.model)
        else:
            tell(self, place.how, "information" if place.ready else "warning")

    def action_try(self) -> None:
        place = self._shown[self.rows.highlighted] if self._shown else None
        if place is None:
            return
        if not place.ready or not place.model:
            tell(self, place.how, "warning")
            return
        self._judge(place, None, f"Trying {place.model} …")
        self.run_worker(self._try(place), group=f"try {place.name}", exclusive=True)

    async def _try(self, place: ModelSource) -> None:
        try:
            self._judge(place, True, await self._check(place.model))
        except CrushpyError as error:
            self._judge(place, False, str(error))

    def _judge(self, place: ModelSource, works: bool | None, words: str) -> None:
        self._verdicts[place.name] = (works, words)
        self.rows.refresh()
        self.about()


def _server(base: str, served: list[ListedModel]) -> ModelSource:
    """A server on this machine: its models can be used at once where the settings name it."""
    first = next(iter(served))
    names = ", ".join(one_line(offer.info.name) for offer in served[:5])
    if first.ready:
        return ModelSource(first.how, True, base, first.info.name, f"It serves {names}.")
    from crushpy.llm.local_servers import ways

    provider, _, model = one_line(first.info.name).partition("/")
    once, for_good = ways(provider, base, model)
    return ModelSource(
        first.how, False, f"{base}, not set up", "", f"It serves {names}.\nonce: {once}\nfor good: {for_good}"
    )
