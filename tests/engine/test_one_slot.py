"""A local server that answers one request at a time: nothing but the agent's own requests is sent to it."""

import asyncio
import json
from typing import Any

import pytest
from scripted_llm import Raw, ScriptedLLM
from support.talk import MODEL, Talks
from test_preparation import FULL, NEARLY, model, states, summaries

from crushpy.core.events import READING_PROMPT, BoundaryCommitted, Progress

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"compaction.moments": False}


def has_slots(llm: ScriptedLLM, count: int) -> None:
    llm.props = {"total_slots": count, "default_generation_settings": {"n_ctx": 10_000}}


@pytest.mark.parametrize(("slots", "prepared"), [(1, 0), (4, 1)])
async def test_summary_is_prepared_only_if_the_server_has_another_slot(
    talks: Talks, llm: ScriptedLLM, slots: int, prepared: int
) -> None:
    has_slots(llm, slots)
    llm.always(model(1_000, 2_000, NEARLY, NEARLY + 20))
    talk = await talks(flags=SETTINGS, yolo=True)
    assert await talk.ask("Begin the work") == "done"
    await llm.wait_requests(4 + prepared)
    assert len(summaries(llm)) == prepared == states(talk).count("preparing")
    llm.always(model(FULL, 900))
    await talk.ask("Go on")
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.prepared is bool(prepared)


@pytest.mark.parametrize(("slots", "requests"), [(1, 2), (4, 3)])
@pytest.mark.parametrize(
    "flags",
    [{}, {"small_model": "openai/small"}, {f'models."{MODEL}".context_window': 20_000}],
    ids=["same model", "small model", "window of the settings"],
)
async def test_title_is_asked_for_only_if_the_server_has_another_slot(
    talks: Talks, llm: ScriptedLLM, slots: int, requests: int, flags: dict[str, Any]
) -> None:
    has_slots(llm, slots)
    llm.always("A good title")
    talk = await talks(interactive=True, flags=flags)
    await talk.ask("Explain the parser")
    await llm.wait_requests(requests - 1)
    await talk.ask("And the lexer")
    assert len(llm.requests) == requests


async def test_reading_of_a_long_prompt_is_reported_and_interrupted_at_the_server(
    talks: Talks, llm: ScriptedLLM
) -> None:
    progress = {"total": 2_200, "cache": 0, "processed": 1_400, "time_ms": 9}
    llm.script(Raw(f"data: {json.dumps({'choices': [], 'prompt_progress': progress})}\n\n", hang=True))
    talk = await talks()
    asked = asyncio.create_task(talk.ask("Explain the parser"))
    await talk.until_event(Progress)
    assert talk.conversation.interrupt()
    assert await asked == "interrupted"
    await llm.wait_closed()
    assert [(event.what, event.done, event.total) for event in talk.of(Progress)] == [
        (READING_PROMPT, 1_400, 2_200),
        (READING_PROMPT, 2_200, 2_200),
    ]
