"""What was shown of a reply is kept, and what came to nothing is paid: through kills and empty replies."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from scripted_llm import Reply, ScriptedLLM, Stall
from support.headless import Run, Start, llm_env, run, start
from support.talk import Talks, talks

from crushpy.core.events import MessageCommitted, TextDelta, UsageReported
from crushpy.core.messages import Text, Thinking, Usage
from crushpy.core.paths import Paths
from crushpy.storage.store import Store

__all__ = ["llm_env", "run", "start", "talks"]


async def kept(session_id: str) -> str:
    store = Store(Paths().database)
    try:
        draft = await store.messages.load_draft(session_id, recover=False)
    finally:
        await store.close()
    return draft.text if draft is not None else ""


async def test_a_kill_in_mid_stream_keeps_what_was_shown_marked_as_cut(
    start: Start, run: Run, llm: ScriptedLLM, home: Path
) -> None:
    words = "one two three four five six"
    llm.script(
        Stall(Reply(f"{words} and never this", thinking="Let me think.", chunk=len(words)), after=2), "ok"
    )
    live = start("count")
    live.until(
        lambda lines: "".join(line.get("text", "") for line in lines if line["type"] == "text") == words
    )
    session = live.session
    deadline = time.monotonic() + 60
    while await kept(session) != words:
        assert time.monotonic() < deadline
    live.process.kill()
    live.end()
    assert run("--session", session, "go on").code == 0
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert words in sent
    assert "never this" not in sent
    store = Store(Paths().database)
    messages = await store.messages.load(session)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[1].finish == "interrupted"
    assert messages[1].parts == (Thinking("Let me think."), Text(words))
    assert await store.messages.load_draft(session, recover=False) is None
    await store.close()


@pytest.mark.slow
async def test_a_reply_that_is_stored_leaves_no_draft(run: Run, llm: ScriptedLLM, home: Path) -> None:
    llm.script(Reply("slowly now", chunk=2, delay=0.15))
    done = run("go")
    assert done.code == 0
    assert await kept(done.result["session_id"]) == ""


async def test_an_empty_reply_is_paid_and_what_was_thought_for_it_is_kept(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    llm.script(
        Reply("", thinking="Hm.", usage=Usage(1_000, 50)), Reply("", usage=Usage(2_000, 5)), Reply("Yes.")
    )
    talk = await talks()
    assert await talk.ask("well?") == "done"
    conversation = talk.conversation
    thought = [
        part.text for message in conversation.history for part in message.parts if isinstance(part, Thinking)
    ]
    assert thought == ["Hm."]
    last = conversation.history[-1].usage
    assert last is not None
    assert conversation.usage.total == 1_050 + 2_005 + last.total
    totals = [event.total.total for event in talk.of(UsageReported)]
    assert totals == sorted(totals)
    assert talk.of(MessageCommitted)[-1].text == "Yes."
    assert "Hm." not in json.dumps(llm.requests[-1].body["messages"])
    session = conversation.info.id
    before = conversation.usage
    await talk.close()
    again = await talks(session=session)
    assert again.conversation.usage == before


async def test_tokens_of_a_reply_that_is_interrupted_are_counted_by_us(
    talks: Talks, llm: ScriptedLLM
) -> None:
    price: dict[str, object] = {'models."openai/test-model".input_cost': 100.0}
    llm.script(Stall(Reply("Some words and more", chunk=10), after=1), "Well.")
    talk = await talks(flags=price)
    turn = asyncio.create_task(talk.ask("count"))
    await talk.until_event(TextDelta)
    assert talk.conversation.interrupt() and await turn == "interrupted"
    used, history = talk.conversation.usage, talk.conversation.history
    assert used.input_tokens > 500 and used.output_tokens > 0 and used.cost > 0
    assert history[-1].usage is None, "no report of the server"
    talk.conversation.prompts.close()
    await talk.close()
    assert "$" in talk.conversation.run_summary and "0 tokens" not in talk.conversation.run_summary
    again = await talks(session=talk.conversation.info.id)
    assert again.conversation.usage == used


async def test_a_total_never_goes_down_not_even_by_an_undo(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    llm.always(Reply("Yes.", usage=Usage(1_000, 100)))
    talk = await talks()
    await talk.ask("one")
    await talk.ask("two")
    assert await talk.conversation.context.compact(summary="## Goal\nGo on.")
    await talk.ask("three")
    before = talk.conversation.usage
    assert await talk.conversation.context.undo_compaction()
    assert talk.conversation.usage == before
    session = talk.conversation.info.id
    await talk.close()
    again = await talks(session=session)
    assert again.conversation.usage == before
