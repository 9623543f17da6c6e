"""Choosing a provider and a model: by name, settings, keys and addresses, before anything is contacted."""

import os
import subprocess
import sys
from typing import Any

import pytest
from scripted_llm.replies import Reply
from scripted_llm.server import ScriptedLLM
from support.variables import variables

from crushpy.core.messages import Message, Text
from crushpy.llm import catalog
from crushpy.llm.anthropic.provider import AnthropicProvider
from crushpy.llm.catalog import explain_unknown
from crushpy.llm.demo import DemoProvider
from crushpy.llm.errors import AuthenticationFailed, BadRequest
from crushpy.llm.gemini.provider import GeminiProvider
from crushpy.llm.litellm.provider import LiteLLMProvider
from crushpy.llm.ollama.provider import OllamaProvider
from crushpy.llm.openai.provider import ChatProvider, ResponsesProvider
from crushpy.llm.protocol import Provider, Request, TextPiece
from crushpy.llm.provider_factory import create_provider, default_model
from crushpy.llm.vendors import is_official
from crushpy.settings.schema import ModelSettings, ProviderSettings, Settings

NONE: dict[str, str] = {}


def create(model: str, settings: Settings, environ: dict[str, str]) -> Provider:
    with variables(environ):
        return create_provider(model, settings)


def choose_default(settings: Settings, environ: dict[str, str]) -> str:
    with variables(environ):
        return default_model(settings)


async def said(provider: Provider, model: str) -> str:
    request = Request(model, "You are terse.", (Message("m", "user", (Text("hello"),)),))
    text = "".join([piece.text async for piece in provider.stream(request) if isinstance(piece, TextPiece)])
    await provider.close()
    return text


# --- which provider ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "environ", "kind"),
    [
        ("demo/tour", NONE, DemoProvider),
        ("openai/gpt-4o", {"OPENAI_API_KEY": "k"}, ChatProvider),
        ("gpt-4o", {"OPENAI_API_KEY": "k"}, ChatProvider),
        ("openai/gpt-5.6", {"OPENAI_API_KEY": "k"}, ResponsesProvider),
        ("openai/gpt-5", {"OPENAI_API_KEY": "k"}, ResponsesProvider),
        ("openai/gpt-5-codex", {"OPENAI_API_KEY": "k"}, ResponsesProvider),
        ("o4-mini", {"OPENAI_API_KEY": "k"}, ResponsesProvider),
        ("openai/gpt-5-chat-latest", {"OPENAI_API_KEY": "k"}, ChatProvider),
        ("openai/gpt-5.6", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, ChatProvider),
        ("openai/my-model", {"OPENAI_API_BASE": "http://127.0.0.1:1/v1"}, ChatProvider),
        ("my-model", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, ChatProvider),
        ("anthropic/claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k"}, AnthropicProvider),
        ("claude-sonnet-4-5", {"ANTHROPIC_AUTH_TOKEN": "k"}, AnthropicProvider),
        ("anthropic/x", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}, AnthropicProvider),
        ("gemini/gemini-2.5-pro", {"GEMINI_API_KEY": "k"}, GeminiProvider),
        ("gemini/x", {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"}, GeminiProvider),
        ("azure/mine", {"AZURE_API_KEY": "k", "AZURE_API_BASE": "https://x.openai.azure.com"}, ChatProvider),
        ("azure/gpt-5.6", {"AZURE_API_KEY": "k", "AZURE_API_BASE": "https://x"}, ResponsesProvider),
        ("azure/mine", {"AZURE_API_BASE": "https://x.openai.azure.com"}, LiteLLMProvider),
        ("bedrock/anthropic.claude-sonnet-4-5-v1:0", NONE, LiteLLMProvider),
        ("vertex_ai/gemini-2.5-pro", NONE, LiteLLMProvider),
        ("ollama/qwen3", NONE, OllamaProvider),
        ("ollama_chat/qwen3", {"OLLAMA_HOST": "somewhere"}, OllamaProvider),
        ("some_new_provider/x", NONE, LiteLLMProvider),
    ],
)
def test_a_model_finds_its_provider(model: str, environ: dict[str, str], kind: type) -> None:
    assert type(create(model, Settings(), environ)) is kind


