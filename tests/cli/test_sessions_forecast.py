"""`crushpy sessions context` says what lies ahead of a conversation."""

import json
from pathlib import Path

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run

from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow


def test_the_forecast_of_a_conversation_with_prices(
    run: Run, cli: Cli, llm: ScriptedLLM, llm_env: dict[str, str], home: Path
) -> None:
    home.mkdir(exist_ok=True)
    prices = "context_window = 20000\ninput_cost = 2.0\noutput_cost = 10.0\n"
    (home / "config.toml").write_text(f'[models."{MODEL}"]\n{prices}')
    llm.script(*(Reply("so", usage=Usage(tokens, 100)) for tokens in (2_500, 3_500, 4_500)))
    session = run("one").result["session_id"]
    for prompt in ("two", "three"):
        run("-s", session, prompt)
    found = json.loads(cli("sessions", "context", session, "--json", env=llm_env).stdout)
    ahead = found["forecast"]
    assert (ahead["turns"], ahead["tokens_per_turn"]) == (3, 1_000)
    assert ahead["turns_left"] == (15_000 - found["budget"]["used"]) // 1_000
    assert ahead["cost_going_on"] > 0 and ahead["cost_afresh"] > 0
    shown = cli("sessions", "context", session, env=llm_env).stdout
    assert f"~1,000 tokens a turn, ~{ahead['turns_left']} turns left" in shown
    assert "without compaction, ~$" in shown


def test_forecast_says_what_is_known_when_prices_or_usage_are_missing(
    run: Run, cli: Cli, llm: ScriptedLLM, llm_env: dict[str, str]
) -> None:
    llm.script(Reply("so", usage=None), Reply("so", usage=Usage(2_500, 100)))
    session = run("one").result["session_id"]
    shown = cli("sessions", "context", session, env=llm_env)
    assert "no forecast yet" in shown.stdout and shown.returncode == 0
    run("-s", session, "two")
    shown = cli("sessions", "context", session, env=llm_env).stdout
    assert "tokens a turn" in shown and "not known" in shown
    assert "$" not in shown
