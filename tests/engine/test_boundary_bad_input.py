"""Boundaries with bad input: windows too small, messages too large, odd usage, odd providers."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Cut, Empty, Fail, Overflow, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import BoundaryCommitted, Error, Notice, ToolFinished
from crushpy.core.messages import Seed, Thinking, Usage
from crushpy.core.paths import Paths
from crushpy.engine.compaction import summarizer
from crushpy.storage.store import Store

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def window(tokens: int) -> dict[str, object]:
    return {f'models."{MODEL}".context_window': tokens}


def is_summary(body: dict[str, Any]) -> bool:
    return "<transcript>" in json.dumps(body["messages"][-1])


def worker(used: list[int], summary: Answer | str = "Notes.", command: str = "echo {n}") -> Any:
    """A model that runs a command a step with the usage given for each, and then stops."""
    steps = iter(enumerate(used))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return Reply(summary, usage=Usage(900, 9)) if isinstance(summary, str) else summary
        number, tokens = next(steps, (-1, 500))
        if number < 0:
            return Reply("All done.", usage=Usage(490, 10))
        return Reply(
            calls=[Call("bash", {"command": command.format(n=number)})], usage=Usage(tokens - 10, 10)
        )

    return answer


def seed_of(talk: Talk) -> Seed:
    part = talk.conversation.history[0].parts[0]
    assert isinstance(part, Seed)
    return part


def summaries(llm: ScriptedLLM) -> list[Any]:
    return [request for request in llm.requests if is_summary(request.body)]


# --- sizes -----------------------------------------------------------------------------------------------


async def test_a_window_smaller_than_the_system_prompt_is_named_and_the_turn_goes_on(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(worker([900, 900, 900]))
    talk = await talks(flags=window(300), yolo=True)
    assert await talk.ask("go") == "done"
    assert len(talk.of(BoundaryCommitted)) <= 2, "no boundary after boundary"
    assert any("system prompt and tools" in notice.text.lower() for notice in talk.of(Notice))


async def test_a_window_smaller_than_the_system_prompt_that_overflows_says_what_is_too_large(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(Overflow(limit=300))
    talk = await talks(flags=window(300), yolo=True)
    assert await talk.ask("go") == "error"
    (error,) = talk.of(Error)
    assert "system prompt and tools take" in error.message and "larger window" in error.hint
    assert len(llm.requests) <= 6


async def test_a_history_that_is_one_huge_message_is_left_alone(talks: Talks, llm: ScriptedLLM) -> None:
    huge = "word " * 9_000
    llm.always(lambda body: Reply("Read it.", usage=Usage(9_500, 10)))
    talk = await talks(flags=window(10_000))
    assert await talk.ask(huge) == "done"
    assert not talk.of(BoundaryCommitted)
    assert not summaries(llm)


async def test_overflow_names_a_huge_message_with_its_size(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(Overflow(limit=8_000))
    talk = await talks(flags=window(100_000))
    assert await talk.ask("word " * 9_000) == "error"
    (error,) = talk.of(Error)
    assert "largest message (user," in error.message and not summaries(llm)


async def test_a_huge_first_message_is_quoted_by_head_and_tail_in_the_child(
    talks: Talks, llm: ScriptedLLM
) -> None:
    huge = "BEGIN " + "word " * 4_000 + "END"
    llm.always(worker([6_000, 7_600, 900]))
    talk = await talks(flags=window(10_000), yolo=True)
    await talk.ask(huge)
    assert len(talk.of(BoundaryCommitted)) == 1
    evidence = seed_of(talk).evidence
    assert "BEGIN word" in evidence and "word END" in evidence
    assert f"chars truncated; recall {await first_message_id(talk)}" in evidence
    assert talk.of(BoundaryCommitted)[0].tokens_after < 7_500


async def first_message_id(talk: Talk) -> str:
    store = Store(Paths().database)
    messages = await store.messages.load(talk.conversation.info.root_id)
    await store.close()
    return messages[0].id


async def test_a_middle_larger_than_the_summarisers_window_goes_in_chunks_and_none_of_it_is_lost(
    talks: Talks, llm: ScriptedLLM
) -> None:
    flags = {
        **window(60_000),
        'models."openai/small".context_window': 9_000,
        "compaction.model": "openai/small",
        "compaction.keep_recent_tokens": 0,
    }
    command = "for i in $(seq 1 400); do echo planted-{n}-$i; done"
    llm.always(worker([9_000] * 6 + [46_000, 900], command=command))
    talk = await talks(flags=flags, yolo=True)
    await talk.ask("go")
    sent = summaries(llm)
    assert len(sent) > 2 and {request.body["model"] for request in sent} == {"small"}
    read = "".join(json.dumps(request.body["messages"][-1]) for request in sent[:-1])
    for step in range(6):
        for number in (1, 200, 400):
            assert f"planted-{step}-{number}\\n" in read
    assert "part=" in json.dumps(sent[-1].body["messages"][-1]), "merged by one last call"
    assert len(seed_of(talk).summary) > 0


# --- parts at the cut --------------------------------------------------------------------------------------


async def test_images_at_the_cut_are_carried_or_named_and_never_sent_as_text(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "shot.png").write_bytes(PNG)
    look = [Call("view", {"file_path": "shot.png"})]
    used = iter((10_000, 20_000, 76_000, 9_000))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return Reply("Notes.")
        tokens = next(used, None)
        return Reply("done") if tokens is None else Reply(calls=look, usage=Usage(tokens, 5))

    llm.always(answer)
    talk = await talks(flags=window(100_000), yolo=True)
    assert await talk.ask("look at it") == "done"
    assert len(talk.of(BoundaryCommitted)) == 1
    (summary,) = summaries(llm)
    assert "image/png" in json.dumps(summary.body) and "iVBOR" not in json.dumps(summary.body)
    after = llm.requests[llm.requests.index(summary) + 1].body["messages"]
    assert json.dumps(after).count("iVBOR") >= 1, "the latest is carried whole"


async def test_thinking_at_the_cut_is_kept_whole_in_the_tail_and_not_summarised(
    talks: Talks, llm: ScriptedLLM
) -> None:
    used = iter((1_000, 2_000, 7_600, 900))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return Reply("Notes.")
        tokens = next(used, None)
        if tokens is None:
            return Reply("done", usage=Usage(900, 5))
        calls = [Call("bash", {"command": f"echo {tokens}"})]
        return Reply("I do.", thinking=f"thought-{tokens}", calls=calls, usage=Usage(tokens, 5))

    llm.always(answer)
    talk = await talks(flags=window(10_000), yolo=True)
    await talk.ask("go")
    assert len(talk.of(BoundaryCommitted)) == 1
    assert "thought-" not in json.dumps(summaries(llm)[0].body)
    kept = [part.text for m in talk.conversation.history for part in m.parts if isinstance(part, Thinking)]
    assert "thought-7600" in kept


async def test_parallel_calls_at_the_cut_stay_with_their_results(talks: Talks, llm: ScriptedLLM) -> None:
    used = iter((9_000, 22_600, 9_000))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return Reply("Notes.")
        tokens = next(used, None)
        if tokens is None:
            return Reply("done", usage=Usage(9_000, 5))
        calls = [Call("bash", {"command": f"seq {number} 900"}) for number in range(4)]
        return Reply("Four at once.", calls=calls, usage=Usage(tokens, 5))

    llm.always(answer)
    talk = await talks(flags={**window(30_000), "compaction.keep_recent_tokens": 50}, yolo=True)
    await talk.ask("go")
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.tokens_after < boundary.tokens_before
    waiting: list[str] = []
    for message in llm.requests[-1].body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls") or []]
    assert not waiting


# --- summarisers -------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "bad",
    [Empty(), Reply("  \n "), Fail(500), Fail(400), Cut(), Overflow(), Stall(headers=False)],
    ids=["empty", "blank", "500", "400", "cut off", "overflow", "silent"],
)
async def test_boundary_falls_back_to_evidence_for_any_summariser_fault(
    talks: Talks, llm: ScriptedLLM, bad: Answer
) -> None:
    work = worker([1_000, 7_600, 900])
    llm.always(lambda body: bad if is_summary(body) else work(body))
    talk = await talks(flags={**window(10_000), "compaction.summary_seconds": 1}, yolo=True)
    assert await talk.ask("keep this request") == "done"
    assert len(talk.of(BoundaryCommitted)) == 1
    assert seed_of(talk).summary == "" and "keep this request" in seed_of(talk).evidence
    (notice,) = [n.text for n in talk.of(Notice) if "only the evidence was carried" in n.text]
    assert MODEL in notice, "says who, and why"


async def test_summariser_that_failed_rests_across_boundaries(
    talks: Talks, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> int:
        return sum(is_summary(request.body) for request in llm.requests)

    work = worker([1_000, *[7_600, 900] * 3])
    llm.always(lambda body: Fail(500) if is_summary(body) else work(body))
    talk = await talks(flags={**window(10_000), "compaction.prepare": False}, yolo=True)
    assert await talk.ask("keep this request") == "done"
    assert len(talk.of(BoundaryCommitted)) == 3
    assert asked() == 6, "one call with all its retries"
    told = [notice.text for notice in talk.of(Notice) if "only the evidence was carried" in notice.text]
    assert len(told) == 3 and re.search(r"it failed \d+ s ago, and rests for 60 s", told[-1])
    assert await talk.conversation.context.compact()
    assert asked() == 12, "the user asks"
    monkeypatch.setattr(summarizer, "REST_S", 0.0)
    work = worker([1_000, 7_600, 900])
    assert await talk.ask("go on") == "done"
    assert asked() == 18


async def test_a_summary_longer_than_allowed_is_truncated_at_twice_what_was_asked_for(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(worker([1_000, 5_000, 7_600, 900], "long " * 1_500, "seq {n} 1800"))
    talk = await talks(flags={**window(10_000), "compaction.summary_tokens": 200}, yolo=True)
    await talk.ask("go")
    summary = seed_of(talk).summary
    # At most 400 tokens as the server counts them, which are more of ours.
    assert summary.endswith(" …") and 100 < len(summary.split()) <= 601


async def test_a_provider_that_overflows_from_the_boundary_on_gets_two_summaries_to_write_at_most(
    talks: Talks, llm: ScriptedLLM
) -> None:
    work = worker([1_000, 3_000, 7_600])
    llm.always(lambda body: Overflow() if len(llm.requests) > 3 else work(body))
    talk = await talks(flags=window(10_000), yolo=True)
    assert await talk.ask("go") == "error"
    assert len(summaries(llm)) == 2


@pytest.mark.slow
async def test_the_evidence_alone_is_the_same_for_the_same_history(talks: Talks, llm: ScriptedLLM) -> None:
    seeds: list[str] = []
    for _ in range(2):
        work = worker([1_000, 7_600, 900])
        llm.always(lambda body, work=work: Fail(400) if is_summary(body) else work(body))
        talk = await talks(flags=window(10_000), yolo=True)
        await talk.ask("the same")
        seeds.append(seed_of(talk).evidence)
        await talk.close()
    assert seeds[0] == seeds[1]


# --- usage -------------------------------------------------------------------------------------------------


async def test_a_missing_usage_is_estimated_and_said_once(talks: Talks, llm: ScriptedLLM) -> None:
    steps = iter(range(3))

    def answer(body: dict[str, Any]) -> Answer:
        number = next(steps, None)
        calls = [] if number is None else [Call("bash", {"command": f"echo {number}"})]
        return Reply("x", calls=calls, usage=None)

    llm.always(answer)
    talk = await talks(flags=window(100_000), yolo=True)
    assert await talk.ask("go") == "done"
    assert talk.conversation.context.budget().estimated
    assert sum("implausible usage" in notice.text for notice in talk.of(Notice)) == 1


async def test_boundary_uses_the_estimate_when_no_usage_is_reported(talks: Talks, llm: ScriptedLLM) -> None:
    steps = iter(range(12))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return Reply("Notes.", usage=None)
        number = next(steps, None)
        calls = [] if number is None else [Call("bash", {"command": f"seq {number} 900"})]
        return Reply("x", calls=calls, usage=None)

    llm.always(answer)
    talk = await talks(flags=window(16_000), yolo=True)
    assert await talk.ask("go") == "done"
    assert talk.of(BoundaryCommitted) and all(b.tokens_before >= 12_000 for b in talk.of(BoundaryCommitted))


@pytest.mark.slow
async def test_a_doubled_usage_makes_boundaries_come_early_but_never_without_end(
    talks: Talks, llm: ScriptedLLM
) -> None:
    steps = iter(range(12))

    def answer(body: dict[str, Any]) -> Answer:
        size = len(json.dumps(body["messages"])) // 4 * 2
        if is_summary(body):
            return Reply("Notes.", usage=Usage(size, 9))
        number = next(steps, None)
        calls = [] if number is None else [Call("bash", {"command": f"seq {number} 900"})]
        return Reply("x", calls=calls, usage=Usage(size, 9))

    llm.always(answer)
    talk = await talks(flags=window(30_000), yolo=True)
    assert await talk.ask("go") == "done"
    assert 1 <= len(talk.of(BoundaryCommitted)) <= 6


# --- new_session -------------------------------------------------------------------------------------------


async def test_background_jobs_go_on_across_a_new_session_and_the_child_is_told(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": "echo started; sleep 60", "background": True})]),
        Reply(calls=[Call("new_session", {"summary": "Notes."})]),
        Reply(calls=[Call("job_output", {"job_id": "job1"})]),
        "done",
    )
    talk = await talks(flags={"compaction.method": "llm"}, yolo=True)
    assert await talk.ask("serve it") == "done"
    assert "job1: echo started; sleep 60" in seed_of(talk).evidence
    answer = talk.of(ToolFinished)[-1]
    assert not answer.is_error and "is running" in answer.text


async def test_a_new_session_keeps_todos_grants_title_model_and_folder(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[Call("todos", {"todos": [{"text": "still to do", "status": "pending"}]})]),
        Reply(calls=[Call("new_session", {"summary": "Notes."})]),
        "done",
    )
    talk = await talks(flags={"compaction.method": "llm"}, yolo=True)
    await talk.ask("name of it all")
    store = Store(Paths().database)
    child = await store.sessions.find(talk.conversation.info.id)
    parent = await store.sessions.find(talk.conversation.info.root_id)
    await store.close()
    assert child.generation == 1 and child.todos == parent.todos and child.todos[0].text == "still to do"
    same = ("title", "model", "cwd", "grants", "system", "compaction")
    assert [getattr(child, name) for name in same] == [getattr(parent, name) for name in same]


async def test_undo_after_several_generations_names_the_files_of_all_of_them(
    talks: Talks, llm: ScriptedLLM
) -> None:
    steps: list[Answer] = []
    for number in range(3):
        steps += [
            Reply(calls=[Call("new_session", {"summary": f"Notes {number}."})]),
            Reply(calls=[Call("write", {"file_path": f"made-{number}.txt", "content": "x"})]),
        ]
    llm.script(*steps, "done")
    talk = await talks(flags={"compaction.method": "llm"}, yolo=True)
    await talk.ask("go")
    root = talk.conversation.info.root_id
    assert talk.conversation.info.generation == 3
    for _ in range(3):
        assert await talk.conversation.context.undo_compaction()
    assert talk.conversation.info.id == root
    assert not await talk.conversation.context.undo_compaction(), "there is nothing before the first session"
    llm.script("back")
    await talk.ask("go on")
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert all(f"made-{number}.txt" in sent for number in range(3))
    assert sent.count("undid the compaction") == 1
