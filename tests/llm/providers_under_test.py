"""Every provider, held against the same scripted server: what the contract's tests are parametrised with."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from conversing import ask
from scripted_llm import ScriptedLLM

from crushpy.http.common import Timeouts
from crushpy.llm.anthropic.provider import AnthropicProvider
from crushpy.llm.errors import ModelError
from crushpy.llm.gemini.provider import GeminiProvider
from crushpy.llm.litellm.provider import LiteLLMProvider, ProviderAccess
from crushpy.llm.openai.provider import ChatProvider, ResponsesProvider
from crushpy.llm.protocol import Provider, Request
from crushpy.llm.vendors import Endpoint

SHORT = Timeouts(connect=10, response=0.3, idle=0.3)

chat = pytest.param("chat", id="chat")
anthropic = pytest.param("anthropic", id="anthropic")
gemini = pytest.param("gemini", id="gemini")
responses = pytest.param("responses", id="responses")
# Importing litellm takes seconds: one worker does all of it.
litellm = pytest.param("litellm", id="litellm", marks=pytest.mark.xdist_group("litellm"))
claude = pytest.param("claude", id="litellm-anthropic", marks=pytest.mark.xdist_group("litellm"))
every_provider = pytest.mark.parametrize("kind", [chat, anthropic, gemini, responses, litellm, claude])
own_wires = pytest.mark.parametrize("kind", [chat, anthropic, gemini, responses])
openai_providers = pytest.mark.parametrize("kind", [chat, litellm])

MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "claude": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-2.5-pro",
    "responses": "openai/gpt-5",
}
WIRES: dict[str, Callable[..., Provider]] = {
    "chat": ChatProvider,
    "anthropic": AnthropicProvider,
    "gemini": GeminiProvider,
    "responses": ResponsesProvider,
}
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "claude": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}


def litellm_provider(endpoint: Endpoint, timeouts: Timeouts | None) -> Provider:
    return LiteLLMProvider(ProviderAccess(endpoint.api_base, endpoint.key, timeouts=timeouts or Timeouts()))


class Under:
    """A provider under test and the model to ask it for."""

    def __init__(self, kind: str, llm: ScriptedLLM) -> None:
        self.kind, self._llm = kind, llm
        self.model = MODELS.get(kind, "openai/test")
        self.made: list[Provider] = []

    def provider(self, timeouts: Timeouts | None = None, api_base: str = "") -> Provider:
        base = self._llm.url if self.kind in ("claude", "anthropic", "gemini") else self._llm.api_base
        variable = KEYS.get(self.kind, "OPENAI_API_KEY")
        endpoint = Endpoint("", self.model.partition("/")[0], api_base or base, "key", variable)
        made = WIRES.get(self.kind, litellm_provider)(endpoint, timeouts)
        self.made.append(made)
        return made

    def ask(self, **more: Any) -> Request:
        return ask(model=self.model, **more)


@pytest.fixture
async def under(kind: str, llm: ScriptedLLM) -> AsyncIterator[Under]:
    made = Under(kind, llm)
    yield made
    for provider in made.made:
        await provider.close()


async def failure(under: Under, timeouts: Timeouts | None = None, api_base: str = "") -> ModelError:
    """The error that a stream ends with; Sent at most once, and never Done."""
    pieces = []
    with pytest.raises(ModelError) as raised:
        async for piece in under.provider(timeouts, api_base).stream(under.ask()):
            pieces.append(piece)
    assert [type(p).__name__ for p in pieces].count("Sent") <= 1
    assert "Done" not in [type(p).__name__ for p in pieces]
    return raised.value
