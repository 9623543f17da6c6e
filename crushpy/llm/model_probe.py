"""Creates a provider after asking its server about the model: its window, and whether it calls tools.

Ollama is always asked. Another server of the user's own is asked if it is on this machine, or if the window
of the model is unknown; a server that cannot say changes nothing.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import UsageError
from crushpy.llm import catalog, vendors
from crushpy.llm.errors import BadRequest, Unavailable
from crushpy.llm.model_servers import (
    ListFailed,
    ListSource,
    ServedModel,
    ask_server,
    on_loopback,
    same_model,
    server_root,
    show_ollama,
)
from crushpy.llm.protocol import Provider
from crushpy.llm.provider_factory import (
    UNNAMED,
    Endpoint,
    create_client,
    default_model,
    endpoint_protocol,
    find_endpoint,
    is_official,
    locate_endpoint,
    waits_for_keyring,
)
from crushpy.security.redact import redact
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.settings.schema import Settings

PROBE_SERVER_TIMEOUT_S = 2.0
MAX_NAMES = 20
"""Names of models in an error."""


async def open_provider(model: str, settings: "Settings") -> tuple[Provider, ServedModel | None]:
    """The provider of `model`, and what its server says about it. Raises ModelError if it cannot be used."""
    endpoint = (
        await asyncio.to_thread(find_endpoint, model, settings)
        if waits_for_keyring(model, settings)
        else find_endpoint(model, settings)
    )
    protocol = endpoint_protocol(endpoint, settings)
    chosen = settings.models.get(model)
    window = chosen.context_window if chosen else None
    served = None
    if protocol == "ollama":
        served = await _require_ollama(endpoint, window)
    elif protocol == "chat" and window is None and _is_worth_asking(endpoint):
        protocol, served = await _ask_own_server(endpoint)
    if protocol == "ollama" and served is not None:
        endpoint = msgspec.structs.replace(endpoint, window=served.context_window)
    return create_client(protocol, endpoint), served


async def choose_default(settings: "Settings") -> str:
    """The model to use if none is named. Raises UsageError if the user's own server has none, or several."""
    name = default_model(settings)
    if name != UNNAMED:
        return name
    endpoint = await asyncio.to_thread(locate_endpoint, UNNAMED, settings)
    where, usual = f"the server at {redact(endpoint.api_base)}", vendors.BY_NAME["openai"].default_model
    try:
        listed = await ask_server(_source(endpoint, "openai"))
    except ListFailed as error:
        if endpoint.key:  # a gateway may not list its models
            return usual
        raise UsageError(
            f"No model is chosen, and {where} does not list its models: {redact(error.message)}.",
            "Start it, check OPENAI_BASE_URL, or choose a model with -m openai/MODEL.",
        ) from None
    names = [f"openai/{model.id}" for model in listed]
    if len(names) == 1 or usual in names:
        return usual if usual in names else names[0]
    shown = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    raise UsageError(
        f"No model is chosen, and {where} has {len(names)}{': ' + one_line(shown) if names else ''}.",
        "Choose one with -m openai/MODEL, or for always: crushpy config set model openai/MODEL",
    )


def _is_worth_asking(endpoint: Endpoint) -> bool:
    if not endpoint.api_base or is_official(endpoint.api_base) or endpoint.vendor == "azure":
        return False
    return on_loopback(endpoint.api_base) or catalog.lookup(endpoint.model).source == "default"


async def _require_ollama(endpoint: Endpoint, window: int | None) -> ServedModel:
    source, name = _source(endpoint, "ollama"), _name(endpoint)
    try:
        return await show_ollama(source, name, window)
    except ListFailed as error:
        where = f"Ollama at {server_root(source.api_base)}"
        if error.status == 404:
            hint = f"Run `ollama pull {name}`; `crushpy models` lists the models that it has."
            raise BadRequest(f"{where} does not have the model {name}.", hint, status=404) from None
        hint = error.hint or "Start it with `ollama serve`; OLLAMA_HOST sets another address."
        raise Unavailable(f"{where} cannot be used: {error.message}", hint) from None


async def _ask_own_server(endpoint: Endpoint) -> tuple[str, ServedModel | None]:
    """The protocol to use, and the description of the model. Ollama is used in its own protocol, unless the
    settings say otherwise: the other one cannot set the window."""
    name = _name(endpoint)

    async def list_models() -> ServedModel | None:
        listed = await ask_server(_source(endpoint, "openai"), PROBE_SERVER_TIMEOUT_S)
        return next((model for model in listed if same_model(model.id, name)), None)

    shown, listed = await asyncio.gather(
        show_ollama(_source(endpoint, "ollama"), name, timeout_s=PROBE_SERVER_TIMEOUT_S),
        list_models(),
        return_exceptions=True,
    )
    if isinstance(shown, ServedModel) and endpoint.protocol == "auto":
        return "ollama", shown
    for failure in (shown, listed):
        if isinstance(failure, BaseException) and not isinstance(failure, ListFailed):
            raise failure
    return "chat", listed if isinstance(listed, ServedModel) else None


def _source(endpoint: Endpoint, protocol: str) -> ListSource:
    base = endpoint.api_base or vendors.OLLAMA_BASE
    return ListSource(protocol, base, endpoint.key, endpoint.bearer, own=True)


def _name(endpoint: Endpoint) -> str:
    return endpoint.model.removeprefix(f"{endpoint.vendor}/")
