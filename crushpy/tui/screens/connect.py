"""How to connect a model: what to set for each provider, what is set already, and whether it works."""

import asyncio
from itertools import groupby

from textual import events, on, work
from textual.binding import Binding
from textual.content import Content

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.engine.side_calls import probe_model
from crushpy.llm import catalog, vendors
from crushpy.llm.key_store import (
    KeyringUnusable,
    checked_key,
    locate_key,
    require_key_storage,
    store_key,
    variable_hint,
)
from crushpy.llm.model_listing import ListedModel, list_local_models
from crushpy.llm.provider_factory import BASE_VARIABLES, custom_base
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, one_line
from crushpy.settings.schema import Settings
from crushpy.tui.notify import tell
from crushpy.tui.screens.choose import Choice, ChooseScreen, LineScreen
from crushpy.tui.screens.models import ways_to_use
from crushpy.tui.screens.overlay import ListScreen, in_worker, spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.fields import LineField


class SecretField(LineField):
    """One line without echo. A paste is inserted unchanged, so that a malformed key is reported."""

    def __init__(self) -> None:
        super().__init__(placeholder="paste the key here; it is not shown")
        self.password = True

    def on_paste(self, event: events.Paste) -> None:
        event.stop().prevent_default()
        self.insert_text_at_cursor(event.text.strip())


def key_screen(provider: str) -> LineScreen:
    """Asks for a well-formed key."""
    hint = "It goes into the system's keyring. Without one, you are asked where to keep it."
    return LineScreen(f"Key for {one_line(provider)}", SecretField(), hint, checked_key)


RESTART = "Then restart crushpy from that shell: a running program does not see new variables."


class ModelSource(Data, frozen=True):
    name: str
    ready: bool
    state: str
    model: str
    """The model to use; empty if the user has to name one."""
    how: str
    """How to use it."""
    provider: str = ""
    """The provider whose key can be stored; empty if there is none to store."""
    lacks_key: bool = False
    """Only a key is missing."""


def model_sources(settings: Settings) -> list[ModelSource]:
    """Every way to a model, those that are ready first. Uses no network and never shows a key."""
    found = [_provider(provider, settings) for provider in vendors.PROVIDERS]
    found.append(_azure(settings))
    known = {place.name for place in found}
    found += [_of_settings(name, settings) for name in settings.providers if name not in known]
    if not vendors.base_of("openai"):
        variable, url = BASE_VARIABLES[0], "http://host:port/v1"
        how = (
            f"export {variable}={url} (and OPENAI_API_KEY if it needs one), "
            f"or permanently: crushpy config set providers.<name>.api_base {url}. {RESTART}"
        )
        found.append(ModelSource("any OpenAI-compatible server", False, f"{variable} is not set", "", how))
    demo = ModelSource(
        catalog.DEMO, True, "built in, no key needed", catalog.DEMO, "A tour of crushpy: no network, no cost"
    )
    return sorted([*found, demo], key=lambda source: not source.ready)


def _provider(provider: vendors.Vendor, settings: Settings) -> ModelSource:
    name = provider.name
    place, base = locate_key(name, settings), custom_base(name, settings)
    has_key = place.held or place.stored
    state = place.state
    if base:
        state = f"at {redact(base)}" + (f", {state}" if has_key else "")
    how = f"Enter stores your key, or\nexport {place.variable}=<your key>. {RESTART}"
    if has_key:
        how = f"Enter uses {provider.default_model}; F5 tries it first; /model lists the others"
    if base:  # the user's own server: its models are unknown
        how = f"Its models are named {name}/<model>; choose one with /model. F2 stores a key for it."
    model = "" if base else provider.default_model
    return ModelSource(name, has_key or bool(base), state, model, how, name, not (has_key or base))


def _azure(settings: Settings) -> ModelSource:
    """The names of Azure deployments are chosen by their owner."""
    place, base = locate_key("azure", settings), custom_base("azure", settings)
    has_key = place.held or place.stored
    missing = "" if base else f"{vendors.AZURE_BASES[0]} is not set"
    state = missing or f"at {redact(base)}, {place.state}"
    how = f"export {vendors.AZURE_BASES[0]}=https://<name>.openai.azure.com. F2 stores your key. {RESTART}"
    if base:
        how = "Its models are named azure/<deployment>; choose one with /model. F2 stores your key."
    return ModelSource("azure", has_key and bool(base), state, "", how, "azure", bool(base) and not has_key)


def _of_settings(name: str, settings: Settings) -> ModelSource:
    """A provider that is defined in the settings only."""
    chosen, place = settings.providers[name], locate_key(name, settings)
    missing = bool(chosen.api_key_env) and not (place.held or place.stored)
    state = place.state if missing else f"at {redact(chosen.api_base) or 'its usual address'}"
    how = f"Defined in your settings. Its models are named {name}/<model> (see /model). F2 stores its key."
    return ModelSource(name, not missing, state, "", how, name, missing)


