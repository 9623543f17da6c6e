"""Where prompts come from, and whose rules they set."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.messages import Message, Origin, Seed, Text
from crushpy.core.start_options import StartOptions

RULE = "Never push to main."
Open = Callable[[Origin], Awaitable[Talk]]


@pytest.fixture
async def open_for(talks: Talks, workspace: Path) -> AsyncIterator[Open]:
    """Opens a conversation for a program, an editor or a submitter."""
    opened: list[Talk] = []

    async def make(origin: Origin) -> Talk:
        environment = ProjectEnvironment(workspace, {"model": MODEL})
        options = StartOptions(cwd=str(workspace))
        conversation = await open_conversation(environment, options, HostAdditions(origin=origin))
        opened.append(Talk(conversation))
        return opened[-1]

    yield make
    for talk in opened:
        await talk.close()


def text_of(message: Message) -> Text:
    (part,) = [part for part in message.parts if isinstance(part, Text)]
    return part


async def test_a_prompt_is_stored_with_its_origin(talks: Talks, open_for: Open, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    typed = await talks()
    await typed.ask(RULE)
    origins: list[Origin] = ["editor", "sdk", "fleet"]
    others = [await open_for(origin) for origin in origins]
    for talk in others:
        await talk.ask(RULE)
    for origin, talk in zip(["typed", *origins], [typed, *others], strict=True):
        _, stored = await talk.conversation.sessions.messages(talk.conversation.info.id)
        assert stored[0].origin == origin


@pytest.mark.parametrize(("origin", "setter"), [("sdk", "an SDK caller"), ("fleet", "a fleet submitter")])
async def test_a_rule_of_a_program_holds_in_its_conversation_and_is_marked(
    talks: Talks, open_for: Open, llm: ScriptedLLM, origin: Origin, setter: str
) -> None:
    llm.always("Yes.")
    talk = await open_for(origin)
    await talk.ask(RULE)
    await talk.conversation.rules.add("Speak like a pirate")
    assert await talk.conversation.context.compact(summary="Notes.")
    seed = talk.conversation.history[0].parts[0]
    assert isinstance(seed, Seed)
    assert f"- {RULE} [set by {setter}] [" in seed.rules
    assert f"- Speak like a pirate [set by {setter}] [" in seed.rules
    session = talk.conversation.info.id
    await talk.conversation.close()
    user = await talks(session=session)
    assert [rule.origin for rule in (await user.conversation.rules.listed()).valid] == [origin, origin]
    await user.ask(f"{RULE} Go on.")
    assert [rule.origin for rule in (await user.conversation.rules.listed()).valid] == ["", origin]


async def test_a_rule_typed_in_an_editor_is_the_users(open_for: Open, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await open_for("editor")
    await talk.ask(RULE)
    assert [rule.setter for rule in (await talk.conversation.rules.listed()).valid] == [""]


async def test_blocks_of_a_prompt_have_an_origin_and_set_no_rules(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await talks()
    await asyncio.wait_for(talk.conversation.ask(f"Explain.\n\n{RULE}", pasted=[RULE]), 60)
    talk.conversation.submit(f"And this: {RULE} Never use tabs.", pasted=[RULE])
    await talk.until(lambda: not talk.conversation.busy and len(talk.conversation.history) == 4)
    first, second = (text_of(message) for message in talk.conversation.history if message.role == "user")
    assert (first.origin, first.block, second.block) == ("typed", "file", "pasted")
    assert [rule.text for rule in (await talk.conversation.rules.listed()).valid] == ["Never use tabs."]


async def test_a_word_pasted_into_a_sentence_belongs_to_its_rule(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.conversation.ask("Never run git push --force here.", pasted=["git push --force"])
    (rule,) = (await talk.conversation.rules.listed()).valid
    assert rule.text == "Never run git push --force here."
