"""How to connect a model: what to set for each provider, what is set already, and whether it works."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.engine.side_calls import probe_model
from crushpy.llm import catalog, vendors
from crushpy.llm.key_store import KeyOrigin, checked_key, locate_key, require_key_storage, store_key
from crushpy.llm.model_listing import ListedModel, list_local_models, own_base
from crushpy.llm.provider_factory import BASE_VARIABLES, openai_base
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.settings import Settings
from crushpy.tui.notify import tell
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.screens.picker import PickScreen, spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import KeyBar


class SecretField(Input):
    """One line without echo. A paste is taken as it comes: what is wrong with it is told, not repaired."""

    def __init__(self) -> None:
        super().__init__(placeholder="paste it here; it is not shown", password=True)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(event.text.strip())


class KeyScreen(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns what can be a key, or None."""

    DEFAULT_CSS = """
    KeyScreen { align: center middle; }
    KeyScreen > Vertical {
        width: 80%; max-width: 90; height: auto; max-height: 100%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    KeyScreen Input, KeyScreen Input:focus { border: none; }
    KeyScreen Input { height: 1; margin: 1 0; background: $surface; padding: 0; }
    KeyScreen .problem { color: $error; }
    """
    BINDINGS = [
        Binding("enter", "store", "Store", priority=True),
        Binding("escape", "dismiss(None)", "Cancel"),
    ]

    def __init__(self, provider: str, keyring: str) -> None:
        super().__init__()
        self._provider = provider
        self._keyring = keyring

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(f"Key for {one_line(self._provider)}", "bold"))
            yield SecretField()
            yield Static(
                Content.styled(f"It goes into the keyring ({one_line(self._keyring)}).", "$text-muted")
            )
            yield Static(classes="problem")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(SecretField).focus()

    def action_store(self) -> None:
        try:
            key = checked_key(self.query_one(SecretField).value)
        except CrushpyError as error:
            self.query_one(".problem", Static).update(Content(clean(str(error))))
            return
        self.dismiss(key)


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
    provider: str = ""
    """Whose key can be stored; empty where there is none to store."""
    lacks_key: bool = False
    """A key is all that is missing."""


def model_sources(settings: Settings, environ: Mapping[str, str]) -> list[ModelSource]:
    """Every way to a model, those that are ready first. Contacts nobody and never shows a key."""
    found = [_provider(provider, settings, environ) for provider in vendors.PROVIDERS]
    found.append(_azure(settings, environ))
    known = {place.name for place in found}
    found += [_of_settings(name, settings, environ) for name in settings.providers if name not in known]
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
    name = provider.name
    place, base = locate_key(name, settings, environ), own_base(name, settings, environ)
    has_key = place.held or place.stored
    state = _key_state(place)
    if base:
        state = f"at {redact(base)}" + (f", {state}" if has_key else "")
    how = f"Enter stores your key (keyring). Or\nexport {place.variable}=<your key>. {AGAIN}"
    if has_key:
        how = f"Enter uses {provider.default_model}; F5 tries it first; /model lists the others."
    if base:  # a server of the user's own: nobody knows what it serves
        how = f"Its models are named {name}/<model>; pick one with /model. F2 stores a key for it."
    model = "" if base else provider.default_model
    return ModelSource(name, has_key or bool(base), state, model, how, name, not (has_key or base))


def _azure(settings: Settings, environ: Mapping[str, str]) -> ModelSource:
    """What Azure serves is named by whoever set it up."""
    place, base = locate_key("azure", settings, environ), own_base("azure", settings, environ)
    has_key = place.held or place.stored
    missing = "" if base else f"{vendors.AZURE_BASES[0]} is not set"
    state = missing or (f"at {redact(base)}, " + _key_state(place))
    how = f"export {vendors.AZURE_BASES[0]}=https://<name>.openai.azure.com. F2 stores your key. {AGAIN}"
    if base:
        how = "Its models are named azure/<deployment>; pick one with /model. F2 stores your key."
    return ModelSource("azure", has_key and bool(base), state, "", how, "azure", bool(base) and not has_key)


def _of_settings(name: str, settings: Settings, environ: Mapping[str, str]) -> ModelSource:
    """A provider that only the settings know."""
    chosen, place = settings.providers[name], locate_key(name, settings, environ)
    missing = bool(chosen.api_key_env) and not (place.held or place.stored)
    state = _key_state(place) if missing else f"at {redact(chosen.api_base) or 'its usual address'}"
    how = f"In your settings. Its models are named {name}/<model>; pick one with /model. F2 stores its key."
    return ModelSource(name, not missing, state, "", how, name, missing)


def _key_state(place: KeyOrigin) -> str:
    if place.held:
        return f"{place.variable} is set"
    return "its key is in the keyring" if place.stored else f"{place.variable} is not set"


class ConnectScreen(PickScreen[str | None]):
    """Returns the name of the model to use from now on, or None. `provider` is what to look at first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Use it"),
        Binding("f2", "store", "Store key"),
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
        self._servers: list[ModelSource] = []
        """Found on this machine."""
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
        self._servers = [_server(base, served) for base, served in servers.items()]
        self._all = [*self._servers, *self._all]
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
        elif place.lacks_key:
            self.action_store()
        else:
            tell(self, place.how, "information" if place.ready else "warning")

    def action_store(self) -> None:
        """Takes the key of the provider the cursor is on, unseen, into the system's keyring."""
        place = self._shown[self.rows.highlighted] if self._shown else None
        if place is None or not place.provider:
            tell(self, "There is no key to store for this one.", "warning")
            return
        self.run_worker(self._store(place.provider), group="store", exclusive=True)

    async def _store(self, provider: str) -> None:
        try:
            keyring = await asyncio.to_thread(require_key_storage, provider, self._settings)
            key = await app_of(self).push_screen_wait(KeyScreen(provider, keyring))
            if key is None:
                return
            await asyncio.to_thread(store_key, provider, key, self._settings)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        self._all = [*self._servers, *model_sources(self._settings, self._environ)]
        self._verdicts.pop(provider, None)
        self.typed(self.words)
        held = locate_key(provider, self._settings, self._environ)
        before = f" {held.variable} is set, and goes before it." if held.held else ""
        tell(self, f"The key for {provider} is stored in the keyring ({keyring}).{before}")

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
    from crushpy.llm.model_listing import ways

    provider, _, model = one_line(first.info.name).partition("/")
    once, for_good = ways(provider, base, model)
    return ModelSource(
        first.how, False, f"{base}, not set up", "", f"It serves {names}.\nonce: {once}\nfor good: {for_good}"
    )
