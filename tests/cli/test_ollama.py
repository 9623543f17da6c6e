"""Runs with a model of Ollama: native tools, its window, and what is wrong with a server."""

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.headless import Done, Run
from support.ollama_server import OllamaServer, call_reply, text_reply

Ask = Callable[..., Done]


@pytest.fixture
def ask(run: Run, ollama: OllamaServer) -> Ask:
    """Runs a prompt with ollama/qwen3."""

    def run_prompt(*args: str, env: dict[str, str] | None = None) -> Done:
        return run("-m", "ollama/qwen3", "--yolo", *args, env={**ollama.env, **(env or {})})

    return run_prompt


def test_tools_are_native_and_every_request_has_the_same_window(
    ask: Ask, ollama: OllamaServer, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("forty-two\n")
    ollama.replies = [
        call_reply(("view", {"file_path": "a.txt"}), ("ls", {})),
        text_reply("It is ", "forty-two."),
    ]
    done = ask("what is in a.txt?")
    assert (done.code, done.result["text"]) == (0, "It is forty-two.")
    assert [line["name"] for line in done.of("tool_call")] == ["view", "ls"]
    first, second = ollama.chats
    assert first["options"]["num_ctx"] == second["options"]["num_ctx"] == 32_768
    assert "view" in [tool["function"]["name"] for tool in first["tools"]]
    (reply,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert [call["function"]["arguments"] for call in reply["tool_calls"]] == [{"file_path": "a.txt"}, {}]
    results = [message for message in second["messages"] if message["role"] == "tool"]
    assert [result["tool_name"] for result in results] == ["view", "ls"]
    assert "forty-two" in results[0]["content"]
    assert not {"/api/generate", "/v1/chat/completions"} & set(ollama.paths)


@pytest.mark.parametrize(
    ("setting", "limit", "parameters", "loaded", "window"),
    [
        (None, 8_192, "", None, 8_192),
        (None, 131_072, "", None, 32_768),
        (None, 131_072, "", 65_536, 65_536),
        (None, 131_072, 'stop    "<x>"\nnum_ctx                        16384', 65_536, 16_384),
        (12_000, 131_072, "num_ctx 16384", None, 12_000),
        (200_000, 40_960, "", None, 40_960),
    ],
    ids=["model", "default", "loaded", "modelfile", "settings", "settings over the model"],
)
def test_the_window_is_the_users_choice_within_the_models_limit(
    ask: Ask,
    ollama: OllamaServer,
    home: Path,
    setting: int | None,
    limit: int,
    parameters: str,
    loaded: int | None,
    window: int,
) -> None:
    if setting:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.toml").write_text(f'[models."ollama/qwen3"]\ncontext_window = {setting}\n')
    ollama.limit, ollama.parameters, ollama.loaded = limit, parameters, loaded
    ollama.replies = [text_reply("Yes.")]
    done = ask("go")
    assert done.code == 0
    assert ollama.chats[0]["options"]["num_ctx"] == window
    known = json.loads((home / "learnt.json").read_bytes())["models"]["ollama/qwen3"][ollama.url]
    assert known["window"] == window


def test_an_openai_address_that_is_ollamas_is_used_in_its_own_protocol(
    run: Run, ollama: OllamaServer
) -> None:
    ollama.replies = [text_reply("Yes.")]
    done = run("-m", "openai/qwen3", "go", env={"OPENAI_BASE_URL": f"{ollama.url}/v1"})
    assert (done.code, len(ollama.chats)) == (0, 1)
    assert (ollama.chats[0]["model"], ollama.chats[0]["options"]["num_ctx"]) == ("qwen3", 32_768)


def test_a_model_without_tools_is_refused_before_the_first_request(ask: Ask, ollama: OllamaServer) -> None:
    ollama.capabilities = ["completion", "vision"]
    done = ask("go")
    assert (done.code, ollama.chats) == (5, [])
    assert "ollama/qwen3 does not support tools" in done.of("error")[0]["message"]


def test_a_version_that_is_too_old_for_tools_is_named(ask: Ask, ollama: OllamaServer) -> None:
    ollama.capabilities, ollama.version = None, "0.1.20"
    done = ask("go")
    (error,) = done.of("error")
    assert (done.code, ollama.chats) == (5, [])
    assert "0.1.20" in error["message"] and "0.4.6" in error["hint"]


def test_a_version_that_does_not_list_abilities_is_used(ask: Ask, ollama: OllamaServer) -> None:
    ollama.capabilities, ollama.version = None, "0.5.7"
    ollama.replies = [text_reply("Yes.")]
    assert ask("go").code == 0


def test_a_server_that_is_down_is_said_at_once(ask: Ask, ollama: OllamaServer) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = ask("go", env={"OLLAMA_HOST": f"127.0.0.1:{closed.getsockname()[1]}"})
    (error,) = done.of("error")
    assert (done.code, done.of("retry")) == (5, [])
    assert "Ollama at http://127.0.0.1:" in error["message"] and "ollama serve" in error["hint"]


def test_a_model_that_is_not_pulled_is_named(run: Run, ollama: OllamaServer) -> None:
    (error,) = run("-m", "ollama/llama9", "go", env=ollama.env).of("error")
    assert "llama9" in error["message"] and "ollama pull llama9" in error["hint"]


@pytest.mark.parametrize(
    ("message", "in_stream"),
    [
        ("model requires more system memory (9.2 GiB) than is available (5.1 GiB)", False),
        ("llama runner process has terminated: signal: killed", False),
        ("CUDA error: out of memory", True),
    ],
)
def test_a_model_that_does_not_fit_in_memory_is_not_tried_again(
    ask: Ask, ollama: OllamaServer, message: str, in_stream: bool
) -> None:
    ollama.replies = [[{"error": message}] if in_stream else (500, message)]
    done = ask("go")
    (error,) = done.of("error")
    assert (done.code, len(ollama.chats)) == (5, 1)
    assert message in error["message"] and "context_window" in error["hint"]


def test_a_reply_that_is_cut_is_tried_again(ask: Ask, ollama: OllamaServer) -> None:
    ollama.replies = [text_reply("It")[:1], text_reply("It is done.")]
    done = ask("go")
    assert (done.result["text"], len(done.of("retry"))) == ("It is done.", 1)


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_is_an_overflow(ask: Ask, ollama: OllamaServer) -> None:
    ollama.replies = [(400, "the input length exceeds the context length")] * 9
    done = ask("go")
    assert done.code != 0
    assert json.dumps([chat["truncate"] for chat in ollama.chats]).count("true") == 0
    assert done.of("error")[-1]["kind"] == "overflow"


def test_the_models_at_another_address_are_listed(
    cli: Callable[..., "subprocess.CompletedProcess[str]"], ollama: OllamaServer
) -> None:
    done = cli("models", "--json", env=ollama.env)
    assert "ollama/qwen3:latest" in {row["name"] for row in json.loads(done.stdout)}, done.stdout
