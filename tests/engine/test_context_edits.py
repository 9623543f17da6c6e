"""The context as a list one can edit: what the next request holds, and what becomes of it at a boundary."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Overflow, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.context.coverage import lineage_words
from crushpy.context.edits import ContextEdit, effect_words
from crushpy.context.overrides import apply_overrides
from crushpy.context.render import seed_text
from crushpy.core.boundary import of_this_boundary
from crushpy.core.errors import UsageError
from crushpy.core.events import BoundaryCommitted, TitleChanged, TodosChanged
from crushpy.core.messages import Message, Usage
from crushpy.core.paths import Paths
from crushpy.storage.store import Store

WIDE: dict[str, object] = {f"models.{MODEL}.context_window": 100_000, "compaction.keep_recent_tokens": 0}
COUNT = "for i in $(seq 1 400); do echo planted-$i; done"
SHORTEN = [ContextEdit("shorten", "superseded")]


async def worked(talks: Talks, llm: ScriptedLLM, **wanted: Any) -> Talk:
    batch = [Call("bash", {"command": COUNT}), Call("bash", {"command": "echo beside"})]
    llm.script(
        Reply("I look.", calls=batch),
        Reply("The first answer.", usage=Usage(50_000, 10, cache_read_tokens=5)),
        "The second answer.",
    )
    talk = await talks(flags=WIDE, yolo=True, **wanted)
    await talk.ask("the first request")
    await talk.ask("the second request")
    return talk


def found(talk: Talk, text: str) -> Message:
    texts = [
        (message, message.result.text if message.result else message.text)
        for message in talk.conversation.history
    ]
    return next(message for message, said in texts if text in said)


def drop(talk: Talk, text: str) -> list[ContextEdit]:
    return [ContextEdit("drop", found(talk, text).id)]


def seed_of(talk: Talk) -> str:
    """What the session started with, as requests show it."""
    shown = apply_overrides(talk.conversation.history, talk.conversation.session.overrides)
    assert shown[0].seed is not None
    return seed_text(shown[0].seed)


async def asked(talk: Talk, llm: ScriptedLLM, prompt: str = "go on") -> str:
    llm.script("Yes.")
    await talk.ask(prompt)
    return json.dumps(llm.requests[-1].body["messages"])


async def test_the_next_request_leaves_out_what_is_dropped_and_it_comes_back(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    effect = await talk.conversation.context.edit(drop(talk, "planted"))
    assert effect.tokens_freed > 400 and len(effect.messages) == 3 and len(effect.along) == 2
    sent = await asked(talk, llm)
    assert "planted" not in sent and "I look." not in sent and "tool_calls" not in sent
    assert "the first request" in sent and "The first answer." in sent
    await talk.conversation.context.edit([ContextEdit("restore", found(talk, "planted").id)])
    sent = await asked(talk, llm, "and now")
    assert "planted-400" in sent and "beside" in sent


async def test_edits_are_stored_and_a_branch_inherits_them(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    await talk.conversation.context.edit(
        [*drop(talk, "The first answer."), ContextEdit("shorten", found(talk, "planted").id)]
    )
    whole = [message.id for message in talk.conversation.history]
    await talk.close()
    again = await talks(session=talk.conversation.info.id)
    assert [message.id for message in again.conversation.history] == whole, "nothing is deleted"
    branch = await talks(session=talk.conversation.info.id, fork=True)
    rewound = await talks(session=branch.conversation.info.id, at=found(again, "the second request").id)
    for opened in (again, branch, rewound):
        sent = await asked(opened, llm)
        assert "The first answer." not in sent
        assert "planted-1\\" in sent and "planted-200" not in sent and "shortened by the user" in sent


async def test_a_dry_run_changes_nothing(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    planned = await talk.conversation.context.edit(drop(talk, "planted"), dry_run=True)
    assert "planted-400" in await asked(talk, llm)
    assert planned.tokens_freed > 400
    store = Store(Paths().database)
    assert not (await store.boundaries.load_carried(talk.conversation.info.id)).overrides
    await store.close()


async def test_the_old_reading_is_void_and_so_it_is_after_a_restart(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    llm.script(Reply("Much.", usage=Usage(60_000, 10)))
    await talk.ask("how much?")
    assert (
        talk.conversation.context.budget().used == 60_010 and not talk.conversation.context.budget().estimated
    )
    await talk.conversation.context.edit(drop(talk, "planted"))
    now = talk.conversation.context.budget()
    assert now.estimated and now.used < 30_000
    await talk.close()
    again = await talks(session=talk.conversation.info.id)
    assert again.conversation.context.budget().estimated
    llm.script(Reply("Less.", usage=Usage(20_000, 10)))
    await again.ask("and now?")
    assert (
        again.conversation.context.budget().used == 20_010
        and not again.conversation.context.budget().estimated
    )
    await again.close()
    third = await talks(session=talk.conversation.info.id)
    assert third.conversation.context.budget().used == 20_010, "a report after the edit holds"


async def test_the_users_search_finds_a_dropped_message(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    await talk.conversation.context.edit(drop(talk, "planted"))
    assert await talk.conversation.sessions.search("planted-77", within=talk.conversation.info.id)


async def test_a_boundary_after_drops_neither_summarises_them_nor_keeps_them_as_facts(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    planted = found(talk, "planted").id
    await talk.conversation.context.edit(drop(talk, "planted"))
    llm.script("Notes of the rest.")
    assert await talk.conversation.context.compact()
    read = json.dumps(llm.requests[-1].body["messages"])
    assert "The first answer." in read and "planted" not in read
    sent = await asked(talk, llm)
    assert "planted" not in sent and "3 messages were dropped by the user" in sent
    assert await talk.conversation.context.undo_compaction()
    sent = await asked(talk, llm, "after the undo")
    assert "planted-400" not in sent and "the first request" in sent, "the parent is as it was edited"
    await talk.conversation.context.edit([ContextEdit("restore", planted)])
    assert "planted-400" in await asked(talk, llm, "all of it")


async def test_a_message_dropped_in_a_child_stays_dropped_when_the_compaction_is_undone(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    llm.script("Notes.")
    flags = {**WIDE, "compaction.keep_recent_tokens": 20_000}
    await talk.close()
    talk = await talks(flags=flags, session=talk.conversation.info.id)
    assert await talk.conversation.context.compact()
    assert talk.of(BoundaryCommitted)
    carried = found(talk, "The second answer.")
    assert carried in talk.conversation.history[1:]
    await talk.conversation.context.edit([ContextEdit("drop", carried.id)])
    assert "The second answer." not in await asked(talk, llm)
    assert await talk.conversation.context.undo_compaction()
    assert "The second answer." not in await asked(talk, llm, "again")


async def test_the_seed_and_messages_of_other_sessions_are_refused(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    llm.script("Hello.", "Notes.")
    other = await talks()
    await other.ask("elsewhere")
    foreign = other.conversation.history[0].id
    with pytest.raises(UsageError, match=f"{foreign} belongs to session {other.conversation.info.id}"):
        await talk.conversation.context.edit([ContextEdit("drop", foreign)])
    with pytest.raises(UsageError, match="there is no message 'nosuch'"):
        await talk.conversation.context.edit([ContextEdit("drop", "nosuch")])
    assert await talk.conversation.context.compact()
    with pytest.raises(UsageError, match="it is the seed"):
        await talk.conversation.context.edit([ContextEdit("drop", talk.conversation.history[0].id)])


async def test_context_edit_is_refused_during_a_turn(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    edits = drop(talk, "planted")
    llm.script("Yes.")
    talk.conversation.submit("go on")
    with pytest.raises(UsageError, match="Not while the agent is working"):
        await talk.conversation.context.edit(edits)
    await talk.until(lambda: not talk.conversation.busy)


async def test_superseded_views_are_offered_and_shortened_at_once(
    talks: Talks, llm: ScriptedLLM, workspace: Any
) -> None:
    (workspace / "long.py").write_text("line of code\n" * 500)
    look = Call("view", {"file_path": "long.py"})
    llm.script(Reply(calls=[look]), Reply(calls=[look]), Reply(calls=[look]), "Read.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("read it")
    await talk.conversation.context.count_exactly()
    offered = talk.conversation.context.inspect().old_views
    assert len(offered.message_ids) == 2 and offered.tokens > 2_000
    effect = await talk.conversation.context.edit(SHORTEN)
    assert effect.tokens_freed == offered.tokens
    sent = await asked(talk, llm)
    assert sent.count("500\\tline of code") + sent.count("line of code") < 600
    with pytest.raises(UsageError, match="There are no superseded views"):
        await talk.conversation.context.edit(SHORTEN)


async def test_a_restored_result_is_shortened_again_by_an_overflow(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    planted = found(talk, "planted").id
    await talk.conversation.context.edit([ContextEdit("shorten", planted)])
    await talk.conversation.context.edit([ContextEdit("restore", planted)])
    llm.script(Overflow(8_000, 9_000), "It fits.")
    await talk.ask("go on")
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "planted-200" not in sent and "chars truncated; recall" in sent


SECRET = "Use the port 48713 and never touch hush/vault.toml"


async def dropped_and_compacted(talks: Talks, llm: ScriptedLLM) -> Talk:
    """A conversation in which a prompt that sets a rule and names things is dropped before a boundary."""
    talk = await worked(talks, llm)
    await asked(talk, llm, SECRET)
    await talk.conversation.context.edit(drop(talk, SECRET))
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    return talk


async def test_a_dropped_prompt_is_in_no_request_after_a_compaction(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await dropped_and_compacted(talks, llm)
    sent = await asked(talk, llm)
    assert "48713" not in sent and "vault.toml" not in sent
    assert "1 message was dropped by the user" in sent
    assert "the second request" in sent, "others are quoted"
    assert not any("48713" in json.dumps(request.body) for request in llm.requests[-2:])
    assert not (await talk.conversation.rules.listed()).rules
    llm.script("Another summary.")
    assert await talk.conversation.context.compact()
    assert "48713" not in await asked(talk, llm), "nor after the next"


async def test_a_prompt_dropped_from_the_tail_is_in_no_later_request(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    await asked(talk, llm, SECRET)
    await talk.close()
    flags = {**WIDE, "compaction.keep_recent_tokens": 20_000}
    talk = await talks(flags=flags, session=talk.conversation.info.id)
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    carried = found(talk, SECRET)
    assert carried in talk.conversation.history[1:], "it is carried verbatim, and its facts are in the ledger"
    await talk.conversation.context.edit([ContextEdit("drop", carried.id)])
    llm.script("Another summary.")
    assert await talk.conversation.context.compact()
    sent = await asked(talk, llm)
    assert "vault.toml" not in sent


async def test_a_dropped_prompt_comes_back_with_its_facts_when_restored(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await dropped_and_compacted(talks, llm)
    assert await talk.conversation.context.undo_compaction()
    await talk.conversation.context.edit([ContextEdit("restore", found(talk, SECRET).id)])
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    assert SECRET in await asked(talk, llm)
    assert [rule.text for rule in (await talk.conversation.rules.listed()).rules] != []


async def test_recall_does_not_find_a_dropped_message(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    await asked(talk, llm, SECRET)
    message = found(talk, SECRET)
    await talk.conversation.context.edit(drop(talk, SECRET))
    by_id, by_words = Call("recall", {"message_id": message.id}), Call("recall", {"query": "vault"})
    llm.script(Reply(calls=[by_id, by_words]), "Nothing.")
    await talk.ask("look it up")
    results = [body["content"] for body in llm.requests[-1].body["messages"] if body["role"] == "tool"][-2:]
    assert results[0] == f"The user dropped message {message.id}."
    assert "Nothing earlier matches" in results[1]


async def test_the_first_prompt_can_be_dropped_and_leaves_a_line_in_its_place(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    await talk.conversation.context.edit(drop(talk, "the first request"))
    sent = await asked(talk, llm)
    assert "the first request" not in sent and "[removed by the user]" in sent and "I look." in sent
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    assert "the first request" not in json.dumps(llm.requests[-1].body["messages"])
    sent = await asked(talk, llm, "and now")
    assert "the first request" not in sent and "<request>\\n[removed by the user]\\n</request>" in sent
    assert "1 message was dropped by the user" in sent


async def test_a_prompt_that_a_seed_quotes_can_be_dropped_and_restored(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    await asked(talk, llm, SECRET)
    quoted = found(talk, SECRET).id
    llm.script("A summary.", "Another summary.")
    assert await talk.conversation.context.compact()
    assert SECRET in await asked(talk, llm)
    await talk.conversation.context.edit([ContextEdit("drop", quoted)])
    sent = await asked(talk, llm)
    assert "48713" not in sent and "vault" not in sent and "A summary." in sent
    assert not (await talk.conversation.rules.listed()).rules
    await talk.close()
    talk = await talks(flags=WIDE, session=talk.conversation.info.id)
    assert "vault" not in await asked(talk, llm)
    await talk.conversation.context.edit([ContextEdit("restore", quoted)])
    assert SECRET in await asked(talk, llm)


async def test_a_title_made_of_a_dropped_prompt_is_made_of_what_is_left(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Yes.")
    talk = await talks(flags=WIDE)
    await talk.ask(SECRET)

    async def titles() -> list[str]:
        listed = await talk.conversation.sessions.store.sessions.load_lineage(talk.conversation.info.id)
        return [*{talk.conversation.info.title, *(info.title for info in listed)}]

    first = found(talk, SECRET).id
    await talk.conversation.context.edit([ContextEdit("drop", first)])
    assert await titles() == ["[removed by the user]"]
    await talk.ask("the second request")
    second = found(talk, "the second request").id
    await talk.conversation.context.compact()
    assert await titles() == ["[removed by the user]"]
    await talk.conversation.context.edit([ContextEdit("drop", second)])
    await talk.conversation.context.edit([ContextEdit("restore", first)])
    assert await titles() == [SECRET]
    await talk.conversation.context.edit([ContextEdit("drop", first)])
    assert SECRET not in await titles()


async def test_a_prompt_removed_before_a_compaction_comes_back_in_its_quotes(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script("Yes. " * 200, "Some notes.")
    talk = await talks(flags=WIDE)
    await talk.ask(SECRET)
    first = found(talk, SECRET).id
    await talk.conversation.context.edit([ContextEdit("drop", first)])
    await talk.conversation.context.compact()
    assert SECRET not in seed_of(talk) and "[removed by the user]" in seed_of(talk)
    await talk.conversation.context.edit([ContextEdit("restore", first)])
    assert "[removed by the user]" not in seed_of(talk)
    assert seed_of(talk).count(SECRET) == 3, "in the rules, the evidence and the quotes"


async def test_a_shortened_prompt_leaves_only_facts_of_what_is_left(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    filler = "Some words of no meaning. " * 20
    await asked(talk, llm, f"Never touch first.py. {filler} {SECRET}. {filler} Never touch last.py.")
    await talk.conversation.context.edit([ContextEdit("shorten", found(talk, SECRET).id)])
    assert [rule.text for rule in (await talk.conversation.rules.listed()).rules] == [
        "Never touch first.py.",
        "Never touch last.py.",
    ]
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    assert "vault" not in json.dumps(llm.requests[-1].body["messages"])
    sent = await asked(talk, llm)
    assert "vault" not in sent and "48713" not in sent and "Never touch first.py." in sent


async def test_recall_finds_neither_a_task_whose_call_is_dropped_nor_what_was_shortened(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply("I ask.", calls=[Call("task", {"prompt": "look for hush"})]), "hush is a word", "Done.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("delegate it")
    await talk.conversation.context.edit(drop(talk, "I ask."))
    await asked(talk, llm, f"{'x ' * 200} vault {'y ' * 200}")
    await talk.conversation.context.edit([ContextEdit("shorten", found(talk, "vault").id)])
    by_id = Call("recall", {"message_id": found(talk, "vault").id})
    llm.script(Reply(calls=[Call("recall", {"query": "word"}), by_id]), "Nothing.")
    await talk.ask("look it up")
    results = [body["content"] for body in llm.requests[-1].body["messages"] if body["role"] == "tool"]
    assert "Nothing earlier matches" in results[0]
    assert "vault" not in results[1] and "shortened by the user" in results[1]


async def test_a_message_dropped_in_a_branch_is_not_returned_with_it(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    assert await talk.conversation.context.open_branch("look aside")
    llm.script("The answer inside.", "The answer with hush.")
    await talk.ask("look")
    await talk.ask("and again")
    await talk.conversation.context.edit([*drop(talk, "hush"), *drop(talk, "The first answer.")])
    assert await talk.conversation.context.return_to_parent()
    sent = await asked(talk, llm)
    assert "The answer inside." in sent and "hush" not in sent
    assert "The first answer." not in sent, "an edit of what the parent said lasts, too"


async def test_a_withdrawn_prompt_does_not_count_as_dropped(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script("The answer.", "A title", Stall(Reply("Never."), after=0))
    talk = await talks(flags=WIDE, interactive=True)
    await talk.ask("the first request")
    await talk.until_event(TitleChanged)
    talk.conversation.submit("a prompt of hush")
    await llm.wait_requests(3)
    talk.conversation.interrupt()
    await talk.until(lambda: not talk.conversation.busy)
    llm.script("A summary.")
    assert await talk.conversation.context.compact()
    sent = await asked(talk, llm)
    assert "hush" not in sent and "dropped by the user" not in sent


async def test_a_summary_that_was_written_before_a_drop_is_marked_and_written_again(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    await asked(talk, llm, SECRET)
    quoted = found(talk, SECRET).id
    llm.script("A summary with the vault.")
    assert await talk.conversation.context.compact()
    effect = await talk.conversation.context.edit([ContextEdit("drop", quoted)])
    assert effect.outdates_summary and "/compact writes it again" in effect_words(effect)

    def marked() -> bool:
        rows = talk.conversation.context.inspect().rows
        return any("written before a message was dropped" in row.name for row in rows)

    assert marked()
    await talk.close()
    talk = await talks(flags=WIDE, session=talk.conversation.info.id, fork=True)
    assert marked(), "a fork takes it over"
    llm.script("A clean summary.")
    assert await talk.conversation.context.compact(), "also if nothing was said since"
    read = json.dumps(llm.requests[-1].body["messages"])
    assert "The first answer." in read and "vault" not in read, "from the messages, not from the summary"
    sent = await asked(talk, llm)
    assert "A clean summary." in sent and "vault" not in sent and not marked()


async def test_messages_that_repeat_a_dropped_text_are_listed_and_dropped_on_request(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        "I shall use key-4711-hush.", Reply("I try.", calls=[Call("bash", {"command": "echo key-4711-hush"})])
    )
    llm.script("It worked.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("The key is key-4711-hush, keep it.")
    await talk.ask("try it")
    await talk.conversation.pins.add_text("Use key-4711-hush everywhere.")
    await talk.conversation.pins.add_text("Keep the API stable.")
    prompt = found(talk, "The key is").id
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt)], dry_run=True)
    assert effect.repeating_pins == (1,)
    result = next(message for message in talk.conversation.history if message.result)
    assert effect.repeats == (found(talk, "I shall use").id, found(talk, "I try.").id, result.id)
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt, also=True)])
    assert not effect.repeats and len(effect.messages) == 4
    sent = await asked(talk, llm)
    assert "4711" not in sent and "It worked." in sent and "try it" in sent
    assert [pin.text for pin in (await talk.conversation.pins.listed()).pins] == ["Keep the API stable."]


async def test_todos_that_repeat_a_dropped_text_are_listed_and_removed_on_request(
    talks: Talks, llm: ScriptedLLM
) -> None:
    todos = [{"text": text, "status": "pending"} for text in ("Log in with key-4711-hush", "Write tests")]
    llm.script(Reply("I plan.", calls=[Call("todos", {"todos": todos})]), "Planned.", "A summary.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("The key is key-4711-hush, keep it.")
    prompt = found(talk, "The key is").id
    assert await talk.conversation.context.compact()
    assert "key-4711-hush" in seed_of(talk)
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt)], dry_run=True)
    assert effect.repeating_todos == ("Log in with key-4711-hush",)
    assert "1 todo repeats the text: Log in with key-4711-hush" in effect_words(effect)
    await talk.conversation.context.edit([ContextEdit("drop", prompt, also=True)])
    assert [todo.text for todo in talk.conversation.info.todos] == ["Write tests"]
    assert "4711" not in seed_of(talk) and "Write tests" in seed_of(talk)
    assert await talk.conversation.context.undo_compaction()
    assert [todo.text for todo in talk.conversation.info.todos] == ["Write tests"], "also in the parent"


async def test_the_todos_are_those_of_the_last_call_that_is_left(talks: Talks, llm: ScriptedLLM) -> None:
    for text in ("First plan", "Secret plan of hush"):
        llm.script(Reply(text, calls=[Call("todos", {"todos": [{"text": text, "status": "pending"}]})]))
    llm.script("Planned.", "A summary.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("plan it")
    call = found(talk, "Secret plan of hush").id

    def listed() -> list[str]:
        return [todo.text for todo in talk.conversation.info.todos]

    await talk.conversation.context.edit([ContextEdit("drop", call)])
    assert listed() == ["First plan"] and talk.of(TodosChanged)[-1].todos[0].text == "First plan"
    assert await talk.conversation.context.compact()
    assert "hush" not in await asked(talk, llm)
    await talk.conversation.context.edit([ContextEdit("restore", call)])
    assert listed() == ["Secret plan of hush"]


async def test_a_prompt_that_a_seed_quotes_has_a_row_and_keeps_it_when_dropped(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    llm.script("A summary.")
    quoted = found(talk, "the second request").id
    assert await talk.conversation.context.compact()
    context = talk.conversation.context
    await context.count_exactly()

    def rows() -> dict[str, tuple[str, str]]:
        return {
            row.name: (row.message_id, row.state) for row in context.inspect().rows if row.kind == "earlier"
        }

    assert list(rows()) == ["the first request", "the second request"]
    assert rows()["the second request"] == (quoted, "")
    await context.edit([ContextEdit("drop", quoted)])
    assert rows()["a message of an earlier session"] == (quoted, "dropped")
    assert list(rows()) == ["a message of an earlier session", "the first request"]
    assert all(row.tokens > 0 for row in context.inspect().rows if row.kind == "evidence")
    await context.edit([ContextEdit("restore", quoted)])
    assert list(rows()) == ["the first request", "the second request"]


async def test_coverage_counts_dropped_messages_apart(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await dropped_and_compacted(talks, llm)
    made = talk.of(BoundaryCommitted)[-1]
    assert made.facts["dropped_lineage"].total == 1
    assert "1 message dropped by the user" in lineage_words(made)
    assert all(kind != "dropped" for kind in of_this_boundary(made.facts))


async def test_the_users_search_marks_what_is_dropped(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    await talk.conversation.context.edit(drop(talk, "The first answer."))
    groups = await talk.conversation.sessions.search("answer")
    assert {hit.snippet.strip(): hit.state for group in groups for hit in group.hits} == {
        "The first answer.": "dropped",
        "The second answer.": "",
    }


async def test_an_edit_in_the_original_does_not_act_on_an_older_fork(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("start")
    await talk.ask("Never touch planted1.py. Go on.")
    rule, original = found(talk, "planted1").id, talk.conversation.info.id
    await talk.close()
    fork = await talks(flags=WIDE, yolo=True, session=original, fork=True)
    await fork.ask("in the fork")
    await fork.close()
    talk = await talks(flags=WIDE, yolo=True, session=original)
    await talk.conversation.context.edit([ContextEdit("drop", rule)])
    await talk.close()
    fork = await talks(flags=WIDE, yolo=True, session=fork.conversation.info.id)
    assert [rule.text for rule in (await fork.conversation.rules.listed()).valid] == [
        "Never touch planted1.py."
    ]
    assert await fork.conversation.context.compact()
    sent = await asked(fork, llm)
    assert "Never touch planted1.py." in sent and "dropped by the user" not in sent


async def test_a_fork_keeps_a_drop_that_the_original_takes_back(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("start")
    await talk.ask("Never touch planted1.py. Go on.")
    rule = found(talk, "planted1").id
    await talk.conversation.context.edit([ContextEdit("drop", rule)])
    assert await talk.conversation.context.compact()
    await talk.ask("after the compaction")
    original = talk.conversation.info.id
    await talk.close()
    fork = await talks(flags=WIDE, yolo=True, session=original, fork=True)
    await fork.close()
    talk = await talks(flags=WIDE, yolo=True, session=original)
    await talk.conversation.context.edit([ContextEdit("restore", rule)])
    assert (await talk.conversation.rules.listed()).valid
    await talk.close()
    fork = await talks(flags=WIDE, yolo=True, session=fork.conversation.info.id)
    assert not (await fork.conversation.rules.listed()).valid
    assert await fork.conversation.context.compact()
    assert "planted1" not in await asked(fork, llm)


@pytest.mark.parametrize("also", [False, True])
async def test_the_end_of_a_rule_does_not_repeat_a_dropped_prompt(
    also: bool, talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Fine.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("start")
    await talk.ask("Never touch planted1.py. Go on.")
    await talk.ask("Once more. Never touch planted1.py.")
    (rule,) = (await talk.conversation.rules.listed()).valid
    await talk.conversation.rules.drop(rule.number)
    prompt, again = found(talk, "Never touch"), found(talk, "Once more")
    await talk.conversation.context.edit([ContextEdit("drop", prompt.id, also)])
    assert "standing rule" not in await asked(talk, llm)
    assert not (await talk.conversation.rules.listed()).valid, "it has ended, whoever said it as well"
    if not also:
        await talk.conversation.context.edit([ContextEdit("drop", again.id)])
    assert "planted1" not in await asked(talk, llm)
    await talk.conversation.context.ask_aside("what was that?")
    assert await talk.conversation.context.compact()
    assert "planted1" not in await asked(talk, llm)
    assert all("planted1" not in json.dumps(request.body) for request in llm.requests[-3:])
    await talk.conversation.context.edit([ContextEdit("restore", prompt.id)])
    await talk.conversation.context.undo_compaction()
    sent = await asked(talk, llm)
    assert "The user withdrew a standing rule" in sent and "Never touch planted1.py. Go on." in sent


async def test_the_goal_of_a_branch_is_dropped_with_the_prompt_that_it_was(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Hello.")
    talk = await talks(flags=WIDE, yolo=True, interactive=True)
    await talk.ask("start")
    goal = "look for planted1 in all logs"
    await talk.conversation.context.open_branch(goal)
    await talk.ask(goal)
    prompt = next(message for message in talk.conversation.history if message.text == goal)
    await talk.conversation.context.edit([ContextEdit("drop", prompt.id)])
    assert "planted1" not in await asked(talk, llm)
    assert await talk.conversation.context.return_to_parent()
    sent = await asked(talk, llm)
    assert "planted1" not in sent and "Yes." in sent
    assert await talk.conversation.context.compact()
    await asked(talk, llm)
    assert all("planted1" not in json.dumps(request.body) for request in llm.requests[-2:])


async def test_evidence_names_no_job_and_no_grant_of_a_dropped_call(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(
            "I start both.",
            calls=[
                Call("bash", {"command": "sleep 50; echo planted1", "background": True}),
                Call("bash", {"command": "echo planted2 now"}),
            ],
        ),
        "Started.",
        Reply("One more.", calls=[Call("bash", {"command": "sleep 50; echo kept1", "background": True})]),
        "Started.",
    )
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("start")
    await talk.ask("start another")
    await talk.conversation.session.update(grants=("bash(echo planted2 *)", "bash(git log *)", "write"))
    await talk.conversation.context.edit(drop(talk, "I start both."))
    assert await talk.conversation.context.compact()
    sent = await asked(talk, llm)
    assert "planted1" not in sent and "planted2" not in sent
    running = talk.conversation.workspace.jobs.running()
    assert all(job.id in sent for job in running) and "sleep 50; echo kept1" in sent
    assert "bash(\\u2026)" in sent and "bash(git log *)" in sent


async def test_a_short_prompt_is_repeated_as_whole_words(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(
        "ok.", "You said Swordfish!", "Swordfishes are fish.", "Yes.", "Yes, I continue.", "A summary."
    )
    talk = await talks(flags=WIDE, yolo=True)
    for prompt in ("start", "swordfish", "continue", "what was said?", "continue"):
        await talk.ask(prompt)
    await talk.conversation.pins.add_text("The word is swordfish.")
    prompt, quoting = found(talk, "swordfish").id, found(talk, "You said Swordfish!").id
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt)], dry_run=True)
    assert (effect.repeats, effect.repeating_pins) == ((quoting,), (1,))
    again = await talk.conversation.context.edit(drop(talk, "continue"), dry_run=True)
    assert not again.repeats, "a common word"
    await talk.conversation.context.edit([ContextEdit("drop", prompt, also=True)])
    assert await talk.conversation.context.compact()
    assert "swordfish" not in (await asked(talk, llm)).lower().replace("swordfishes", "")


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_pin_of_a_message_is_carried_only_while_the_message_is_sent(
    compacted: bool, talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Fine.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("start")
    await talk.ask("planted")
    prompt = found(talk, "planted").id
    await talk.conversation.pins.add_message(prompt)
    if compacted:
        assert await talk.conversation.context.compact()
        assert "planted" in await asked(talk, llm)
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt)])
    assert effect.repeating_pins == (1,)
    assert "planted" not in await asked(talk, llm)
    assert await talk.conversation.context.compact()
    assert "planted" not in await asked(talk, llm)
    (pin,) = (await talk.conversation.pins.listed()).pins
    assert (pin.text, pin.problem) == ("", "its message was dropped")
    await talk.conversation.context.edit([ContextEdit("restore", prompt)])
    assert ("planted" in await asked(talk, llm)) and (await talk.conversation.pins.listed()).pins[0].text


async def test_attached_files_repeat_a_dropped_text_and_are_repeated(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "keys.txt").write_text("the api key is hush4711key for all\n")
    llm.script("I see hush4711key.", "It is the line 'the api key is hush4711key for all'.", "Well.")
    talk = await talks(flags=WIDE, yolo=True)
    await talk.ask("look at @keys.txt please")
    await talk.ask("what does it say?")
    await talk.ask("hush4711key, is it?")
    history = talk.conversation.history
    (file,) = (message.id for message in history if message.role == "user" and not message.text)
    replies = [found(talk, "I see").id, found(talk, "It is").id]
    prompt = found(talk, "is it?").id
    effect = await talk.conversation.context.edit([ContextEdit("drop", file)], dry_run=True)
    assert effect.repeats == (*replies, prompt)
    effect = await talk.conversation.context.edit([ContextEdit("drop", prompt)], dry_run=True)
    assert effect.repeats == (file, *replies)
    await talk.conversation.context.edit([ContextEdit("drop", prompt, also=True)])
    assert "hush4711key" not in await asked(talk, llm)
