"""A reply is bounded: what arrived is stored and marked truncated, and none of its calls run."""

from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.headless import Run, llm_env, run

from crushpy.core.paths import Paths
from crushpy.llm.protocol import (
    MAX_REPLY_BYTES,
    MAX_REPLY_CALLS,
    CallPiece,
    Done,
    ReplyMeter,
    TextPiece,
    ThinkingPiece,
)
from crushpy.storage.store import Store

__all__ = ["llm_env", "run"]

LINE = "plain words and one rocket \N{ROCKET}\n"


def test_text_thinking_and_arguments_count_together() -> None:
    meter = ReplyMeter()
    third = "x" * (MAX_REPLY_BYTES // 2 - 1)
    pieces = [ThinkingPiece(third), TextPiece(third), CallPiece(0, "c1", "write", "a"), Done("stop")]
    assert [meter.measure(piece) for piece in pieces] == pieces
    assert not meter.full
    assert meter.measure(CallPiece(0, args="bc")) == CallPiece(0, args="b")
    assert meter.full
    assert meter.measure(TextPiece("more")) == TextPiece("")


def test_a_wide_letter_at_the_limit_is_left_out_whole() -> None:
    meter = ReplyMeter()
    meter.measure(TextPiece("x" * (MAX_REPLY_BYTES - 2)))
    assert meter.measure(TextPiece("\N{ROCKET}y")) == TextPiece("")
    assert meter.full


def test_reply_with_too_many_calls_is_cut_off() -> None:
    meter = ReplyMeter()
    for number in range(MAX_REPLY_CALLS):
        assert not meter.full
        meter.measure(CallPiece(number, f"c{number}", "ls"))
    assert meter.full


@pytest.mark.slow
async def test_an_endless_reply_is_stored_truncated(run: Run, llm: ScriptedLLM, home: Path) -> None:
    text = LINE * (2 * MAX_REPLY_BYTES // len(LINE.encode()))
    llm.script(Reply(text, chunk=50_000))
    done = run("write")
    assert done.code == 0
    assert text.startswith(done.result["text"])
    assert MAX_REPLY_BYTES - 4 < len(done.result["text"].encode()) <= MAX_REPLY_BYTES
    assert any("output limit" in notice["text"] for notice in done.of("notice"))
    session = done.result["session_id"]
    store = Store(Paths().database)
    try:
        stored = (await store.messages.load(session))[1]
    finally:
        await store.close()
    assert (stored.text, stored.finish) == (done.result["text"], "length")


@pytest.mark.slow
@pytest.mark.parametrize("complete_calls", [0, 1])
def test_calls_of_a_truncated_reply_do_not_run(
    run: Run, llm: ScriptedLLM, workspace: Path, complete_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_COMPACTION__THRESHOLD", "off")
    calls = [Call("write", {"file_path": "small.txt", "content": "x"})] * complete_calls
    large = Call("write", {"file_path": "large.txt", "content": "x" * (MAX_REPLY_BYTES + 1)})
    llm.script(Reply(calls=[*calls, large], chunk=200_000), "I see.")
    done = run("write it", "--yolo")
    assert done.code == 0
    assert [result["is_error"] for result in done.of("tool_result")] == [True] * (complete_calls + 1)
    assert not (workspace / "small.txt").exists()
    assert not (workspace / "large.txt").exists()