@pytest.mark.parametrize(
    ("model", "base", "kind"),
    [
        ("lab/qwen3", "http://127.0.0.1:1/v1", ChatProvider),
        ("ollama/qwen3", "http://127.0.0.1:11434/v1", OllamaProvider),
        ("ollama/qwen3", "http://127.0.0.1:11434", OllamaProvider),
        ("anthropic/claude-sonnet-4-5", "http://127.0.0.1:1", AnthropicProvider),
        ("gemini/gemini-2.5-pro", "http://127.0.0.1:1/v1beta", GeminiProvider),
        ("cohere/command-r", "http://127.0.0.1:1", LiteLLMProvider),
    ],
)
def test_an_address_in_the_settings_takes_the_wire_unless_the_server_speaks_otherwise(
    model: str, base: str, kind: type
) -> None:
    name = model.partition("/")[0]
    settings = Settings(providers={name: ProviderSettings(api_base=base)})
    assert type(create(model, settings, NONE)) is kind


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("auto", ChatProvider),
        ("chat", ChatProvider),
        ("responses", ResponsesProvider),
        ("anthropic", AnthropicProvider),
        ("gemini", GeminiProvider),
    ],
)
def test_the_settings_say_what_is_spoken_at_an_address(protocol: Any, kind: type) -> None:
    lab = ProviderSettings(api_base="http://127.0.0.1:1/v1", protocol=protocol)
    assert type(create("lab/qwen3", Settings(providers={"lab": lab}), NONE)) is kind


def test_provider_setting_forces_litellm() -> None:
    gateway = ProviderSettings(api_base="http://127.0.0.1:1", protocol="litellm")
    settings = Settings(providers={"gemini": gateway})
    assert type(create("gemini/gemini-2.5-pro", settings, NONE)) is LiteLLMProvider
    assert type(create("anthropic/x", settings, {"ANTHROPIC_API_KEY": "k"})) is AnthropicProvider


def test_a_vendors_own_protocol_can_be_chosen_otherwise() -> None:
    gateway = ProviderSettings(api_base="http://127.0.0.1:1/v1", protocol="chat")
    settings = Settings(providers={"anthropic": gateway})
    assert type(create("anthropic/claude-sonnet-4-5", settings, NONE)) is ChatProvider


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
    ],
)
def test_settings_can_force_litellm(model: str, key: str) -> None:
    assert type(create(model, Settings(provider="litellm"), {key: "k"})) is LiteLLMProvider


def test_the_demo_takes_its_window_from_the_settings() -> None:
    settings = Settings(models={"demo/tour": ModelSettings(context_window=9_000)})
    provider = create("demo/tour", settings, NONE)
    assert isinstance(provider, DemoProvider)
    assert provider._window == 9_000


async def test_the_wire_sends_the_name_and_the_key_that_the_server_knows(llm: ScriptedLLM) -> None:
    llm.always(Reply("hi"))
    environ = {"LAB_KEY": "secret", "OPENAI_API_KEY": "not for the lab"}
    settings = Settings(providers={"lab": ProviderSettings(api_base=llm.api_base, api_key_env="LAB_KEY")})
    assert await said(create("lab/org/qwen3", settings, environ), "lab/org/qwen3") == "hi"
    assert llm.requests[0].body["model"] == "org/qwen3"
    assert llm.requests[0].headers["authorization"] == "Bearer secret"


async def test_the_key_of_openai_goes_to_no_other_provider(llm: ScriptedLLM) -> None:
    llm.always(Reply("hi"))
    settings = Settings(providers={"lab": ProviderSettings(api_base=llm.api_base)})
    await said(create("lab/qwen3", settings, {"OPENAI_API_KEY": "secret"}), "lab/qwen3")
    assert "authorization" not in llm.requests[0].headers


async def test_a_server_of_ones_own_needs_no_key(llm: ScriptedLLM) -> None:
    llm.always(Reply("hi"))
    provider = create("openai/test-model", Settings(), {"OPENAI_BASE_URL": llm.api_base})
    assert await said(provider, "openai/test-model") == "hi"
    assert "authorization" not in llm.requests[0].headers


