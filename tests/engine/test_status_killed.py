"""Killed while a status or a standing rule is stored: another process goes on with valid thinking."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.binding_claude import BindingClaude, steps_of_a_turn, thoughts, visible_statuses
from support.killing import killed_at_every
from support.selection import thinned
from support.talk import Talks

HERE = Path(__file__).parent
MODEL = "lab/claude-opus-5-5"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.sampled,
]


def stored_statuses(home: Path) -> int:
    """How many statuses there are; each belongs to a message that is stored."""
    with closing(sqlite3.connect(home / "crushpy.db")) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert rows.execute("PRAGMA foreign_key_check").fetchall() == []
        places = [place for (place,) in rows.execute("SELECT message_id FROM context_status")]
        messages = {place for (place,) in rows.execute("SELECT id FROM message")}
    assert len(set(places)) == len(places) and set(places) <= messages
    return len(places)


async def test_killed_at_any_step_the_thinking_stays_valid_and_no_rule_is_half_there(
    talks: Talks, llm: ScriptedLLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, object] = {
        "providers.lab.protocol": "anthropic",
        "providers.lab.api_base": llm.url,
        "model": MODEL,
        f'models."{MODEL}".context_window': 200_000,
        "compaction.method": "llm",
    }
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await talks(flags=flags, yolo=True)
    assert await talk.ask("Never push to main. Begin.") == "done"
    await talk.close()
    script = HERE / "status_killer.py"
    copies, whole = killed_at_every(script, home, str(thinned(2)), json.dumps(flags))
    counts = [stored_statuses(copy) for copy in copies]
    assert counts[0] < counts[-1] <= stored_statuses(whole)
    expected = {
        ("Never push to main.",),
        ("Never push to main.", "Never touch the folder billing."),
        ("Never push to main.", "Never touch the folder billing.", "Always run the tests with -x."),
        ("Never touch the folder billing.", "Always run the tests with -x."),
    }
    for number in sorted({*range(0, len(copies), max(1, len(copies) // 6)), len(copies) - 1}):
        monkeypatch.setenv("CRUSHPY_HOME", str(copies[number]))
        talk = await talks(flags=flags, resume_latest=True, yolo=True)
        rules = tuple(rule.text for rule in (await talk.conversation.rules.listed()).valid)
        assert rules in expected
        assert await talk.ask("Finish") == "done"
        await talk.close()
        last = claude.answered[-1]
        assert len(visible_statuses(last)) == 1 and thoughts(last)
    assert claude.refusals == []
