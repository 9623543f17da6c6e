"""Finds model servers on this machine: Ollama, LM Studio, llama.cpp and vLLM at their usual ports.

Only `crushpy models` and `crushpy doctor` ask; nothing is contacted otherwise, and nothing beyond loopback.
"""

import asyncio
import os
from collections.abc import Mapping

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.llm.server_lists import ServedModel

PORTS_VARIABLE = "CRUSHPY_LOCAL_PORTS"
"""Replaces the usual ports: `ollama=11434,vllm=9000`; empty: look nowhere."""

PATIENCE = 1.0
"""Seconds for a server to list its models; loopback answers in milliseconds or not at all."""

_USUAL = {"ollama": 11434, "lm_studio": 1234, "llama_cpp": 8080, "vllm": 8000}
_TITLES = {"ollama": "Ollama", "lm_studio": "LM Studio", "llama_cpp": "llama.cpp", "vllm": "vLLM"}


class LocalServer(Data, frozen=True):
    """A server that answered, and what it serves."""

    name: str
    """What stands before the slash of its models, once it is in the settings."""
    api_base: str
    served: tuple[ServedModel, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.served)

    @property
    def title(self) -> str:
        return _TITLES.get(self.name, self.name)


def ways(name: str, api_base: str, model: str) -> tuple[str, str]:
    """How to use a model of a server that was found: a single time, and from now on."""
    once = f"OPENAI_BASE_URL={api_base} crushpy -m openai/{model}"
    for_good = f"crushpy config set providers.{name}.api_base {api_base}, then crushpy -m {name}/{model}"
    return once, for_good


async def find_local_servers(
    environ: Mapping[str, str] | None = None,
    bases: Mapping[str, str] | None = None,
    *,
    ask_bases: bool = True,
) -> list[LocalServer]:
    """The servers that answer, asked side by side; `bases` are addresses to ask besides, by name.

    Without `ask_bases` they are left out, also where one of them is at a usual port.

    What is not on loopback, or does not answer like a model server, is left out.
    """
    usual = {name: f"http://127.0.0.1:{port}/v1" for name, port in ports(environ).items()}
    given = {name: base.rstrip("/") for name, base in (bases or {}).items() if _on_loopback(base)}
    # By address, so that none is asked twice; a name that the user gave comes last and stays.
    places = {base.replace("//localhost:", "//127.0.0.1:"): name for name, base in (usual | given).items()}
    places |= {base.replace("//localhost:", "//127.0.0.1:"): name for name, base in given.items()}
    if not ask_bases:
        places = {base: name for base, name in places.items() if name not in given}
    answers = await asyncio.gather(*(_ask(name, base) for base, name in places.items()))
    return [server for server in answers if server is not None]


def ports(environ: Mapping[str, str] | None = None) -> dict[str, int]:
    """Where to look, by name."""
    text = (os.environ if environ is None else environ).get(PORTS_VARIABLE)
    if text is None:
        return dict(_USUAL)
    found: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, equals, port = entry.partition("=")
        if not equals or not name or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise UsageError(
                f"{PORTS_VARIABLE} has {entry!r}, which is not a name and a port.",
                "Write it like ollama=11434,vllm=8000, or leave it empty to look nowhere.",
            )
        found[name] = int(port)
    return found


async def _ask(name: str, base: str) -> LocalServer | None:
    from crushpy.llm.server_lists import ListFailed, ListSource, ask_server

    protocol = "ollama" if name.startswith("ollama") else "openai"
    try:
        return LocalServer(name, base, await ask_server(ListSource(protocol, base), PATIENCE))
    except ListFailed:
        return None  # nobody there, or someone else's server: 8000 and 8080 are popular ports


def _on_loopback(base: str) -> bool:
    from crushpy.http import HttpError, parse_url
    from crushpy.http.proxies import is_loopback

    try:
        return is_loopback(parse_url(base).host)
    except HttpError:
        return False
