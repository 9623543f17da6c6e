"""One prompt per process on a window that is nearly full of what every request holds."""

from pathlib import Path

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.headless import MODEL, Run

from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow

FIGURES = "System prompt and tools alone take"


def test_compactions_that_do_not_help_stop_for_the_whole_conversation(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 10000\n')
    llm.always(Reply("so it is", usage=Usage(8_000, 10)))
    runs = [run("prompt 1")]
    for number in range(2, 6):
        runs.append(run("-s", runs[0].result["session_id"], f"prompt {number}"))
    assert [len(done.of("boundary")) for done in runs] == [0, 1, 1, 0, 0]
    told = [line["text"] for done in runs for line in done.of("notice") if FIGURES in line["text"]]
    assert len(told) == 1
    assert "of 10,000 tokens" in told[0] and "larger window" in told[0] and "fewer tools" in told[0]
