"""Killed at any step of a branch: another process finds the old state or the new one, and continues it."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.binding_claude import BindingClaude, mismatches, thoughts
from support.digressions import digress
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


def stored_depth(home: Path) -> int:
    """How many branches are open; every record fits the others."""
    with closing(sqlite3.connect(home / "crushpy.db")) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert rows.execute("PRAGMA foreign_key_check").fetchall() == []
        waiting = rows.execute("SELECT count(*) FROM session WHERE end_reason = 'branch'").fetchone()[0]
        live = rows.execute("SELECT count(*) FROM session WHERE ended_at IS NULL").fetchone()[0]
        empty = rows.execute(
            "SELECT count(*) FROM session WHERE id NOT IN (SELECT session_id FROM message)"
        ).fetchone()[0]
    assert (live, empty) == (1, 0)
    return waiting


async def test_killed_at_any_step_a_branch_is_continued_where_it_was(
    talks: Talks, llm: ScriptedLLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, object] = {
        "providers.lab.protocol": "anthropic",
        "providers.lab.api_base": llm.url,
        "model": MODEL,
        f'models."{MODEL}".context_window': 200_000,
        "compaction.method": "llm",
    }
    claude = BindingClaude(llm, digress)
    talk = await talks(flags=flags, yolo=True)
    assert await talk.ask("Begin.") == "done"
    await talk.close()
    copies, whole = killed_at_every(HERE / "branch_killer.py", home, str(thinned(2)), json.dumps(flags))
    depths = [stored_depth(copy) for copy in copies]
    assert set(depths) == {0, 1, 2} and stored_depth(whole) == 1
    first = {depth: depths.index(depth) for depth in (0, 1, 2)}
    last = {len(depths) - 1 - depths[::-1].index(depth) for depth in (0, 1, 2)}
    for number in sorted({*first.values(), *last, len(copies) // 2}):
        monkeypatch.setenv("CRUSHPY_HOME", str(copies[number]))
        talk = await talks(flags=flags, resume_latest=True, yolo=True)
        mine = bool(talk.conversation.session.branches) and not talk.conversation.session.branches[-1].call_id
        assert len(talk.conversation.session.branches) == depths[number]
        assert await talk.ask("Finish") == "done"
        assert mine or not talk.conversation.session.branches
        if mine:
            assert await talk.conversation.context.return_to_parent()
        assert not talk.conversation.session.branches
        await talk.close()
        request = claude.answered[-1]
        assert thoughts(request) and mismatches(request) == []
    assert claude.refusals == []
