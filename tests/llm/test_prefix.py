"""The cached prefix: all but status and cache marks is the same bytes in one request after another."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from scripted_llm.connection import Recorded
from support.talk import Talks

MODELS = {
    "chat": "openai/test-model",
    "responses": "openai/gpt-5",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-3-flash-preview",
}
HISTORY = {"chat": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}


def stable(kind: str, request: Recorded) -> tuple[str, str]:
    """The request's history, and the rest of it, without status and marks, as text."""
    body = without_marks(request.body)
    history = [entry for entry in map(without_status, body.pop(HISTORY[kind])) if entry is not None]
    for key in ("max_tokens", "max_output_tokens", "max_completion_tokens", "generationConfig"):
        body.pop(key, None)
    return json.dumps(history, ensure_ascii=False), json.dumps(body)


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def without_status(value: Any) -> Any:
    """The value without the status; None where nothing else was in it."""
    if isinstance(value, str):
        return re.sub(r"(?:\n\n)?<context_status>.*?</context_status>", "", value)
    if isinstance(value, list):
        return [found for item in value if (found := without_status(item)) is not None]
    if not isinstance(value, dict):
        return value
    if value.get("text") and not without_status(value["text"]):
        return None
    if value.get("content") and not without_status(value["content"]):
        return None
    return {key: without_status(item) for key, item in value.items()}


@pytest.fixture
def vendors(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC", "GEMINI", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", llm.url)
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", llm.url)


@pytest.mark.usefixtures("vendors")
@pytest.mark.parametrize("method", ["auto", "llm"])
@pytest.mark.parametrize("kind", MODELS)
async def test_each_request_begins_with_the_bytes_of_the_one_before(
    talks: Talks, llm: ScriptedLLM, kind: str, method: str
) -> None:
    llm.script(
        Reply(thinking="hm", text="I look.", calls=[Call("ls", {}), Call("ls", {"path": "."})]),
        Reply(calls=[Call("todos", {"todos": []})]),
        Reply(thinking="so", text="There."),
        Reply(text="Again.", calls=[Call("ls", {})]),
        Reply(text="Done."),
    )
    flags: dict[str, object] = {"model": MODELS[kind], "compaction.method": method}
    if kind == "responses":
        flags["providers.openai.protocol"] = "responses"
    talk = await talks(flags=flags)
    assert await talk.ask("look around") == "done"
    assert await talk.ask("and again") == "done"
    assert len(llm.requests) == 5
    for request in llm.requests:
        assert request.raw.count(b"<context_status>") == (method == "llm")
    written = [stable(kind, request) for request in llm.requests]
    assert "<context_status>" not in str(written)
    for (before, rest), (after, rest_after) in pairwise(written):
        assert rest_after == rest
        assert after.startswith(before[:-1])


@pytest.mark.usefixtures("vendors")
@pytest.mark.parametrize("method", ["auto", "llm"])
async def test_claudes_newest_result_carries_a_mark_and_the_status_stands_after_it(
    talks: Talks, llm: ScriptedLLM, method: str
) -> None:
    llm.script(Reply(calls=[Call("ls", {})]), Reply(calls=[Call("ls", {})]), "Done.")
    talk = await talks(flags={"model": MODELS["anthropic"], "compaction.method": method})
    assert await talk.ask("look") == "done"
    last = llm.requests[-1].body["messages"]
    [result] = last[-1]["content"]
    text, *status = result["content"]
    assert result["type"] == "tool_result"
    assert text["cache_control"] == {"type": "ephemeral"}
    assert [block["text"].startswith("<context_status>") for block in status] == [True] * (method == "llm")
    assert "cache_control" not in json.dumps(status)
    [before] = last[-3]["content"]
    assert before["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert json.dumps(llm.requests[-1].body).count("cache_control") == 4
