"""On exit one line: files changed, commands run, cost, and that all processes ended."""

import os
from pathlib import Path

from scripted_llm import Call, Reply, ScriptedLLM
from support.headless import Run
from support.process_state import marked

from crushpy.core.messages import Usage

MARK = f"86400.{os.getpid()}7"
"""A time to sleep that no other process sleeps."""


def calls() -> list[Call]:
    return [
        Call("write", {"file_path": "a.txt", "content": "a"}),
        Call("bash", {"command": "mkdir docs; echo b > b.txt"}),
        Call("bash", {"command": f"(setsid sleep {MARK} &); exec sleep {MARK}", "background": True}),
    ]


def test_the_last_line_says_what_was_done_and_that_nothing_is_left(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        '[models."openai/test-model"]\ninput_cost = 1000.0\noutput_cost = 1000.0\n'
    )
    llm.script(Reply(calls=calls(), usage=Usage(1_000, 0)), Reply("Done.", usage=Usage(200, 30)))
    done = run("--format", "text", "--yolo", "do it")
    assert done.stdout == "Done.\n"
    assert done.stderr.splitlines()[-1] == "2 files changed, 2 commands run, $1.23, all processes ended."
    assert not marked(MARK)


def test_farewell_is_left_out_of_json_and_plain_answers(run: Run, llm: ScriptedLLM) -> None:
    llm.script("Fine.", "Fine.", "Fine.")
    for form in (("--format", "json"), ("--format", "stream-json"), ("--format", "text", "--quiet")):
        done = run(*form, "hi")
        assert "all processes ended" not in done.stdout + done.stderr


def test_farewell_shows_tokens_when_the_price_is_unknown(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply("Fine.", usage=Usage(1_200, 30)))
    done = run("--format", "text", "hi")
    assert (
        done.stderr.splitlines()[-1] == "0 files changed, 0 commands run, 1,230 tokens, all processes ended."
    )


def test_farewell_ignores_files_in_caches(run: Run, llm: ScriptedLLM) -> None:
    caches = "mkdir __pycache__ .pytest_cache; echo x > __pycache__/a.pyc; echo y > .pytest_cache/b"
    llm.script(Reply(calls=[Call("bash", {"command": f"{caches}; echo a > a.py"})]), "Done.")
    done = run("--format", "text", "--yolo", "do it")
    assert done.stderr.splitlines()[-1].startswith("1 file changed, 1 command run")
