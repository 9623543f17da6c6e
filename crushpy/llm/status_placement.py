"""Where the context status goes in a request, so that the model sees it last and no adapter moves it.

A trailing system message is kept in place by OpenAI-compatible servers. Adapters to other protocols hoist
it into the system prompt (Gemini), turn it into a note (Anthropic, Bedrock) or repeat the tools after it
(Ollama's completion API): there the status is appended to the text of the last message.
"""

from typing import TYPE_CHECKING

from crushpy.llm import catalog

if TYPE_CHECKING:
    from crushpy.settings import Settings

KEEPS_IT = frozenset(
    {
        *("openai", "azure", "groq", "deepseek", "xai", "together_ai", "fireworks_ai", "cerebras"),
        *("hosted_vllm", "lm_studio", "llamafile", "ollama_chat", "nebius", "sambanova", "demo"),
    }
)
"""Providers that pass a trailing system message on as it is; openrouter does too, but not all behind it."""
_HOISTED_BEHIND_ROUTER = ("anthropic/", "google/", "amazon/")


def placement(model: str, settings: "Settings") -> str:
    """`message` or `append`: as the user chose, as was learnt of the model, or as its provider takes it."""
    chosen = settings.compaction.status_placement
    if chosen != "auto":
        return chosen
    own = settings.models.get(model)
    if own is not None and own.status_placement is not None:
        return own.status_placement
    name = catalog.provider_of(model)
    if name == "openrouter":
        return "append" if model.partition("/")[2].startswith(_HOISTED_BEHIND_ROUTER) else "message"
    keeps = name in KEEPS_IT or bool(settings.providers.get(name) and settings.providers[name].api_base)
    return "message" if keeps or not name else "append"
