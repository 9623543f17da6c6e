"""Killed while a boundary is prepared or crossed: nothing is half there, and another process goes on."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM
from support.killing import killed_at_every
from support.selection import thinned
from support.talk import MODEL, Talks

from crushpy.core.messages import Usage

HERE = Path(__file__).parent
NEARLY, FULL = 6_400, 7_600
PAID = 100_000
"""What the summary costs, in tokens that nothing else comes near to."""
FLAGS: dict[str, object] = {
    "model": MODEL,
    f'models."{MODEL}".context_window': 10_000,
    "compaction.moments": False,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.sampled,
]


def answer(body: dict[str, Any]) -> Answer:
    """The same for every process: what is said follows from what was asked."""
    messages = body["messages"]
    if "<transcript>" in json.dumps(messages[-1]):
        return Reply("## Goal\nPrepared notes.", usage=Usage(PAID, 50))
    words = json.dumps(messages)
    started_afresh = "Prepared notes." in words
    if messages[-1]["role"] == "tool":
        used = 900 if started_afresh else 2_000 if "Begin" not in words else NEARLY + 20
        return Reply("Done.", usage=Usage(used, 5))
    used = 900 if started_afresh else FULL if "Go on" in words else NEARLY if "Begin" in words else 1_000
    return Reply(calls=[Call("bash", {"command": "echo step"})], usage=Usage(used, 5))


def stored(home: Path) -> tuple[int, int, bool]:
    """How many boundaries there are, how often the summary was paid for, and whether a child is whole."""
    with closing(sqlite3.connect(home / "crushpy.db")) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert rows.execute("PRAGMA foreign_key_check").fetchall() == []
        boundaries = rows.execute("SELECT parent_id, child_id, prepared FROM boundary").fetchall()
        sessions = dict(rows.execute("SELECT id, ended_at FROM session").fetchall())
        (tokens,) = rows.execute("SELECT sum(input_tokens) FROM session").fetchone()
        assert len(sessions) == 1 + len(boundaries)
        for parent, child, _ in boundaries:
            seed = rows.execute("SELECT parts FROM message WHERE session_id = ? AND seq = 1", (child,))
            assert sessions[parent] is not None and sessions[child] is None
            assert "Prepared notes." in seed.fetchone()[0]
    return len(boundaries), tokens // PAID, all(prepared for *_, prepared in boundaries)


async def test_killed_at_any_step_of_a_preparation_and_its_crossing_another_process_goes_on(
    talks: Talks, llm: ScriptedLLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.always(answer)
    talk = await talks(flags={**FLAGS, "compaction.prepare": False}, yolo=True)
    assert await talk.ask("Look round") == "done"
    await talk.close()
    copies, whole = killed_at_every(
        HERE / "preparation_killer.py", home, str(thinned(1, 6)), json.dumps(FLAGS)
    )
    assert stored(whole) == (1, 1, True)
    found = [stored(copy) for copy in copies]
    assert set(found) == {(0, 0, True), (0, 1, True), (1, 1, True)}, "nothing is paid for twice"
    for number in sorted({*range(0, len(copies), len(copies) // 5), len(copies) - 1}):
        monkeypatch.setenv("CRUSHPY_HOME", str(copies[number]))
        talk = await talks(flags=FLAGS, resume_latest=True, yolo=True)
        assert await talk.ask("Begin the work") == "done"
        assert await talk.ask("Go on") == "done"
        await talk.close()
        boundaries, paid, _ = stored(copies[number])
        assert boundaries == 1 and paid <= 2, "what was lost with the process is made once more"
