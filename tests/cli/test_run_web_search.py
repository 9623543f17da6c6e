"""The setting `web_search`: off by default, decided by rules, and what it costs."""

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

MODEL = "anthropic/claude-sonnet-4-5"
PAGE = ("https://example.org/tax", "Tax")


@pytest.fixture
def run(run: Run, llm: ScriptedLLM) -> Run:
    env = {"ANTHROPIC_BASE_URL": llm.url, "ANTHROPIC_API_KEY": "key"}
    return lambda *args: run(*args, env=env)


def offered(llm: ScriptedLLM) -> bool:
    return any(tool["name"] == "web_search" for tool in llm.requests[-1].body["tools"])


def test_web_search_is_off_by_default(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script("Hello.", Reply("The rate is 19%.", source=PAGE))
    run("-m", MODEL, "hi")
    assert not offered(llm)
    assert cli("config", "set", "web_search", "on").returncode == 0
    done = run("-m", MODEL, "what is the rate?")
    assert offered(llm)
    assert done.result["text"] == "The rate is 19%. ([Tax](<https://example.org/tax>))"
    assert done.result["cost"] >= 0.01, "a search costs a cent, beside the tokens"


@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_a_rule_switches_it_off(kind: str, run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    cli("config", "set", "web_search", "on")
    assert cli("config", "set", f"permissions.{kind}", '["web_search"]').returncode == 0
    llm.script("Hello.")
    assert run("-m", MODEL, "hi").code == 0
    assert not offered(llm)


def test_a_project_cannot_switch_it_on(run: Run, cli: Cli, llm: ScriptedLLM, workspace) -> None:
    (workspace / ".crushpy").mkdir()
    (workspace / ".crushpy" / "config.toml").write_text('web_search = "on"\n[status_line]\ncommand = "id"\n')
    assert cli("trust").returncode == 0
    llm.script("Hello.")
    done = run("-m", MODEL, "hi")
    assert not offered(llm)
    told = done.stderr + "".join(notice["text"] for notice in done.of("notice"))
    assert "web_search is ignored: a project may not set it" in told
    assert "status_line is ignored: a project may not set it" in told
