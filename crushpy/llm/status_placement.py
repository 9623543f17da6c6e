"""Chooses the place of the context status in a request: the model sees it last, and no adapter moves it.

It depends on the model's name and the protocol, never on the address. Claude's models that bind their
thinking to everything before it get a system message that stays where it is. OpenAI's protocols keep a
trailing system message in place. Our clients for Anthropic and Gemini put the status into the last message,
each in its own form. litellm's adapters to other protocols would hoist a trailing message into the system
prompt, turn it into a note or repeat the tools after it: there it is appended to the last message's text.
"""

from typing import TYPE_CHECKING

from crushpy.llm import catalog
from crushpy.llm.anthropic.thinking_binding import binds_thinking
from crushpy.llm.provider_factory import protocol_for, speaks_chat

if TYPE_CHECKING:
    from crushpy.settings.schema import Settings

KEEPS_TRAILING_SYSTEM = frozenset(
    {
        *("openai", "azure", "groq", "deepseek", "xai", "together_ai", "fireworks_ai", "cerebras"),
        *("hosted_vllm", "lm_studio", "llamafile", "ollama_chat", "nebius", "sambanova", "demo"),
    }
)
"""Vendors for which litellm passes a trailing system message on unchanged. So does openrouter, but not for
all vendors behind it."""
_HOISTED_BEHIND_ROUTER = ("anthropic/", "google/", "amazon/")


def chosen_placement(model: str, settings: "Settings") -> str:
    """The placement in the settings; empty if it is not set."""
    chosen = settings.compaction.status_placement
    if chosen != "auto":
        return chosen
    own = settings.models.get(model)
    return (own.status_placement if own is not None else None) or ""


def usual_placement(model: str, settings: "Settings") -> str:
    """The placement that the protocol of `model` accepts: `message`, `append` or `keep`."""
    vendor = catalog.provider_of(model)
    if vendor == "openrouter":
        return "append" if model.partition("/")[2].startswith(_HOISTED_BEHIND_ROUTER) else "message"
    protocol = protocol_for(model, settings)
    if protocol == "anthropic" and binds_thinking(model):
        return "keep"
    if protocol in ("anthropic", "gemini"):
        return "append"
    if protocol != "litellm":
        return "message"
    keeps = not vendor or vendor in KEEPS_TRAILING_SYSTEM or _as_openai(vendor, settings)
    return "message" if keeps else "append"


def _as_openai(vendor: str, settings: "Settings") -> bool:
    """Whether litellm uses OpenAI's chat protocol for a server defined by the user."""
    provider = settings.providers.get(vendor)
    return provider is not None and bool(provider.api_base) and speaks_chat(vendor, provider.api_base)
