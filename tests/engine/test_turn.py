"""Turns through the real engine: what is stored, what is sent, what is said."""

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Cut, Empty, Fail, Garbage, NoFinish, RateLimit, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.process_state import marked
from support.talk import Talks

from crushpy.core.events import (
    ApprovalNeeded,
    Error,
    MessageCommitted,
    Notice,
    PromptCommitted,
    PromptQueued,
    Retry,
    SessionOpened,
    TextDelta,
    ThinkingDelta,
    TodosChanged,
    ToolCalled,
    ToolFinished,
    ToolOutput,
    TurnEnded,
    UsageReported,
)
from crushpy.core.messages import Usage, headline
from crushpy.engine.step.stored_turn import THINKING_DROPPED
from crushpy.llm.errors import BadRequest


def sent_roles(llm: ScriptedLLM, number: int = -1) -> list[str]:
    return [message["role"] for message in llm.requests[number].body["messages"]]


async def test_a_prompt_becomes_a_session_a_reply_and_an_end(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hello there.", chunk=3, usage=Usage(100, 5)))
    talk = await talks()
    assert await talk.ask("Hi") == "done"
    assert [type(event) for event in talk.events if not isinstance(event, TextDelta | Notice)] == [
        SessionOpened,
        PromptCommitted,
        MessageCommitted,
        UsageReported,
        TurnEnded,
    ]
    assert [message.text for message in talk.conversation.history] == ["Hi", "Hello there."]
    assert talk.conversation.usage.total == 105


async def test_tools_run_and_their_results_go_back_to_the_model(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    llm.script(Reply("Looking.", calls=[Call("view", {"file_path": "a.txt"}, id="c1")]), "It says alpha.")
    talk = await talks()
    assert await talk.ask("What is in a.txt?") == "done"
    sent = llm.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert "alpha" in sent[3]["content"]
    assert sent[3]["tool_call_id"] == "c1"


async def test_thinking_that_the_provider_refuses_is_left_out_and_the_user_is_told_once_a_turn(
    talks: Talks, llm: ScriptedLLM
) -> None:
    refused = Fail(400, message="messages.1.content.0: Invalid `signature` in `thinking` block")
    look = Call("ls", {})
    llm.script(Reply("Look.", thinking="hm", calls=[look]), refused, Reply("More.", calls=[look]))
    llm.script(refused, "Done.", "Well.")
    lab = {
        "providers.lab.protocol": "anthropic",
        "providers.lab.api_base": llm.url,
        "model": "lab/test-model",
    }
    talk = await talks(flags=lab)
    assert await talk.ask("go") == "done"
    assert [b"c2lnbmF0dXJl" in sent.raw for sent in llm.requests] == [False, True, False, True, False]
    assert sum(notice.text == THINKING_DROPPED for notice in talk.of(Notice)) == 1
    assert await talk.ask("and now?") == "done"
    assert b"c2lnbmF0dXJl" in llm.requests[-1].raw, "the next request has it again"


class Pages:
    """A web server whose pages answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []
        self._changed = asyncio.Condition()
        self._answers: dict[str, asyncio.Event] = {}

    def answer(self, path: str) -> None:
        self._answers.setdefault(path, asyncio.Event()).set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        await self._note(self.asked, path)
        answered = asyncio.ensure_future(self._answers.setdefault(path, asyncio.Event()).wait())
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
        else:
            await self._note(self.left, path)
        answered.cancel()
        gone.cancel()
        writer.close()

    async def _note(self, what: list[str], path: str) -> None:
        async with self._changed:
            what.append(path)
            self._changed.notify_all()


@pytest.fixture
async def pages() -> AsyncIterator[tuple[Pages, str]]:
    pages = Pages()
    server = await asyncio.start_server(pages.serve, "127.0.0.1")
    yield pages, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_reading_tools_of_one_reply_run_side_by_side_and_answer_in_order(
    talks: Talks, llm: ScriptedLLM, pages: tuple[Pages, str]
) -> None:
    web, address = pages
    calls = [Call("fetch", {"url": f"{address}/{name}"}, id=name) for name in "abc"]
    llm.script(Reply(calls=calls), "done")
    talk = await talks(yolo=True, flags={"permissions.private_hosts": True})
    turn = asyncio.create_task(talk.ask("read them"))
    await web.until(lambda: len(web.asked) == 3)  # all of them, before any has an answer
    for name in "cba":
        web.answer(f"/{name}")
    assert await turn == "done"
    results = [m["tool_call_id"] for m in llm.requests[1].body["messages"] if m["role"] == "tool"]
    assert results == ["a", "b", "c"]


async def test_calls_of_a_reply_run_sixteen_at_a_time(
    talks: Talks, llm: ScriptedLLM, pages: tuple[Pages, str]
) -> None:
    web, address = pages
    names = [f"p{number}" for number in range(20)]
    llm.script(Reply(calls=[Call("fetch", {"url": f"{address}/{name}"}, id=name) for name in names]), "done")
    talk = await talks(yolo=True, flags={"permissions.private_hosts": True})
    turn = asyncio.create_task(talk.ask("read them"))
    for done in range(len(names)):
        await web.until(lambda done=done: len(web.asked) == min(len(names), 16 + done))
        web.answer(web.asked[done])
    assert await turn == "done"
    results = [m["tool_call_id"] for m in llm.requests[1].body["messages"] if m["role"] == "tool"]
    assert results == names


async def test_an_interrupt_while_hundreds_of_calls_begin_leaves_each_told_and_answered(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    calls = [Call("view", {"file_path": "a.txt"}, id=f"c{number}") for number in range(300)]
    llm.script(Reply(calls=calls), "ok")
    talk = await talks(yolo=True)
    turn = asyncio.create_task(talk.ask("read them"))
    await talk.until_event(ToolCalled)
    talk.conversation.interrupt()
    assert await turn == "interrupted"
    assert [event.id for event in talk.of(ToolCalled)] == [call.id for call in calls]
    assert {event.id for event in talk.of(ToolFinished)} == {call.id for call in calls}
    assert await talk.ask("what happened?") == "done"
    assert sent_roles(llm) == ["system", "user", "assistant", *["tool"] * 300, "user"]


async def test_parallel_calls_stop_when_a_result_cannot_be_stored(
    talks: Talks, llm: ScriptedLLM, pages: tuple[Pages, str], home: Path
) -> None:
    web, address = pages
    llm.script(Reply(calls=[Call("fetch", {"url": f"{address}/{name}"}) for name in ("quick", "slow")]))
    talk = await talks(yolo=True, flags={"permissions.private_hosts": True})
    turn = asyncio.create_task(talk.ask("read them"))
    await web.until(lambda: len(web.asked) == 2)
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        database.execute("ALTER TABLE message RENAME TO gone")
    web.answer("/quick")
    assert await turn == "error"
    await web.until(lambda: web.left == ["/slow"])
    (error,) = talk.of(Error)
    assert "message" in error.message


async def test_a_repeated_call_id_is_made_unique(talks: Talks, llm: ScriptedLLM) -> None:
    twice = [Call("ls", {}, id="same"), Call("ls", {}, id="same")]
    llm.script(Reply(calls=twice), Reply(calls=[Call("ls", {}, id="same")]), "done")
    talk = await talks()
    await talk.ask("look")
    ids = [event.id for event in talk.of(ToolCalled)]
    assert len(set(ids)) == 3


async def test_an_unknown_tool_gets_an_error_that_names_those_there_are(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[Call("frobnicate", {})]), "sorry")
    talk = await talks()
    await talk.ask("go")
    (result,) = talk.of(ToolFinished)
    assert result.is_error and "frobnicate" in result.text and "view" in result.text


async def test_bad_arguments_get_an_error_that_says_what_the_tool_takes(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[Call("view", {"path": "x"}), Call("view", '["x"]'), Call("view", '{"file_path": ')]),
        "sorry",
    )
    talk = await talks()
    await talk.ask("go")
    wrong_name, not_object, broken = talk.of(ToolFinished)
    assert wrong_name.is_error and "file_path" in wrong_name.text
    assert not_object.is_error and "not a JSON object" in not_object.text
    assert broken.is_error and "not a JSON object" in broken.text


async def test_numbers_written_as_text_and_nulls_are_understood(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    llm.script(Reply(calls=[Call("view", {"file_path": "a.txt", "offset": "2", "limit": None})]), "ok")
    talk = await talks()
    await talk.ask("go")
    (result,) = talk.of(ToolFinished)
    assert not result.is_error and "two" in result.text and "one" not in result.text


async def test_a_reply_cut_at_the_output_limit_runs_nothing(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(
        Reply(calls=[Call("write", {"file_path": "x", "content": "half"})], finish="length"),
        "I will try again.",
    )
    talk = await talks(yolo=True)
    await talk.ask("write x")
    (result,) = talk.of(ToolFinished)
    assert result.is_error and "cut off" in result.text
    assert not (workspace / "x").exists()


async def test_a_tool_is_never_run_from_a_cut_stream(talks: Talks, llm: ScriptedLLM, workspace: Path) -> None:
    cut = Reply("Now", calls=[Call("bash", {"command": "touch ran"})], chunk=4)
    llm.script(Cut(cut, after=6), "Fine without.")
    talk = await talks(yolo=True)
    assert await talk.ask("go") == "done"
    assert len(talk.of(Retry)) == 1
    assert not talk.of(ToolCalled)
    assert not (workspace / "ran").exists()
    assert talk.of(MessageCommitted)[0].text == "Fine without."


async def test_turn_retries_temporary_errors_with_a_notice(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(RateLimit(retry_after=0.01), Fail(503), Garbage(), Empty(), NoFinish(), "Here.")
    talk = await talks()
    assert await talk.ask("go") == "done"
    assert [retry.attempt for retry in talk.of(Retry)] == [1, 2, 3, 4, 5]
    assert all(retry.reason for retry in talk.of(Retry))


async def test_a_refused_key_ends_the_turn_at_once_with_the_way_out(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Fail(401, message="Incorrect API key provided"))
    talk = await talks()
    assert await talk.ask("go") == "error"
    (error,) = talk.of(Error)
    assert error.kind == "authentication" and "OPENAI_API_KEY" in error.hint + error.message
    assert len(llm.requests) == 1
    assert [message.text for message in talk.conversation.history] == ["go"]


async def test_prompt_works_after_a_failed_turn(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Fail(400, message="no"), "Better.")
    talk = await talks()
    assert await talk.ask("first") == "error"
    assert await talk.ask("second") == "done"
    assert sent_roles(llm) == ["system", "user"]
    assert "first" in json.dumps(llm.requests[1].body["messages"][1])


async def test_an_interrupted_reply_keeps_its_text_and_closes_the_socket(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("Half a thought", chunk=4), after=2), "Go on.")
    talk = await talks()
    turn = asyncio.create_task(talk.ask("think"))
    await talk.until_event(TextDelta)
    assert talk.conversation.interrupt()
    assert await turn == "interrupted"
    await llm.wait_closed()
    assert talk.conversation.history[-1].finish == "interrupted"
    assert await talk.ask("more") == "done"
    assert sent_roles(llm) == ["system", "user", "assistant", "user"]


async def test_an_interrupt_at_once_keeps_the_prompt(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(headers=False), "Hello.")
    talk = await talks()
    talk.conversation.submit("first")
    talk.conversation.interrupt()
    await talk.until_event(TurnEnded)
    assert talk.of(TurnEnded)[0].status == "interrupted"
    assert [message.text for message in talk.conversation.history] == ["first"]


async def test_unanswered_prompt_is_part_of_the_next_request_where_it_cannot_go_back_to_an_input(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Stall(headers=False), "Hello.")
    talk = await talks()
    talk.conversation.submit("first")
    await llm.wait_requests()
    talk.conversation.interrupt()
    await talk.until_event(TurnEnded)
    assert talk.conversation.prompts.queue == () and talk.of(PromptQueued) == []
    assert await talk.ask("second") == "done"
    assert llm.requests[-1].body["messages"][-1]["content"] == "first\n\nsecond"


async def test_unanswered_prompt_is_withdrawn_and_queued_in_the_app(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(headers=False), "Hello.", "Here.")
    talk = await talks(interactive=True)
    talk.conversation.submit("first")
    await llm.wait_requests()
    talk.conversation.interrupt()
    queued = await talk.until_event(PromptQueued)
    assert queued.text == "first" and not talk.conversation.busy
    assert talk.conversation.prompts.send_queued()
    await talk.until_event(TurnEnded, 2)
    assert llm.requests[1].body["messages"][-1]["content"] == "first"
    assert talk.of(PromptCommitted)[1].message_id == queued.id


async def test_unanswered_prompt_is_part_of_the_next_request_when_the_app_was_left(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Stall(headers=False), "Hello.")
    talk = await talks(interactive=True)
    talk.conversation.submit("first")
    await llm.wait_requests()
    await talk.close()
    talk = await talks(resume_latest=True)
    assert await talk.ask("second") == "done"
    assert llm.requests[-1].body["messages"][-1]["content"] == "first\n\nsecond"


async def test_prompt_stays_when_thoughts_of_its_reply_have_come(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Yes.", thinking="Well, then"), after=1), "Hello.")
    talk = await talks(interactive=True)
    talk.conversation.submit("first")
    await talk.until_event(ThinkingDelta)
    talk.conversation.interrupt()
    await talk.until_event(TurnEnded)
    await talk.until(lambda: not talk.conversation.busy)
    assert talk.conversation.prompts.queue == ()
    assert await talk.ask("second") == "done"
    assert "first" in json.dumps(llm.requests[1].body["messages"])


async def test_an_interrupt_while_the_model_is_silent_ends_the_turn(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(headers=False))
    talk = await talks()
    talk.conversation.submit("first")
    await talk.until_event(PromptCommitted)
    await llm.wait_requests()
    talk.conversation.interrupt()
    ended = await talk.until_event(TurnEnded)
    assert ended.status == "interrupted" and not talk.conversation.busy
    await llm.wait_closed()


async def test_an_interrupted_tool_has_a_result_and_leaves_no_process(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    mark = f"300.{os.getpid()}"
    command = f"sleep {mark} & echo started; wait; touch finished"
    llm.script(Reply(calls=[Call("bash", {"command": command}), Call("ls", {})]), "ok")
    talk = await talks(yolo=True)
    turn = asyncio.create_task(talk.ask("run it"))
    await talk.until_event(ToolOutput)
    talk.conversation.interrupt()
    assert await turn == "interrupted"
    first, second = talk.of(ToolFinished)
    assert first.is_error and "Interrupted" in first.text
    assert second.is_error and "Not run" in second.text
    assert not marked(mark)
    assert not (workspace / "finished").exists()
    assert await talk.ask("what happened?") == "done"
    assert sent_roles(llm) == ["system", "user", "assistant", "tool", "tool", "user"]


async def test_a_call_that_was_still_waiting_for_permission_is_stored_as_not_run(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "touch ran"})]), "ok")
    talk = await talks(interactive=True)
    turn = asyncio.create_task(talk.ask("run it"))
    await talk.until_event(ApprovalNeeded)
    talk.conversation.interrupt()
    assert await turn == "interrupted"
    (result,) = talk.of(ToolFinished)
    assert result.is_error and result.text == "Not run: interrupted by the user."
    assert not (workspace / "ran").exists()


async def test_prompts_typed_meanwhile_wait_and_go_out_in_order(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("one", chunk=1), after=1), "two", "three")
    talk = await talks()
    talk.conversation.submit("first")
    await talk.until_event(TextDelta)
    talk.conversation.submit("second")
    talk.conversation.submit("third")
    talk.conversation.submit("never")
    removed = talk.conversation.prompts.unqueue(talk.of(PromptQueued)[2].id)
    assert removed is not None and removed.text == "never"
    llm.release()
    await talk.until_event(TurnEnded, 3)
    assert [event.text for event in talk.of(PromptCommitted)] == ["first", "second", "third"]


async def test_queue_waits_after_an_interrupt(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("one", chunk=1), after=1), "two")
    talk = await talks()
    talk.conversation.submit("first")
    await talk.until_event(TextDelta)
    talk.conversation.submit("second")
    talk.conversation.interrupt()
    await talk.until_event(TurnEnded)
    assert not talk.conversation.busy
    assert [prompt.text for prompt in talk.conversation.prompts.queue] == ["second"]
    assert talk.conversation.prompts.send_queued()
    await talk.until_event(TurnEnded, 2)
    assert talk.of(TurnEnded)[1].status == "done"


async def test_the_same_call_with_the_same_result_is_noted_at_five_and_ended_at_ten(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(Reply(calls=[Call("ls", {})]))
    talk = await talks()
    assert await talk.ask("go") == "loop"
    results = talk.of(ToolFinished)
    assert len(results) == 10
    assert ["times in a row" in result.text for result in results].index(True) == 4
    assert sum("times in a row" in result.text for result in results) == 1


async def test_limits_end_the_turn(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(
        lambda body: Reply(
            calls=[Call("bash", {"command": f"echo {len(body['messages'])}"})], usage=Usage(1000, 10)
        )
    )
    steps = await talks(yolo=True, max_steps=2)
    assert await steps.ask("go") == "limit"
    assert len(steps.of(MessageCommitted)) == 2
    tokens = await talks(yolo=True, max_tokens=1500)
    assert await tokens.ask("go") == "limit"
    assert len(tokens.of(MessageCommitted)) == 2
    prices = {'models."openai/test-model".input_cost': 1000.0}
    cost = await talks(yolo=True, max_cost=1.5, flags=prices)
    assert await cost.ask("go") == "limit"
    assert len(cost.of(MessageCommitted)) == 2
    assert cost.conversation.usage.cost >= 1.5


async def test_todos_are_kept_with_the_session(talks: Talks, llm: ScriptedLLM) -> None:
    todos = [{"text": "one", "status": "completed"}, {"text": "two", "status": "in_progress"}]
    llm.script(Reply(calls=[Call("todos", {"todos": todos})]), "ok", "again")
    talk = await talks()
    await talk.ask("plan")
    assert [todo.text for todo in talk.of(TodosChanged)[0].todos] == ["one", "two"]
    await talk.close()
    again = await talks(resume_latest=True)
    assert [todo.status for todo in again.conversation.info.todos] == ["completed", "in_progress"]


async def test_the_prefix_of_every_request_is_byte_identical(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "AGENTS.md").write_text("Be kind.")
    llm.script(Reply(calls=[Call("ls", {})]), "a", "b", "c")
    talk = await talks()
    await talk.ask("one")
    (workspace / "AGENTS.md").write_text("Be quick.")
    await talk.ask("two")
    await talk.close()
    again = await talks(resume_latest=True)
    await again.ask("three")
    before: list[str] = []
    for request in llm.requests:
        now = [json.dumps(message) for message in request.body["messages"]]
        assert now[: len(before)] == before
        assert request.body["tools"] == llm.requests[0].body["tools"]
        before = now
    assert "Be kind." in before[0]


async def test_a_closed_conversation_warms_nothing_up(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    others = set(threading.enumerate())
    talk = await talks()
    talk.conversation.approvals.warm_up()
    await talk.close()
    (home / "crushpy.db").unlink()
    talk.conversation.approvals.warm_up()
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("storage"):
            thread.join()
    assert not (home / "crushpy.db").exists()


async def test_a_model_of_an_unknown_provider_is_not_chosen(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await talks()
    with pytest.raises(BadRequest) as refused:
        await talk.conversation.choices.select_model("nope/nothing")
    assert "nope/nothing" in str(refused.value) and "crushpy models" in str(refused.value)
    assert talk.conversation.info.model == "openai/test-model"
    await talk.conversation.choices.select_model("openai/another-of-mine")
    assert talk.conversation.info.model == "openai/another-of-mine"


def test_call_headline_fits_a_line_for_any_arguments() -> None:
    assert headline("bash", {"command": "make\ntest"}) == "make"
    assert headline("task", {"description": "find it"}) == "find it"  # as other agents name the prompt
    assert headline("skill", {"name": "pdf"}) == "pdf"
    assert headline("bash", {"command": "make\ntest"}, more=" …") == "make …"
    assert headline("bash", {"command": " \n "}) == ""
    assert headline("todos", {"todos": [1, 2]}) == "2 items"
    assert len(headline("view", {"file_path": "x" * 500})) == 120
