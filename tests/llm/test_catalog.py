"""The catalog: what is known of a model, and where that comes from."""

import subprocess
import sys

import msgspec
import pytest

from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Usage
from crushpy.llm import catalog, vendors
from crushpy.llm.protocol import ModelInfo
from crushpy.settings.schema import ModelSettings


@pytest.mark.parametrize(
    ("name", "window", "input_cost", "output_cost"),
    [
        ("openai/gpt-5", 272_000, 1.25, 10.0),
        ("gpt-5", 272_000, 1.25, 10.0),
        ("anthropic/claude-sonnet-4-5", 200_000, 3.0, 15.0),
        ("gemini/gemini-2.5-pro", 1_048_576, 1.25, 10.0),
        ("openrouter/anthropic/claude-sonnet-4.5", 200_000, 3.0, 15.0),
        ("ollama/llama3", 8_192, 0.0, 0.0),
        ("ollama_chat/llama3:8b", 8_192, 0.0, 0.0),
    ],
)
def test_a_model_is_found_under_the_name_a_user_gives_it(
    name: str, window: int, input_cost: float, output_cost: float
) -> None:
    info = catalog.lookup(name)
    assert (info.name, info.context_window, info.source) == (name, window, "catalog")
    assert (info.input_cost, info.output_cost) == pytest.approx((input_cost, output_cost))


def test_an_unknown_model_gets_the_default_window_and_says_so() -> None:
    info = catalog.lookup("nowhere/never-heard-of-it")
    assert (info.context_window, info.source) == (DEFAULT_WINDOW, "default")
    assert info.input_cost is None
    assert not catalog.is_known("nowhere/never-heard-of-it")


def test_a_known_model_without_a_window_has_the_default_one_and_keeps_its_price() -> None:
    entry = {"litellm_provider": "x", "mode": "chat", "max_input_tokens": 0, "input_cost_per_token": 1e-06}
    info = catalog._from_entry("x/y", entry)
    assert (info.context_window, info.source, info.input_cost) == (DEFAULT_WINDOW, "default", 1.0)


def test_local_models_cost_nothing_even_when_unknown() -> None:
    info = catalog.lookup("ollama/some-model-of-mine")
    assert (info.input_cost, info.output_cost) == (0.0, 0.0)


def test_settings_go_before_the_catalog_key_by_key() -> None:
    info = catalog.lookup("openai/gpt-5", ModelSettings(context_window=1_000, output_cost=7.0))
    assert (info.context_window, info.source) == (1_000, "settings")
    assert (info.input_cost, info.output_cost) == pytest.approx((1.25, 7.0))
    only_limit = catalog.lookup("openai/gpt-5", ModelSettings(max_output_tokens=99))
    assert (only_limit.max_output_tokens, only_limit.source) == (99, "catalog")


def test_an_own_price_replaces_the_whole_price_list() -> None:
    info = catalog.lookup("gemini/gemini-2.5-pro", ModelSettings(input_cost=2.0))
    assert info.long is None
    assert catalog.cost(info, Usage(cache_read_tokens=1_000_000)) == pytest.approx(2.0)


def test_the_demo_has_a_small_window_and_costs_nothing() -> None:
    info = catalog.lookup("demo/tour")
    assert (info.context_window, info.source) == (32_000, "catalog")
    assert catalog.cost(info, Usage(10_000, 10_000)) == 0.0


def test_a_cost_counts_each_kind_of_token_at_its_own_price() -> None:
    info = catalog.lookup("anthropic/claude-sonnet-4-5")
    assert catalog.cost(info, Usage(input_tokens=100_000)) == pytest.approx(0.3)
    assert catalog.cost(info, Usage(output_tokens=1_000_000)) == pytest.approx(15.0)
    assert catalog.cost(info, Usage(cache_read_tokens=100_000)) == pytest.approx(0.03)
    assert catalog.cost(info, Usage(cache_write_tokens=100_000)) == pytest.approx(0.375)


def test_a_long_request_costs_the_price_of_long_requests() -> None:
    info = catalog.lookup("gemini/gemini-2.5-pro")
    assert catalog.cost(info, Usage(input_tokens=200_000)) == pytest.approx(0.25)
    assert catalog.cost(info, Usage(input_tokens=1, cache_read_tokens=200_000)) == pytest.approx(
        0.05, rel=1e-3
    )
    assert catalog.cost(info, Usage(input_tokens=400_000)) == pytest.approx(1.0)


def test_a_model_without_a_price_costs_zero() -> None:
    assert catalog.cost(catalog.lookup("nowhere/x"), Usage(1_000_000, 1_000_000)) == 0.0


def test_catalog_lists_chat_models_under_full_names() -> None:
    names = [info.name for info in catalog.all_models()]
    assert len(names) > 500
    assert len(names) == len(set(names))
    assert {"demo/tour", "openai/gpt-5", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"} <= set(names)
    assert all("/" in name for name in names)
    assert not any("embedding" in name for name in names if name.startswith("openai/"))


def test_every_listed_name_is_one_that_lookup_knows() -> None:
    for info in catalog.all_models():
        assert catalog.lookup(info.name).context_window == info.context_window, info.name


def test_every_default_model_is_in_the_catalog_and_takes_tools() -> None:
    for provider in vendors.PROVIDERS:
        info = catalog.lookup(provider.default_model)
        assert info.source == "catalog", provider.default_model
        assert info.tools, provider.default_model
        assert catalog.provider_of(provider.default_model) == provider.name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("openai/gtp-5", "openai/gpt-5"),
        ("Anthropic/Claude-Sonet-4-5", "anthropic/claude-sonnet-4-5"),
        ("gpt5", "openai/gpt-5"),
        ("demo/tuor", "demo/tour"),
    ],
)
def test_the_nearest_known_name_is_suggested_first(name: str, nearest: str) -> None:
    assert catalog.nearest_names(name)[0] == nearest


def test_catalog_suggests_nothing_for_an_unrelated_name() -> None:
    assert catalog.nearest_names("@@@@@@@@") == []


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gpt-4o", "openai"),
        ("o9-of-tomorrow", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("ollama/llama3", "ollama"),
        ("no-idea", ""),
    ],
)
def test_the_provider_of_a_bare_name_is_the_one_litellm_would_pick(name: str, provider: str) -> None:
    assert catalog.provider_of(name) == provider


def test_models_that_openai_serves_on_its_newer_api_alone_are_known() -> None:
    assert catalog.needs_responses_api("openai/gpt-5-codex")
    assert catalog.needs_responses_api("gpt-5.4")
    assert catalog.needs_responses_api("openai/gpt-6")
    assert not catalog.needs_responses_api("openai/gpt-5")
    assert not catalog.needs_responses_api("openai/gpt-4o")


def test_a_lookup_imports_nothing_heavy() -> None:
    code = (
        "import sys; from crushpy.llm.catalog import lookup; lookup('openai/gpt-5');"
        "heavy = {'litellm', 'pydantic', 'tiktoken', 'httpx', 'difflib'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_entry_cut_out_of_the_file_is_the_one_of_the_whole_list() -> None:
    listed = {info.name: info for info in catalog.all_models()[::60]}
    script = (
        "import sys, msgspec; from crushpy.llm.catalog import lookup;"
        "print(msgspec.json.encode([lookup(name) for name in sys.argv[1:]]).decode())"
    )
    done = subprocess.run([sys.executable, "-c", script, *listed], capture_output=True, check=True)
    alone = msgspec.json.decode(done.stdout, type=list[ModelInfo])
    assert alone == list(listed.values()) and len(alone) > 40