class ConnectScreen(ListScreen[ModelSource, str | None]):
    """Returns the name of the model to use from now on, or None. `provider` is the initial filter."""

    BINDINGS = [
        Binding("enter", "take", "Use"),
        Binding("f2", "store", "Store key"),
        Binding("f5", "try", "Try"),
        Binding("escape", "close", "Close"),
    ]
    heading = "Connect a model"
    one_click = False

    def __init__(self, settings: Settings, provider: str = "") -> None:
        super().__init__()
        self.initial_filter = provider
        self._settings = settings
        self.all_rows = model_sources(settings)
        self._servers: list[ModelSource] = []
        """Servers found on this machine."""
        self._outcomes: dict[str, tuple[bool | None, str]] = {}
        """For each source that was tried: whether it works (None: in progress), and a message."""

    @on(events.Mount)
    @in_worker("local")
    async def _load(self) -> None:
        """Queries the servers on this machine for their models."""
        found = await list_local_models(self._settings)
        servers = groupby(found, key=lambda offer: offer.api_base)
        self._servers = [_server(base, list(served)) for base, served in servers]
        self.all_rows = [*self._servers, *self.all_rows]
        self.refresh_rows()

    # --- rows --------------------------------------------------------------------------------------------

    def row_text(self, row: ModelSource) -> str:
        return f"{row.name} {row.state} {row.model}"

    def draw_row(self, row: ModelSource, width: int) -> Content:
        works, _ = self._outcomes.get(row.name, (row.ready, ""))
        mark, style = {True: ("✓", "$success"), False: ("✗", "$text-muted"), None: ("…", "$warning")}[works]
        left = Content.assemble((f"{mark} ", style), (one_line(row.name), "bold" if row.ready else ""))
        left += Content.styled(f"  {one_line(row.state)}", "$text-muted")
        return spread(left, Content.styled(one_line(row.model) if width >= 70 else "", "$text-muted"), width)

    def describe_row(self, row: ModelSource) -> Content:
        how = Content(clean(row.how))
        if row.name not in self._outcomes:
            return how
        works, words = self._outcomes[row.name]
        style = {True: "$success", False: "$error", None: "$warning"}[works]
        return Content.assemble((clean(words), style), "\n", how)

    # --- actions -----------------------------------------------------------------------------------------

    def choose(self, row: ModelSource) -> None:
        if row.ready and row.model:
            self.dismiss(row.model)
        elif row.lacks_key:
            self.action_store()
        else:
            tell(self, row.how, "information" if row.ready else "warning")

    @in_worker("store")
    async def action_store(self) -> None:
        """Asks for the key of the highlighted provider, without showing it, then where to keep it."""
        row = self.current
        if row is None or not row.provider:
            tell(self, "This source has no key to store.", "warning")
            return
        app, provider, settings = app_of(self), row.provider, self._settings
        key = await app.push_screen_wait(key_screen(provider))
        if key is None:
            return
        try:
            place = f"the keyring ({await asyncio.to_thread(require_key_storage, provider, settings)})"
            await asyncio.to_thread(store_key, provider, key, settings)
        except KeyringUnusable as error:
            place = f"the file {Paths().key_file}"
            choices = [
                Choice("cancel", "Do not store it", variable_hint(provider, settings)),
                Choice(
                    "file", "Store it in a file", f"{Paths().key_file}, not encrypted; only you can read it"
                ),
            ]
            if await app.push_screen_wait(ChooseScreen(error.message, choices)) != "file":
                return
            await asyncio.to_thread(store_key, provider, key, settings, in_file=True)
        self.all_rows = [*self._servers, *model_sources(self._settings)]
        self._outcomes.pop(provider, None)
        self.refresh_rows()
        held = locate_key(provider, self._settings)
        before = f" {held.variable} is set and takes precedence." if held.held else ""
        tell(self, f"The key for {provider} is stored in {place}.{before}")

    @work(exit_on_error=False)
    async def action_try(self) -> None:
        row = self.current
        if row is None:
            return
        if not row.ready or not row.model:
            tell(self, row.how, "warning")
            return
        self._show_outcome(row, None, f"Trying {row.model} …")
        try:
            self._show_outcome(row, True, await probe_model(row.model, self._settings))
        except CrushpyError as error:
            self._show_outcome(row, False, str(error))

    def _show_outcome(self, row: ModelSource, works: bool | None, words: str) -> None:
        self._outcomes[row.name] = (works, words)
        self.rows.refresh()
        self.refresh_description()


def _server(base: str, served: list[ListedModel]) -> ModelSource:
    """A server on this machine: its models can be used at once if the settings define it."""
    first = next(iter(served))
    names = ", ".join(one_line(offer.info.name) for offer in served[:5])
    if first.ready:
        return ModelSource(first.how, True, base, first.info.name, f"It serves {names}")
    how = f"It serves {names}\n{ways_to_use(first)}"
    return ModelSource(first.how, False, f"{base}, not set up", "", how)
