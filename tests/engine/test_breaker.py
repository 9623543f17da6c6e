"""The breaker's state goes with the conversation, from process to process."""

from collections.abc import Sequence

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import BoundaryCommitted, Notice
from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow

SMALL: dict[str, object] = {f'models."{MODEL}".context_window': 10_000}


def reporting(llm: ScriptedLLM, tokens: int) -> None:
    llm.always(Reply("so it is", usage=Usage(tokens - 10, 10)))


async def series(
    talks: Talks, prompts: int, session: str = "", flags: dict[str, object] = SMALL, **options: str
) -> list[Talk]:
    """So many prompts of one conversation, each as a process of its own would send it."""
    done: list[Talk] = []
    for number in range(prompts):
        talk = await talks(flags=flags, session=session, **options)
        assert await talk.ask(f"prompt {number}") == "done"
        session = talk.conversation.info.id
        await talk.close()
        done.append(talk)
    return done


def crossed(done: Sequence[Talk]) -> list[int]:
    return [len(talk.of(BoundaryCommitted)) for talk in done]


def floors(done: Sequence[Talk]) -> list[str]:
    texts = [notice.text for talk in done for notice in talk.of(Notice)]
    return [text for text in texts if "System prompt and tools alone take" in text]


def tip(done: Sequence[Talk]) -> str:
    return done[-1].conversation.info.id


async def test_growth_tries_again(talks: Talks, llm: ScriptedLLM) -> None:
    reporting(llm, 7_600)
    done = await series(talks, 5)
    assert crossed(done) == [0, 1, 1, 0, 0]
    reporting(llm, 9_990)
    assert crossed(await series(talks, 3, tip(done))) == [0, 1, 1]  # 1.25 times what it was when it stopped


async def test_a_compaction_by_hand_tries_again_and_nothing_is_said_twice(
    talks: Talks, llm: ScriptedLLM
) -> None:
    reporting(llm, 8_000)
    done = await series(talks, 4)
    by_hand = await talks(flags=SMALL, session=tip(done))
    assert await by_hand.conversation.context.compact()
    await by_hand.close()
    more = await series(talks, 4, by_hand.conversation.info.id)
    assert sum(crossed(more)) == 2 and crossed(more)[-1] == 0
    assert len(floors([*done, by_hand, *more])) == 1


async def test_model_switch_rearms_the_breaker(talks: Talks, llm: ScriptedLLM) -> None:
    reporting(llm, 8_000)
    done = await series(talks, 4)
    other: dict[str, object] = {'models."openai/other".context_window': 10_000}
    more = await series(talks, 4, tip(done), {**SMALL, **other}, model="openai/other")
    assert sum(crossed(more)) == 2
    assert (len(floors(done)), len(floors(more))) == (1, 1)


async def test_breaker_warns_once_when_the_fixed_part_leaves_no_room(talks: Talks, llm: ScriptedLLM) -> None:
    reporting(llm, 2_100)
    done = await series(talks, 4, flags={f'models."{MODEL}".context_window': 2_500})
    assert crossed(done) == [0, 0, 0, 0]
    assert len(floors(done)) == 1
    assert "of 2,500 tokens (prompt " in floors(done)[0]