async def test_an_address_in_the_settings_goes_before_the_environment(llm: ScriptedLLM) -> None:
    llm.always(Reply("hi"))
    settings = Settings(providers={"openai": ProviderSettings(api_base=llm.api_base)})
    provider = create("openai/test-model", settings, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert await said(provider, "openai/test-model") == "hi"


@pytest.mark.slow
async def test_a_provider_of_ones_own_works_through_litellm_too(llm: ScriptedLLM) -> None:
    llm.always(Reply("hi"))
    settings = Settings(provider="litellm", providers={"lab": ProviderSettings(api_base=llm.api_base)})
    assert await said(create("lab/org/qwen3", settings, NONE), "lab/org/qwen3") == "hi"
    assert llm.requests[0].body["model"] == "org/qwen3"


# --- what is missing or wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("openai/gpt-5.6", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_told_before_any_request_with_the_ways_out(model: str, variable: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        create(model, Settings(), NONE)
    assert variable in caught.value.message
    assert "demo/tour" in caught.value.hint
    assert "crushpy models" in caught.value.hint


def test_openais_own_address_needs_a_key_even_when_it_is_spelled_out() -> None:
    with pytest.raises(AuthenticationFailed):
        create("openai/gpt-4o", Settings(), {"OPENAI_BASE_URL": "https://api.openai.com/v1"})


def test_a_key_variable_that_the_settings_name_must_be_there() -> None:
    settings = Settings(providers={"lab": ProviderSettings(api_base="http://x/v1", api_key_env="LAB_KEY")})
    with pytest.raises(AuthenticationFailed, match="LAB_KEY is not set"):
        create("lab/qwen3", settings, {"LAB_KEY": ""})


def test_a_bare_name_that_nobody_knows_is_refused_with_suggestions() -> None:
    with pytest.raises(BadRequest, match="gtp-5") as caught:
        create("gtp-5", Settings(), {"OPENAI_API_KEY": "k"})
    assert "openai/gpt-5" in caught.value.hint


def test_an_unknown_demo_names_the_known_one() -> None:
    with pytest.raises(BadRequest) as caught:
        create("demo/tuor", Settings(), NONE)
    assert "demo/tour" in caught.value.hint


def test_an_unknown_model_is_explained_with_the_nearest_names() -> None:
    assert "anthropic/claude-sonnet-4-5" in explain_unknown("anthropic/claude-sonet-4-5")
    assert "crushpy models" in explain_unknown("@@@@@")


def test_official_hosts_are_openais_alone() -> None:
    assert is_official("")
    assert is_official("https://eu.api.openai.com/v1")
    assert not is_official("https://api.openai.com.evil.example/v1")
    assert not is_official("http://127.0.0.1:8000/v1")


# --- which model ---------------------------------------------------------------------------------------


def test_the_model_of_the_settings_goes_before_every_key() -> None:
    assert choose_default(Settings(model="lab/x"), {"OPENAI_API_KEY": "k"}) == "lab/x"


def test_default_model_follows_the_keys_without_a_setting() -> None:
    assert choose_default(Settings(), {"OPENAI_API_KEY": "k"}).startswith("openai/")
    assert choose_default(Settings(), {"GOOGLE_API_KEY": "k"}).startswith("gemini/")
    both = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert choose_default(Settings(), both).startswith("anthropic/")


def test_a_key_under_a_name_of_the_users_own_counts_too() -> None:
    settings = Settings(providers={"deepseek": ProviderSettings(api_key_env="MY_KEY")})
    assert choose_default(settings, {"MY_KEY": "k"}).startswith("deepseek/")


@pytest.mark.parametrize("environ", [NONE, {"OPENAI_API_KEY": ""}])
def test_default_model_is_the_demo_without_a_key(environ: dict[str, str]) -> None:
    assert choose_default(Settings(), environ) == catalog.DEMO


def test_choosing_a_wire_provider_imports_nothing_heavy() -> None:
    code = (
        "import sys; from crushpy.llm.provider_factory import create_provider, default_model;"
        "from crushpy.settings.schema import Settings;"
        "model = default_model(Settings(model='openai/gpt-4o'));"
        "create_provider(model, Settings());"
        "heavy = {'litellm', 'tiktoken', 'httpx', 'pydantic', 'tomlkit'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    env = {**os.environ, "OPENAI_API_KEY": "k"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
