"""Rewinding the conversation: a fork that ends at any message, of this session or of those before it."""

import json

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.errors import UsageError
from crushpy.core.messages import Message
from crushpy.core.paths import Paths
from crushpy.storage.store import Store

WIDE = {f"models.{MODEL}.context_window": 100_000, "compaction.keep_recent_tokens": 0}


async def worked(talks: Talks, llm: ScriptedLLM) -> Talk:
    """A conversation with a batch of two calls and three requests."""
    batch = [Call("bash", {"command": "echo left"}), Call("bash", {"command": "echo right"})]
    llm.script(Reply("I look.", calls=batch), "The first answer.", "The second answer.", "The third answer.")
    talk = await talks(flags=WIDE, yolo=True)
    for prompt in ("the first request", "the second request", "the third request"):
        await talk.ask(prompt)
    return talk


def said(talk: Talk, text: str) -> Message:
    found = [message for message in talk.conversation.history if text in message.text]
    found += [
        message for message in talk.conversation.history if message.result and text in message.result.text
    ]
    return found[-1]


async def asked(talk: Talk, llm: ScriptedLLM, prompt: str = "go on") -> str:
    """What the next request of a conversation holds."""
    llm.script("On the fork.")
    await talk.ask(prompt)
    return json.dumps(llm.requests[-1].body["messages"])


async def test_a_fork_at_a_message_holds_all_up_to_it_and_nothing_after(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    at = said(talk, "The first answer.")
    fork = await talks(session=talk.conversation.info.id, at=at.id[:8])
    assert fork.conversation.info.kind == "fork"
    assert fork.conversation.info.parent_id == talk.conversation.info.id
    sent = await asked(fork, llm)
    assert "The first answer." in sent and "go on" in sent
    assert "the second request" not in sent
    await fork.close()
    again = await talks(session=fork.conversation.info.id)
    assert "the second request" not in await asked(again, llm, "and on")
    assert "The third answer." in await asked(talk, llm), "the session itself is left alone"


@pytest.mark.parametrize("where", ["I look.", "left", "right"])
async def test_a_call_keeps_all_its_results_and_a_result_its_whole_batch(
    talks: Talks, llm: ScriptedLLM, where: str
) -> None:
    talk = await worked(talks, llm)
    fork = await talks(session=talk.conversation.info.id, at=said(talk, where).id)
    assert [message.role for message in fork.conversation.history] == ["user", "assistant", "tool", "tool"]
    await asked(fork, llm)
    messages = llm.requests[-1].body["messages"]
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]


async def test_a_message_before_a_compaction_gives_that_session_as_it_was(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    at = said(talk, "The second answer.")
    root = talk.conversation.info.id
    llm.script("Notes of it all.")
    assert await talk.conversation.context.compact()
    assert await asked(talk, llm, "after the compaction")
    fork = await talks(session=root, at=at.id)
    assert fork.conversation.info.parent_id == root and fork.conversation.info.generation == 0
    sent = await asked(fork, llm)
    assert "the first request" in sent and "The second answer." in sent
    assert "Notes of it all." not in sent and "The third answer." not in sent
    assert "after the compaction" not in sent
    found = await fork.conversation.sessions.search("compaction", within=fork.conversation.info.id)
    assert not found, "what came after the message is no part of the fork's past"


async def test_fork_at_the_seed_starts_like_the_session(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    llm.script("Notes of it all.")
    assert await talk.conversation.context.compact()
    born = [message.id for message in talk.conversation.history]
    await asked(talk, llm, "after the compaction")
    fork = await talks(session=talk.conversation.info.id, at=born[0])
    assert [message.id for message in fork.conversation.history] == born
    assert fork.conversation.info.generation == 1


async def test_a_fork_of_a_fork_at_a_message_of_the_trunk_leads_no_further_than_that(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await worked(talks, llm)
    first = await talks(session=talk.conversation.info.id, fork=True)
    await asked(first, llm, "on the first fork")
    at = said(first, "The first answer.")
    second = await talks(session=first.conversation.info.id, at=at.id)
    assert second.conversation.info.parent_id == talk.conversation.info.id
    store = Store(Paths().database)
    lineage = [session.text for session in await store.messages.load_lineage(second.conversation.info.id)]
    await store.close()
    assert lineage[0] == "the first request" and lineage[-1] == "The first answer."


async def test_a_message_that_is_not_there_is_named(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    llm.script("Hello.")
    other = await talks()
    await other.ask("somewhere else")
    foreign = other.conversation.history[0].id
    source = talk.conversation.info.id
    for at, words in (
        ("nosuchthing", "there is no message 'nosuchthing'"),
        (" ", "the message id is empty"),
        (foreign, f"message {foreign} belongs to session {other.conversation.info.id}"),
    ):
        with pytest.raises(UsageError, match=words):
            await talks(session=source, at=at)
    store = Store(Paths().database)
    assert len(await store.sessions.load_conversation(talk.conversation.info.root_id)) == 1, (
        "nothing was made"
    )
    await store.close()


async def test_a_beginning_that_fits_several_messages_is_refused(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await worked(talks, llm)
    store = Store(Paths().database)
    for name in ("twin0000aaaa", "twin0000bbbb"):
        await store.messages.add(
            talk.conversation.info.id, Message(name, "user", said(talk, "the first request").parts)
        )
    await store.close()
    with pytest.raises(UsageError, match="several messages start with 'twin': twin0000aaaa, twin0000bbbb"):
        await talks(session=talk.conversation.info.id, at="twin")
    assert (await talks(session=talk.conversation.info.id, at="twin0000a")).conversation.history
