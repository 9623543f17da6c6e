"""A server of the user's own: its only model is used, and its windows are asked for."""

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM
from support.list_server import ListServer

pytestmark = pytest.mark.slow

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def window_of(cli: Cli, name: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    rows = json.loads(cli("models", "--json", "--refresh", env=env).stdout)
    (row,) = [row for row in rows if row["name"] == name]
    return row["context_window"], row["window_source"]


def test_the_only_model_of_an_address_is_used(cli: Cli, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    done = cli("run", "go", env={"OPENAI_BASE_URL": llm.api_base})
    assert (done.returncode, done.stdout.strip()) == (0, "Yes."), done.stderr
    assert llm.requests[0].body["model"] == "test-model"


@pytest.mark.parametrize("key", [{}, {"OPENAI_API_KEY": "k"}], ids=["no key", "key"])
def test_several_models_of_an_address_are_listed(cli: Cli, llm: ScriptedLLM, key: dict[str, str]) -> None:
    llm.models = ["qwen3", "gemma4", "text-embedding-small"]
    done = cli("run", "go", env={"OPENAI_BASE_URL": llm.api_base, **key})
    assert (done.returncode, llm.requests) == (2, [])
    assert "openai/qwen3, openai/gemma4." in done.stderr and "-m openai/MODEL" in done.stderr


def test_the_usual_model_is_used_if_a_gateway_has_it(cli: Cli, llm: ScriptedLLM) -> None:
    llm.models = ["qwen3", "gpt-5.6"]
    llm.always("Yes.")
    assert cli("run", "go", env=llm.env).returncode == 0
    assert llm.requests[0].body["model"] == "gpt-5.6"


def test_an_address_without_a_server_is_named(cli: Cli) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        done = cli("run", "go", env={"OPENAI_BASE_URL": base})
    assert done.returncode == 2
    assert base in done.stderr and "-m openai/MODEL" in done.stderr


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/models", {"data": [{"id": "qwen3", "max_model_len": 24_576}]}),
        (
            "/api/v0/models",
            {"data": [{"id": "qwen3", "loaded_context_length": 24_576, "max_context_length": 9}]},
        ),
        ("/props", {"default_generation_settings": {"n_ctx": 24_576}}),
        ("/api/ps", {"models": [{"name": "qwen3:latest", "context_length": 24_576}]}),
    ],
    ids=["vLLM", "LM Studio", "llama.cpp", "Ollama"],
)
def test_the_window_is_asked_for_and_holds_for_every_name(
    cli: Cli, lister: ListServer, home: Path, path: str, answer: dict[str, Any]
) -> None:
    plain = {"data": [{"id": "qwen3"}]}
    lister.answers = {"/v1/models": plain, path: answer}
    env = {"OPENAI_BASE_URL": f"{lister.url}/v1"}
    assert window_of(cli, "openai/qwen3", env) == (24_576, "server")
    assert window_of(cli, "openai/qwen3", env) == (24_576, "server")
    lister.answers = {"/v1/models": plain}
    lab = f"http://localhost:{lister.port}"
    (home / "config.toml").write_text(f'[providers.lab]\napi_base = "{lab}"\n')
    assert window_of(cli, "lab/qwen3") == (24_576, "learnt")
