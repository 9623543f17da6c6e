"""`crushpy models`: what is within reach, and what it would take."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

NOWHERE = {"CRUSHPY_LOCAL_PORTS": "", "HTTPS_PROXY": "http://127.0.0.1:9"}
"""No local servers, and nobody beyond this machine can be asked."""


@pytest.fixture
def models(cli: Cli) -> Cli:
    def run(*args: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        return cli("models", *args, env={**NOWHERE, **(env or {})})

    return run


def test_models_lists_the_demo_and_how_to_connect_when_there_is_no_key(models: Cli) -> None:
    done = models()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["demo/tour", "*", "32k", "4k", "free", "free", "built", "in"]
    assert "set ANTHROPIC_API_KEY for" in done.stdout
    assert "--all" in done.stdout
    assert "openai/" not in done.stdout


def test_a_key_brings_the_models_of_its_provider_with_window_and_price(models: Cli) -> None:
    done = models("claude-sonnet-4-5", env={"ANTHROPIC_API_KEY": "secret-key"})
    row = next(line for line in done.stdout.splitlines() if line.startswith("anthropic/claude-sonnet-4-5 "))
    assert row.split()[1:5] == ["200k", "64k", "3.00", "15.00"]
    assert row.endswith("ANTHROPIC_API_KEY is set")
    assert "secret-key" not in done.stdout + done.stderr


def test_the_columns_stand_below_each_other(models: Cli) -> None:
    done = models(env={"OPENAI_API_KEY": "k"})
    table = done.stdout.split("\n\n")[0].splitlines()
    ends = {line.index("OPENAI_API_KEY") for line in table if "OPENAI_API_KEY" in line}
    assert len(table) > 20
    assert len(ends) == 1


def test_models_all_names_the_missing_variables(models: Cli) -> None:
    done = models("gemini-2.5-pro", "--all")
    row = next(line for line in done.stdout.splitlines() if line.startswith("gemini/gemini-2.5-pro "))
    assert row.endswith("set GEMINI_API_KEY")


def test_json_holds_the_numbers_and_all_words_filter_together(models: Cli) -> None:
    (row,) = json.loads(models("OPENAI gpt-5 mini-2025", "--json", env={"OPENAI_API_KEY": "k"}).stdout)
    assert row["context_window"] == 272_000
    assert row["window_source"] == "catalog"
    assert (row["input_cost"], row["output_cost"]) == (0.25, 2.0)
    assert (row["ready"], row["how"], row["default"]) == (True, "OPENAI_API_KEY is set", False)


def test_the_settings_override_what_the_catalog_says(models: Cli, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        'model = "lab/qwen3"\n[providers.lab]\napi_base = "http://127.0.0.1:9/v1"\n'
        '[models."lab/qwen3"]\ncontext_window = 40000\ninput_cost = 0.5\n'
    )
    (row,) = json.loads(models("lab/", "--json").stdout)
    assert (row["name"], row["default"], row["ready"]) == ("lab/qwen3", True, True)
    assert (row["context_window"], row["window_source"], row["input_cost"]) == (40_000, "settings", 0.5)
    assert row["how"] == "at http://127.0.0.1:9/v1"


def test_a_name_that_matches_nothing_says_so(models: Cli) -> None:
    done = models("claude-sonet-4-5")
    assert done.returncode == 0
    assert "No available model matches 'claude-sonet-4-5'" in done.stdout
    assert "anthropic/claude-sonnet-4-5" in done.stdout


def test_a_local_server_is_found_and_the_ways_to_use_it_are_shown(models: Cli, llm: ScriptedLLM) -> None:
    llm.models = ["qwen3:8b", "nomic-embed-text"]
    done = models(env={"CRUSHPY_LOCAL_PORTS": f"ollama={llm.port}"})
    assert "ollama/qwen3:8b" in done.stdout
    assert "nomic-embed-text" not in done.stdout
    assert f"OPENAI_BASE_URL={llm.api_base} crushpy -m openai/qwen3:8b" in done.stdout
    assert f"crushpy config set providers.ollama.api_base {llm.api_base}" in done.stdout
    assert llm.requests == [], "only the list of models is asked for"


def test_the_way_that_is_shown_for_good_works(models: Cli, cli: Cli, llm: ScriptedLLM) -> None:
    llm.models = ["qwen3:8b"]
    assert cli("config", "set", "providers.ollama.api_base", llm.api_base).returncode == 0
    rows = json.loads(models("qwen3", "--json").stdout)
    (row,) = [row for row in rows if row.get("api_base")]
    assert row["ready"]
    assert row["use"] == ["crushpy -m ollama/qwen3:8b"]
    assert (row["input_cost"], row["window_source"]) == (0.0, "default")


def test_a_server_named_by_the_environment_lists_its_own_models(models: Cli, llm: ScriptedLLM) -> None:
    llm.models = ["my-model"]
    done = models("--json", env={"OPENAI_BASE_URL": llm.api_base, "OPENAI_API_KEY": "k"})
    names = [row["name"] for row in json.loads(done.stdout) if row["ready"]]
    assert "openai/my-model" in names
    assert "openai/gpt-4o" not in names


def test_a_servers_model_names_cannot_control_the_terminal(models: Cli, llm: ScriptedLLM) -> None:
    llm.models = ["evil\x1b]52;c;AAAA\x07\nname"]
    done = models(env={"CRUSHPY_LOCAL_PORTS": f"ollama={llm.port}"})
    assert "\x1b" not in done.stdout
    assert "evil" in done.stdout


def test_an_unreadable_list_of_ports_is_an_error_that_names_it(models: Cli) -> None:
    done = models(env={"CRUSHPY_LOCAL_PORTS": "ollama=many"})
    assert done.returncode == 2
    assert "CRUSHPY_LOCAL_PORTS" in done.stderr
    assert "ollama=many" in done.stderr


def test_broken_settings_are_an_error_and_not_a_traceback(models: Cli, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("model = \n")
    done = models()
    assert done.returncode == 2
    assert "config.toml" in done.stderr
    assert "Traceback" not in done.stderr
