"""A reply of hundreds of thousands of letters is kept in short texts, and is one text to everybody."""

import json
import sys
from pathlib import Path

from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run, llm_env, run

from crushpy.core.messages import Text
from crushpy.core.paths import Paths
from crushpy.storage.store import Store
from crushpy.util.pieces import LONG, SHORT

__all__ = ["llm_env", "run"]

SECRET = "ghp_" + "a1B2c3D4e5" * 4
LINES = "".join(f"{number} plain words, the token is {SECRET} and goes on\n" for number in range(700))
TEXT = f"{LINES}One rocket \N{ROCKET} among them.\n{LINES}"


async def parts(session_id: str) -> tuple[object, ...]:
    store = Store(Paths().database)
    try:
        return (await store.messages(session_id))[1].parts
    finally:
        await store.close()


async def test_one_wide_letter_does_not_widen_all_others(run: Run, llm: ScriptedLLM, home: Path) -> None:
    llm.script(Reply(TEXT, chunk=9_000), "ok")
    done = run("write")
    assert done.code == 0
    session = done.result["session_id"]
    stored = [part for part in await parts(session) if isinstance(part, Text)]
    assert "".join(part.text for part in stored) == TEXT
    assert [part.goes_on for part in stored] == [True] * (len(stored) - 1) + [False]
    assert len(stored) < len(TEXT) / SHORT * 3
    assert sum(sys.getsizeof(part.text) for part in stored) < 1.2 * len(TEXT)
    assert done.result["text"] == TEXT
    assert run("--session", session, "go on").code == 0
    reply = llm.requests[-1].body["messages"][2]
    assert reply == {"role": "assistant", "content": TEXT}


def test_an_export_has_it_in_one_piece_and_without_its_secrets(
    run: Run, cli: Cli, llm: ScriptedLLM, home: Path, tmp_path: Path
) -> None:
    llm.script(Reply(TEXT, chunk=5_000))
    session = run("write").result["session_id"]
    shown = json.loads(cli("sessions", "export", session, "--format", "json").stdout)
    [part] = shown["sessions"][0]["messages"][1]["parts"]
    assert part["type"] == "text"
    assert part["text"].replace("[redacted]", SECRET) == TEXT
    markdown = cli("sessions", "export", session).stdout
    assert SECRET not in markdown
    assert markdown.count("One rocket \N{ROCKET} among them.") == 1
    assert "699 plain words" in markdown


def test_words_at_its_seams_are_found(run: Run, cli: Cli, llm: ScriptedLLM, home: Path) -> None:
    words = [f"needle{number:06}" for number in range(10_000)]
    llm.script(Reply(" \N{ROCKET} ".join(words), chunk=7_001))
    run("write")
    for word in words[100:4_000:1_501]:
        found = cli("sessions", "search", word, "--wait").stdout
        assert word in found


async def test_a_reply_of_the_usual_length_is_one_text(run: Run, llm: ScriptedLLM, home: Path) -> None:
    text = TEXT[: LONG - 1]
    llm.script(Reply(text, chunk=700))
    session = run("write").result["session_id"]
    assert await parts(session) == (Text(text),)
