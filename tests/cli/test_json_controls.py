"""JSON output contains no control character that a terminal obeys, and loses none."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

EVIL = "a\x9b31mb\x85c\x9d0;title\x07d\x7f\x90q\x9c é\xa0"
FORBIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_run_escapes_all_controls(run: Run, llm: ScriptedLLM, workspace: Path, form: str) -> None:
    (workspace / "evil").write_text(EVIL)
    llm.script(Reply(EVIL, calls=[Call("view", {"file_path": "evil"})]), EVIL)
    done = run("--format", form, EVIL.replace("\x07", ""))
    assert done.code == 0
    assert not FORBIDDEN.search(done.stdout)
    assert done.result["text"] == EVIL


def test_listings_and_exports_escape_all_controls(run: Run, llm: ScriptedLLM, cli: Cli) -> None:
    llm.script(Reply(EVIL, calls=[Call("ls", {"path": f"{EVIL}"})]), EVIL)
    session = run(EVIL.replace("\x07", "")).lines[0]["id"]
    for words in (
        ("sessions", "list", "--json"),
        ("sessions", "show", session, "--json"),
        ("sessions", "export", session, "--format", "json"),
        ("sessions", "tree", session, "--json"),
        ("sessions", "search", "title", "--json"),
        ("audit", "show", session, "--json"),
    ):
        done = cli(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert not FORBIDDEN.search(done.stdout), words
        found: Any = json.loads(done.stdout)
        assert found, words
