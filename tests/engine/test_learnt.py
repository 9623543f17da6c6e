"""What was learnt of a model on its server stays: for the next process, and for two at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from scripted_llm import Overflow, Reply, ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run
from support.talk import Talks

from crushpy.core.events import Notice
from crushpy.core.messages import Usage
from crushpy.llm.learnt import LearntModel, LearntModels, add_ratio

pytestmark = pytest.mark.slow

LLM = ("--compaction", "llm")
UNKNOWN = "is unknown"


def statuses(llm: ScriptedLLM) -> list[dict[str, Any]]:
    """The context status of each request that carried one."""
    found: list[dict[str, Any]] = []
    for request in llm.requests:
        text = str(request.messages[-1].get("content", ""))
        if "<context_status>" in text:
            found.append(json.loads(text.partition("<context_status>")[2].partition("</context_status>")[0]))
    return found


def notices(done: Any, words: str) -> int:
    return sum(words in line["text"] for line in done.of("notice"))


def learnt(home: Path, llm: ScriptedLLM) -> dict[str, Any]:
    return json.loads((home / "learnt.json").read_text())["models"][MODEL][llm.api_base]


# --- the window ------------------------------------------------------------------------------------------


def test_a_window_that_an_error_named_holds_in_the_next_process_and_is_marked(
    run: Run, cli: Cli, llm: ScriptedLLM, llm_env: dict[str, str], home: Path
) -> None:
    llm.script("one", Overflow(limit=9_000, used=9_500)).always("fine")
    session = run("hello").result["session_id"]
    run("-s", session, "again")
    assert learnt(home, llm)["window"] == 9_000

    run(*LLM, "a new conversation")
    assert statuses(llm)[-1]["context_window"] == 9_000
    assert "window_known" not in statuses(llm)[-1]
    row = next(row for row in json.loads(cli("models", "--json", env=llm_env).stdout) if row["name"] == MODEL)
    assert (row["context_window"], row["window_source"]) == (9_000, "learnt")
    shown = cli("models", env=llm_env).stdout
    assert "9.0k learnt" in shown or "9k learnt" in shown


def test_the_settings_go_before_what_was_learnt(run: Run, llm: ScriptedLLM, home: Path) -> None:
    known = LearntModels(home / "learnt.json")
    known.update(MODEL, llm.api_base, lambda _: LearntModel(window=9_000))
    known.close()
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 20000\n')
    llm.always("fine")
    run(*LLM, "hello")
    assert statuses(llm)[-1]["context_window"] == 20_000


def test_learnt_window_belongs_to_one_server(run: Run, llm: ScriptedLLM, home: Path) -> None:
    known = LearntModels(home / "learnt.json")
    known.update(MODEL, "http://elsewhere/v1", lambda _: LearntModel(window=9_000))
    known.close()
    llm.always("fine")
    run(*LLM, "hello")
    assert statuses(llm)[-1] == {**statuses(llm)[-1], "context_window": 128_000, "window_known": False}


def test_a_larger_request_that_is_accepted_voids_the_window(run: Run, llm: ScriptedLLM, home: Path) -> None:
    known = LearntModels(home / "learnt.json")
    known.update(MODEL, llm.api_base, lambda _: LearntModel(window=9_000))
    known.close()
    llm.always(Reply("fine", usage=Usage(9_500, 10)))
    run("hello")
    assert "window" not in learnt(home, llm)


def test_an_unknown_window_is_told_once_and_not_in_every_process(run: Run, llm: ScriptedLLM) -> None:
    llm.always("fine")
    assert [notices(run("hello"), UNKNOWN) for _ in range(3)] == [1, 0, 0]


# --- the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\x00 not json", "is damaged"),
        (b'{"version": 1, "models": {"x": 5}}', "is damaged"),
        (b"[" * 100_000, "is damaged"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_and_never_fatal(
    run: Run, llm: ScriptedLLM, home: Path, content: bytes, words: str
) -> None:
    home.mkdir(exist_ok=True)
    (home / "learnt.json").write_bytes(content)
    llm.always("fine")
    done = run("hello")
    assert done.code == 0
    assert notices(done, words) == 1
    assert (home / "learnt.json").read_bytes() != content
    assert notices(run("hello"), words) == 0


def test_a_place_that_cannot_be_written_costs_a_notice(run: Run, llm: ScriptedLLM, home: Path) -> None:
    (home / "learnt.json").mkdir(parents=True)
    llm.always("fine")
    done = run("hello")
    assert done.code == 0
    assert notices(done, "learnt.json cannot be") == 1


async def test_absurd_values_are_ignored(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    home.mkdir(exist_ok=True)
    entry = {"window": -5, "status_placement": "sideways", "ratios": [900, 0.0001], "rough_ratios": [-1, -1]}
    (home / "learnt.json").write_text(json.dumps({"version": 1, "models": {MODEL: {llm.api_base: entry}}}))
    llm.always("fine")
    talk = await talks(flags={"compaction.method": "llm"})
    assert await talk.ask("hello") == "done"
    assert llm.requests[0].messages[-1]["role"] == "system"
    assert statuses(llm)[0]["window_known"] is False
    assert statuses(llm)[0]["remaining_tokens"] > 100_000
    assert any(UNKNOWN in notice.text for notice in talk.of(Notice))


def test_two_processes_add_to_the_file_and_take_nothing_from_each_other(tmp_path: Path) -> None:
    file = tmp_path / "learnt.json"
    changes: list[Callable[[LearntModel], LearntModel]] = [
        lambda known: replace(known, window=9_000),
        lambda known: replace(known, status_placement="append"),
        add_ratio(1.25, counted=True),
        add_ratio(1.5, counted=True),
    ]
    sides = [LearntModels(file) for _ in changes]
    for side in sides:
        side.get("m", "s")  # all have read the file before anybody writes
    for side, change in zip(sides, changes, strict=True):
        side.update("m", "s", change)
    for side in sides:
        side.close()
    found = LearntModels(file).get("m", "s")
    assert (found.window, found.status_placement, sorted(found.ratios)) == (9_000, "append", [1.25, 1.5])
    assert file.stat().st_mode & 0o777 == 0o600
