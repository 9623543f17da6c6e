"""`crushpy models` lists what servers really offer: every vendor's list, cached, and what goes wrong."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM
from support.list_server import ListServer

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = dict[str, dict[str, Any]]


@pytest.fixture
def rows(cli: Cli) -> Callable[..., Rows]:
    """The models that are listed, by name."""

    def run(*args: str, env: dict[str, str] | None = None) -> Rows:
        done = cli("models", "--json", *args, env=env)
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)}

    return run


def test_anthropics_list_is_read_with_its_windows(rows: Callable[..., Rows], lister: ListServer) -> None:
    new = {"type": "model", "id": "claude-new-9", "max_input_tokens": 750_000, "max_tokens": 9_000}
    sonnet = {"type": "model", "id": "claude-sonnet-4-5", "display_name": "Sonnet"}
    lister.answers = {"/v1/models?limit=1000": {"data": [new, sonnet], "has_more": False}}
    found = rows(env={"ANTHROPIC_BASE_URL": lister.url, "ANTHROPIC_API_KEY": "secret"})
    assert {name for name in found if name.startswith("anthropic/")} == {
        "anthropic/claude-new-9",
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-5-5",  # the default model, named whether or not the server lists it
    }
    new = found["anthropic/claude-new-9"]
    assert (new["context_window"], new["max_output_tokens"], new["window_source"]) == (
        750_000,
        9_000,
        "server",
    )
    assert (new["offered"], found["anthropic/claude-sonnet-5-5"]["offered"]) == (True, False)
    known = found["anthropic/claude-sonnet-4-5"]
    assert (known["context_window"], known["window_source"], known["input_cost"]) == (200_000, "catalog", 3.0)
    assert all(headers["x-api-key"] == "secret" for _, headers in lister.asked)
    assert all("anthropic-version" in headers for _, headers in lister.asked)


def test_geminis_list_is_read_with_its_windows_and_only_what_talks(
    rows: Callable[..., Rows], lister: ListServer
) -> None:
    talks = ["generateContent", "countTokens"]
    lister.answers = {
        "/v1beta/models?pageSize=1000": {
            "models": [
                {
                    "name": "models/gemini-9",
                    "inputTokenLimit": 2_000_000,
                    "supportedGenerationMethods": talks,
                },
                {"name": "models/text-embedding-004", "supportedGenerationMethods": ["embedContent"]},
                {"name": "models/gemini-9-flash", "outputTokenLimit": 7_000},
            ],
        },
    }
    found = rows("gemini", env={"GOOGLE_GEMINI_BASE_URL": lister.url, "GEMINI_API_KEY": "secret"})
    assert found["gemini/gemini-9"]["context_window"] == 2_000_000
    assert found["gemini/gemini-9-flash"]["max_output_tokens"] == 7_000
    assert "gemini/text-embedding-004" not in found
    assert all("secret" not in path for path in lister.paths)
    assert {headers["x-goog-api-key"] for _, headers in lister.asked} == {"secret"}


def test_a_routers_windows_and_prices_are_read(
    rows: Callable[..., Rows], lister: ListServer, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[providers.openrouter]\napi_base = "{lister.url}/api/v1"\n')
    lister.answers["/api/v1/models"] = {
        "data": [
            {
                "id": "maker/new-model",
                "context_length": 123_456,
                "pricing": {"prompt": "0.0000015", "completion": "0.000006"},
                "supported_parameters": ["tools", "reasoning"],
                "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
            },
            {"id": "maker/painter", "architecture": {"output_modalities": ["image"]}},
            {"id": "router/auto", "pricing": {"prompt": "-1", "completion": "-1"}},
        ]
    }
    found = rows("openrouter", env={"OPENROUTER_API_KEY": "secret"})
    new = found["openrouter/maker/new-model"]
    assert (new["context_window"], new["input_cost"], new["output_cost"]) == (123_456, 1.5, 6.0)
    assert (new["tools"], new["images"], new["thinking"], new["ready"]) == (True, True, True, True)
    assert "openrouter/maker/painter" not in found
    assert found["openrouter/router/auto"]["input_cost"] is None
    assert lister.asked[0][1]["authorization"] == "Bearer secret"


def test_a_server_of_ones_own_tells_its_window_and_the_settings_go_first(
    rows: Callable[..., Rows], lister: ListServer, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f'[providers.lab]\napi_base = "{lister.url}"\napi_key_env = "LAB_TOKEN"\n'
        '[models."lab/small"]\ncontext_window = 4000\n'
    )
    served = [{"id": "qwen", "max_model_len": 40_960}, {"id": "small", "max_model_len": 8_192}]
    lister.answers["/models"] = {"data": served}  # without /v1: the next address is tried
    found = rows("lab/", env={"LAB_TOKEN": "secret"})
    assert (found["lab/qwen"]["context_window"], found["lab/qwen"]["window_source"]) == (40_960, "server")
    assert (found["lab/small"]["context_window"], found["lab/small"]["window_source"]) == (4_000, "settings")
    assert lister.paths == ["/v1/models", "/models"]
    assert found["lab/qwen"]["use"] == ["crushpy -m lab/qwen"]


def test_ollamas_tags_are_read(rows: Callable[..., Rows], lister: ListServer, home: Path) -> None:
    lister.answers["/api/tags"] = {"models": [{"name": "qwen3:8b"}, {"name": "nomic-embed-text:latest"}]}
    found = rows(env={"CRUSHPY_LOCAL_PORTS": f"ollama={lister.port}"})
    assert "ollama/qwen3:8b" in found and "ollama/nomic-embed-text:latest" not in found
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'[providers.ollama]\napi_base = "{lister.url}/v1"\n')
    row = rows("qwen3:8b")["ollama/qwen3:8b"]
    assert (row["ready"], row["input_cost"]) == (True, 0.0)


@pytest.mark.slow
def test_a_list_is_kept_for_a_while_and_refreshed_on_demand(
    cli: Cli, rows: Callable[..., Rows], lister: ListServer, home: Path
) -> None:
    env = {"OPENAI_BASE_URL": f"{lister.url}/v1", "OPENAI_API_KEY": "first-secret-key"}
    lister.answers["/v1/models"] = {"data": [{"id": "one"}]}
    assert "openai/one" in rows(env=env)
    lister.answers["/v1/models"] = {"data": [{"id": "two"}]}
    assert "openai/one" in rows(env=env)
    assert lister.paths.count("/v1/models") == 1
    assert "openai/two" in rows("--refresh", env=env)
    cache = home / "model_lists.json"
    assert cache.stat().st_mode & 0o777 == 0o600
    assert "first-secret-key" not in cache.read_text()
    lister.answers["/v1/models"] = (500, {"error": {"message": "out of order"}})
    done = cli("models", "--refresh", env=env)
    assert done.returncode == 0
    assert "openai/two" in done.stdout
    assert "out of order" in done.stdout and "its last list is shown" in done.stdout
    cache.write_text("broken")
    assert cli("models", env=env).returncode == 0


def test_a_server_that_fails_says_why_and_the_others_are_listed(
    cli: Cli, lister: ListServer, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(mode=0o700)
    names = ("refusing", "wordy", "closed", "unset")
    bases = [f"{lister.url}/a", f"{lister.url}/b", "http://127.0.0.1:9/v1", f"{lister.url}/c"]
    sections = [f'[providers.{name}]\napi_base = "{base}"\n' for name, base in zip(names, bases, strict=True)]
    (home / "config.toml").write_text("".join(sections) + 'api_key_env = "NOT_THERE"\n')
    lister.answers = {
        "/a/models": (401, {"error": {"message": "bad key \x1b[31mred"}}),
        "/b/models": b"<html>hello</html>",
    }
    llm.models = ["good-model"]
    done = cli("models", env=llm.env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "openai/good-model" in done.stdout
    lines = {
        name: line for name in names for line in done.stdout.splitlines() if line.startswith(f"{name} at")
    }
    assert "refuses the key (401" in lines["refusing"]
    assert "cannot be read" in lines["wordy"]
    assert "127.0.0.1:9" in lines["closed"]
    assert "NOT_THERE is not set" in lines["unset"]
    assert "\x1b" not in done.stdout
    quiet = cli("models", "--json", env=llm.env)
    assert "openai/good-model" in [row["name"] for row in json.loads(quiet.stdout)]
    assert "refusing at" in quiet.stderr


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"data": None}, {"data": [{}]}, {"data": [{"id": 7}]}, {"data": ["x"]}, 5, b"\xff", b""],
    ids=str,
)
def test_an_odd_list_is_no_trouble(cli: Cli, lister: ListServer, answer: Any) -> None:
    lister.answers["/v1/models"] = answer
    done = cli("models", env={"OPENAI_BASE_URL": f"{lister.url}/v1"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_key_in_the_keyring_lists_the_models_of_its_provider(
    cli: Cli, keyring_env: dict[str, str], lister: ListServer
) -> None:
    env = {**keyring_env, "ANTHROPIC_BASE_URL": lister.url}
    assert cli("connect", "anthropic", stdin="stored-key", env=env).returncode == 0
    lister.answers["/v1/models?limit=1000"] = {"data": [{"id": "claude-new-9"}]}
    done = cli("models", env=env)
    assert "anthropic/claude-new-9" in done.stdout
    assert lister.asked[0][1]["x-api-key"] == "stored-key"
    locked = {**env, "PYTHON_KEYRING_BACKEND": "file_keyring.LockedKeyring"}
    assert "the collection is locked" in cli("models", "--refresh", env=locked).stdout


def test_only_the_models_command_asks_servers(cli: Cli, lister: ListServer) -> None:
    env = {"ANTHROPIC_BASE_URL": lister.url, "ANTHROPIC_API_KEY": "secret"}
    for command in (("doctor",), ("config", "list"), ("run", "-m", "demo/tour", "hi")):
        assert cli(*command, env=env).returncode == 0
    assert lister.asked == []
