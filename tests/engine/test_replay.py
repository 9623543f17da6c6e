"""Replay, checked against reality: conversations recorded with a scripted server, walked again without it."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.selection import some
from support.talk import Talk, Talks

from crushpy.core.boundary import KEEPS_CONTEXT, RETURN
from crushpy.core.events import BoundaryCommitted
from crushpy.core.messages import Usage
from crushpy.engine.compaction.replay import replay_session
from crushpy.engine.models import Models
from crushpy.llm.tokens import Counter
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

MODEL = "lab/test-model"
WINDOW = 24_000
CODE = "return value * 17 + sum(range(limit)) if value else None  # the usual way\n"


def o200k(text: str) -> int:
    counter = Counter()
    assert counter.wait()
    return counter.count(text)[0]


class Worker:
    """A model that reads parts of a file, opens a new session if told to, and reports what its own tokenizer
    makes of each request, with a cache of the last one."""

    def __init__(
        self, lines: list[int], *, factor: float = 1.0, new_session_at: int = -1, branch_at: int = -9
    ) -> None:
        self._lines, self._factor, self._new_session_at = lines, factor, new_session_at
        self._branch_at = branch_at
        self._calls = 0
        self._last = ""

    def __call__(self, body: dict[str, Any]) -> Reply:
        text = json.dumps(body, ensure_ascii=False)
        if not body.get("tools"):
            summary = "## Goal\nRead code.py.\n## Next\nRead on."
            return Reply(summary, usage=Usage(round(self._factor * o200k(text)), 30))
        common = next(
            (n for n, (a, b) in enumerate(zip(text, self._last, strict=False)) if a != b),
            min(len(text), len(self._last)),
        )
        asked = round(self._factor * o200k(text))
        cached = round(self._factor * o200k(text[:common])) // 128 * 128
        self._last = text
        number, self._calls = self._calls, self._calls + 1
        lines = self._lines[number] if number < len(self._lines) else 0
        calls = (
            [Call("view", {"file_path": "code.py", "offset": 10 * number + 1, "limit": lines})]
            if lines
            else []
        )
        if number == self._new_session_at:
            calls = [Call("new_session", {"summary": "## Goal\nRead code.py on, from where we were."})]
        if number == self._branch_at:
            calls = [Call("branch", {"goal": "look aside"})]
        if number == self._branch_at + 3:
            calls = [Call("return_to_parent", {"result": "It is as expected."})]
        usage = Usage(asked - cached, 40, cached)
        return Reply(f"Step {number}: I read the next part of the file.", calls=calls, usage=usage)


CASES: dict[str, dict[str, Any]] = {
    "short": {"lines": [20, 20]},
    "threshold": {"lines": [150] * 7},
    "several boundaries": {"lines": [150] * 16},
    "another tokenizer": {"lines": [120] * 12, "factor": 1.3},
    "low threshold": {"lines": [100] * 12, "flags": {"compaction.threshold": 0.5}},
    "not prepared": {"lines": [150] * 10, "flags": {"compaction.prepare": False}},
    "no natural moments": {"lines": [130] * 12, "flags": {"compaction.moments": False}},
    "the agent opens a session": {
        "lines": [120] * 9,
        "new_session_at": 6,
        "flags": {"compaction.method": "llm"},
    },
    "fallback": {"lines": [150] * 12, "flags": {"compaction.method": "llm"}},
    "compacted by hand": {"lines": [120] * 4, "by_hand": True},
    "a branch": {"lines": [120] * 10, "branch_at": 2, "flags": {"compaction.method": "llm"}},
    "a branch left open": {"lines": [90] * 5, "branch_at": 4, "flags": {"compaction.method": "llm"}},
    "a branch across a boundary": {
        "lines": [150] * 12,
        "branch_at": 5,
        "flags": {"compaction.method": "llm"},
    },
    "undone": {"lines": [120] * 4, "by_hand": True, "undo": True},
}
PROTOCOLS = ("chat", "responses", "anthropic", "gemini")
"""Each case is recorded with one of them."""


async def record(talks: Talks, llm: ScriptedLLM, protocol: str, case: dict[str, Any]) -> Talk:
    flags: dict[str, object] = {
        "model": MODEL,
        "providers.lab.api_base": llm.url if protocol in ("anthropic", "gemini") else llm.api_base,
        "providers.lab.api_key_env": "LAB_KEY",
        "providers.lab.protocol": protocol,
        f'models."{MODEL}".context_window': WINDOW,
        f'models."{MODEL}".input_cost': 3.0,
        f'models."{MODEL}".output_cost': 15.0,
        **case.get("flags", {}),
    }
    llm.always(
        Worker(
            case["lines"],
            factor=case.get("factor", 1.0),
            new_session_at=case.get("new_session_at", -1),
            branch_at=case.get("branch_at", -9),
        )
    )
    talk = await talks(flags=flags, yolo=True)
    await talk.conversation.context.count_exactly()
    assert await talk.ask("Read code.py from its beginning to its end.") == "done"
    if case.get("by_hand"):
        assert await talk.conversation.context.compact("the code")
    if case.get("undo"):
        assert await talk.conversation.context.undo_compaction()
    assert await talk.ask("What did you see? Never change code.py.") == "done"
    return talk


def settings_of(talk: Talk) -> tuple[Settings, Models]:
    scope = talk.conversation.context._scope
    return scope.settings, scope.models


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("number", "protocol"), enumerate(PROTOCOLS), ids=PROTOCOLS)
async def test_a_replay_with_the_recorded_settings_is_what_happened(
    talks: Talks,
    llm: ScriptedLLM,
    monkeypatch: pytest.MonkeyPatch,
    workspace: Path,
    home: Path,
    number: int,
    protocol: str,
) -> None:
    monkeypatch.setenv("LAB_KEY", "test-key")
    (workspace / "code.py").write_text(CODE * 3_000)
    made = 0
    for name, case in some(CASES.items(), every=len(PROTOCOLS), start=number):
        talk = await record(talks, llm, protocol, case)
        await talk.close()  # a summary that is being prepared ends with it
        store = Store(home / "crushpy.db")
        (replay,) = await replay_session(store, talk.conversation.info.id, *settings_of(talk))
        happened = talk.of(BoundaryCommitted)
        made += len(happened)
        lineage = {session.id for session in await store.sessions.load_lineage(talk.conversation.info.id)}
        stored = [
            session
            for session in await store.boundaries.load_conversation(talk.conversation.info.root_id)
            if session.child_id in lineage and session.trigger not in (*KEEPS_CONTEXT, RETURN)
        ]
        assert [boundary.trigger for boundary in replay.boundaries] == [row.trigger for row in stored], name
        for row, other in zip(stored, replay.boundaries, strict=True):
            own = [message for message in await store.messages.load(row.child_id) if message.seed is None]
            assert (other.before_message, other.recorded) == (own[0].id, True), name
            assert other.tokens_before == pytest.approx(row.tokens_before, rel=0.03), name
            assert other.tokens_after == pytest.approx(row.tokens_after, rel=0.03), name
            assert other.moment == row.moment, name
        sessions = await store.sessions.load_conversation(talk.conversation.info.root_id)
        cost = sum(session.usage.cost for session in sessions if session.kind != "fork")
        assert cost > 0
        assert replay.usage.cost == pytest.approx(cost, rel=0.05), name
        await store.close()
    assert made >= 2


async def test_a_session_that_was_continued_is_replayed_without_what_followed(
    talks: Talks, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, workspace: Path, home: Path
) -> None:
    monkeypatch.setenv("LAB_KEY", "test-key")
    (workspace / "code.py").write_text(CODE * 3_000)
    talk = await record(talks, llm, "chat", {**CASES["a branch"], "by_hand": True})
    await talk.close()
    store = Store(home / "crushpy.db")
    root, *others = await store.sessions.load_conversation(talk.conversation.info.root_id)
    branches = [other for other in others if other.kind == "branch"]
    assert [branch.parent_id for branch in branches] == [root.id] and len(others) > 1
    (replay,) = await replay_session(store, root.id, *settings_of(talk))
    assert replay.usage.cost == pytest.approx(root.usage.cost + branches[0].usage.cost, rel=0.01)
    assert any("What branches and tasks" in text for text in replay.unknown)
    await store.close()
