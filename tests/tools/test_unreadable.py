"""Searches of a folder leave out what rules keep from being read, and the usual places of secrets."""

import json
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.headless import Done, Run

SEARCHES = [
    Call("grep", {"pattern": "hidden-word|plain-word"}),
    Call("glob", {"pattern": "**/*"}),
    Call("ls", {}),
]


def searched(run: Run, llm: ScriptedLLM, *args: str, calls: list[Call] = SEARCHES) -> list[str]:
    llm.script(Reply(calls=calls), "Done.")
    return texts(run(*args, "search"))


def texts(done: Done) -> list[str]:
    """The results in the order of their calls, which ran side by side."""
    answers = {line["id"]: line["text"] for line in done.of("tool_result")}
    return [answers[line["id"]] for line in done.of("tool_call")]


@pytest.fixture
def keys(workspace: Path) -> Path:
    (workspace / "deep").mkdir()
    (workspace / "plain.txt").write_text("plain-word\n")
    for name in ("own.key", "deep/other.key"):
        (workspace / name).write_text("hidden-word\n")
    return workspace


@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_files_that_a_rule_keeps_are_in_no_search(
    run: Run, llm: ScriptedLLM, home: Path, keys: Path, kind: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[permissions]\n{kind} = ["view(*.key)"]\n')
    for said in searched(run, llm):
        assert "plain" in said and "What rules keep from being read" in said
        assert "hidden-word" not in said and ".key" not in said


def test_search_reports_skipped_files_whether_or_not_they_match(
    run: Run, llm: ScriptedLLM, home: Path, keys: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[permissions]\ndeny = ["view(*.key)"]\n')
    words = ("hidden-word", "in-no-file")
    found, none = searched(run, llm, calls=[Call("grep", {"pattern": word}) for word in words])
    assert found.replace(words[0], words[1]) == none


def test_an_ask_rule_for_all_reading_that_was_answered_leaves_nothing_out(
    run: Run, llm: ScriptedLLM, home: Path, keys: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[permissions]\nask = ["view", "view(*.key)"]\n')
    (said, *_) = searched(run, llm, "--yolo")
    assert said == "deep/other.key\n  1: hidden-word\nown.key\n  1: hidden-word\nplain.txt\n  1: plain-word"


def test_places_of_secrets_are_left_out_and_asked_about_where_the_home_folder_is_the_workspace(
    run: Run, llm: ScriptedLLM, keys: Path
) -> None:
    (keys / ".ssh").mkdir()
    (keys / ".ssh" / "id_rsa").write_text("hidden-word\n")
    (keys / ".netrc").write_text("hidden-word\n")
    for name in ("own.key", "deep/other.key"):
        (keys / name).unlink()
    calls = [
        *SEARCHES,
        Call("view", {"file_path": ".netrc"}),
        Call("grep", {"pattern": "hidden", "path": ".ssh"}),
        Call("bash", {"command": "cat .netrc", "description": "read"}),
    ]
    llm.script(Reply(calls=calls), "Done.")
    done = run("search", env={"HOME": str(keys)})
    *said, view, grep, _ = texts(done)
    assert all("plain" in each and "id_rsa" not in each and ".netrc" not in each for each in said), said
    assert "no rule allows reading secrets: .netrc" in view
    assert "no rule allows reading secrets: .ssh" in grep
    assert "hidden-word" not in json.dumps(done.lines[1:]).replace("hidden-word|plain-word", "")
