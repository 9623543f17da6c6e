"""`crushpy run` across boundaries: the agent's own, one made by crushpy, and what the lines say of them."""

import json
from typing import Any

from headless import MODEL, Run
from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.messages import Usage


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines if line["type"] in ("session", "boundary", "result")]


def test_a_new_session_headless_runs_on_in_the_child_to_its_end(run: Run, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": "echo one"})]),
        Reply(calls=[Call("new_session", {"summary": "We said one."})]),
        Reply(calls=[Call("bash", {"command": "echo two"})]),
        "All done.",
    )
    done = run("--yolo", "--compaction", "llm", "count to two")
    assert done.code == 0
    assert kinds(done.lines) == ["session", "boundary", "session", "result"]
    first, second = done.of("session")
    (boundary,) = done.of("boundary")
    assert (first["parent_id"], second["parent_id"]) == (None, first["id"])
    assert first["compaction"] == second["compaction"] == "llm"
    assert boundary["trigger"] == "agent"
    assert (boundary["parent_id"], boundary["child_id"]) == (first["id"], second["id"])
    assert boundary["tokens_before"] > 0 and boundary["tokens_after"] > 0 and boundary["coverage"] == 1.0
    assert done.result["session_id"] == second["id"] and done.result["root_id"] == first["id"]
    assert done.result["text"] == "All done."
    told = json.dumps(llm.requests[-1].body["messages"])
    assert "We said one." in told and "count to two" in told


def test_the_safety_net_holds_headless_and_every_request_but_the_summary_has_one_status(
    run: Run, llm: ScriptedLLM
) -> None:
    used = iter((2_000, 9_500, 2_000))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("Notes.", usage=Usage(900, 9))
        tokens = next(used, None)
        if tokens is None:
            return Reply("All done.", usage=Usage(900, 9))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 9))

    llm.always(answer)
    done = run(
        "--yolo",
        "--compaction",
        "llm",
        "go",
        env={f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "10000"},
    )
    assert done.code == 0, done.stderr
    assert [line["trigger"] for line in done.of("boundary")] == ["fallback"]
    counts = [json.dumps(request.body["messages"]).count("<context_status>{") for request in llm.requests]
    asked = ["<transcript>" in json.dumps(request.body["messages"][-1]) for request in llm.requests]
    assert counts == [0 if summary else 1 for summary in asked] and sum(asked) == 1
