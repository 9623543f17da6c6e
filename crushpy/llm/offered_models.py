"""What the servers within reach really offer: asked when the user wants to know, remembered for a while."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import vendors
from crushpy.llm.key_store import stored_names
from crushpy.llm.provider_factory import Endpoint, endpoint_of
from crushpy.llm.server_lists import ListFailed, ListSource, ServedModel, ask_server

if TYPE_CHECKING:
    from crushpy.settings import Settings

KEEP_SECONDS = 3_600.0


class ServerList(Data, frozen=True):
    """What one provider offers, as its server said."""

    provider: str
    api_base: str
    key_origin: str = ""
    """Where the key was that it was asked with: another key may see other models."""
    models: tuple[ServedModel, ...] = ()
    asked_at: float = 0.0
    failure: str = ""
    """Why it could not be asked now; `models` is then what it said before, if it ever did."""


def cached_lists(settings: "Settings", environ: Mapping[str, str] | None = None) -> list[ServerList]:
    """What was said when servers were last asked, however long ago. Contacts nobody, opens no keyring."""
    wanted = {_place(endpoint) for endpoint in _endpoints(settings, environ)}
    return [one for one in _read() if (one.provider, one.api_base, one.key_origin) in wanted]


async def ask_servers(
    settings: "Settings", environ: Mapping[str, str] | None = None, *, refresh: bool = False
) -> list[ServerList]:
    """What each provider with a key or an address offers: from the cache, or asked side by side."""
    known = {(one.provider, one.api_base, one.key_origin): one for one in _read()}

    async def ask(endpoint: Endpoint) -> ServerList:
        before = known.get(_place(endpoint), ServerList(*_place(endpoint)))
        if not refresh and 0 <= time.time() - before.asked_at < KEEP_SECONDS:
            return before
        return await _asked(before, endpoint, settings, environ)

    lists = await asyncio.gather(*(ask(endpoint) for endpoint in _endpoints(settings, environ)))
    _keep({**known, **{(one.provider, one.api_base, one.key_origin): one for one in lists}}.values())
    return list(lists)


async def _asked(
    before: ServerList, endpoint: Endpoint, settings: "Settings", environ: Mapping[str, str] | None
) -> ServerList:
    if endpoint.key_stored:
        endpoint = await asyncio.to_thread(endpoint_of, endpoint.vendor, settings, environ)
    if endpoint.key_problem:
        return msgspec.structs.replace(before, failure=endpoint.key_problem.rstrip("."))
    if endpoint.own_key_variable and not endpoint.key:
        return msgspec.structs.replace(before, failure=f"{endpoint.key_variable} is not set")
    protocol, base = _spoken_at(endpoint)
    try:
        models = await ask_server(ListSource(protocol, base, endpoint.key, endpoint.bearer))
    except ListFailed as error:
        return msgspec.structs.replace(before, failure=_harmless(error.message, endpoint.key))
    return msgspec.structs.replace(before, models=models, asked_at=time.time(), failure="")


# --- who is asked --------------------------------------------------------------------------------------


def _endpoints(settings: "Settings", environ: Mapping[str, str] | None) -> list[Endpoint]:
    environ = os.environ if environ is None else environ
    names = dict.fromkeys((*vendors.BY_NAME, *settings.providers, *sorted(stored_names())))
    found = [endpoint_of(name, settings, environ, open_keyring=False) for name in names]
    within_reach = [one for one in found if one.key or one.key_stored or one.api_base]
    return [endpoint for endpoint in within_reach if _spoken_at(endpoint)[1]]


def _spoken_at(endpoint: Endpoint) -> tuple[str, str]:
    """How and where the list of a provider is asked for; no address where nobody knows one."""
    known = vendors.BY_NAME.get(endpoint.vendor)
    base = endpoint.api_base or (known.usual_base if known else "")
    if endpoint.protocol in ("anthropic", "gemini"):
        return endpoint.protocol, base
    if endpoint.protocol in ("chat", "responses"):
        return "openai", base
    if endpoint.vendor in ("anthropic", "gemini"):
        return endpoint.vendor, base
    if endpoint.vendor in vendors.OWN_PROTOCOL:
        return "", ""
    return "ollama" if endpoint.vendor.startswith("ollama") else "openai", base


def _place(endpoint: Endpoint) -> tuple[str, str, str]:
    origin = "keyring" if endpoint.key_stored else endpoint.key_variable if endpoint.key else ""
    return endpoint.vendor, endpoint.api_base, origin


def _harmless(text: str, key: str | None) -> str:
    from crushpy.security.redact import redact
    from crushpy.security.sanitize import one_line

    return one_line(redact(text.replace(key, "[key]") if key else text))


# --- the cache -----------------------------------------------------------------------------------------


def _read() -> list[ServerList]:
    try:
        return msgspec.json.decode(Paths().model_lists.read_bytes(), type=list[ServerList])
    except (OSError, msgspec.DecodeError):
        return []


def _keep(lists: Iterable[ServerList]) -> None:
    from crushpy.security.private_files import write_private

    good = [msgspec.structs.replace(one, failure="") for one in lists if one.asked_at]
    if not good or good == _read():
        return
    try:
        write_private(Paths().model_lists, msgspec.json.encode(good))
    except OSError:
        pass  # they are asked again next time


def served_by(lists: Sequence[ServerList]) -> dict[str, tuple[ServerList, ServedModel]]:
    """Every model that is offered, by the name that a user gives it."""
    return {f"{one.provider}/{model.id}": (one, model) for one in lists for model in one.models}
