"""What of a history goes to litellm's process: what is new, and all of it where it cannot know the rest."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conversing import ask, hear
from support.litellm_stand_in import STAND_IN, plant

from crushpy.core.messages import Message, Text
from crushpy.llm.litellm import helper_process as module
from crushpy.llm.litellm.frames import Ask, ProviderAccess, decode_app_frame, encode_frame
from crushpy.llm.litellm.helper_process import helper_process, running_helper
from crushpy.llm.litellm.histories import MOST_KEPT, KeptHistories, SentHistories
from crushpy.llm.litellm.provider import LiteLLMProvider
from crushpy.llm.protocol import Request

LONG = "x" * 50_000


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A litellm that says what it was asked."""
    monkeypatch.setenv("PYTHONPATH", str(plant(tmp_path / "packages", STAND_IN)))
    monkeypatch.setattr(module, "_current", None)
    yield
    if helper := running_helper():
        helper.end()


@pytest.fixture
def provider() -> LiteLLMProvider:
    return LiteLLMProvider("http://127.0.0.1:1", "secret-key")


def message(name: str, text: str) -> Message:
    return Message(id=name, role="assistant" if name.startswith("a") else "user", parts=(Text(text),))


def talk(turns: int, *, first: str = "u0", text: str = LONG) -> list[Message]:
    """So many turns that are over, each with a long prompt, and a prompt that asks what was heard."""
    told = [message(first, text)]
    for turn in range(turns):
        told += [message(f"a{turn}", "well"), message(f"u{turn + 1}", text)]
    return [*told[:-1], message(f"u{turns}", "hear")]


async def heard(provider: LiteLLMProvider, messages: Sequence[Message], model: str = "openai/one") -> int:
    """Asks, and requires that litellm was given all of it. How many bytes went to its process."""
    before = helper_process().sent
    said = await hear(provider, ask(messages=messages, model=model))
    told = json.loads(said.text.removeprefix("begun ").removesuffix("done"))
    assert [words for role, words in told if role != "system"] == [one.text for one in messages]
    return helper_process().sent - before


async def test_a_step_sends_what_is_new_and_litellm_gets_all(
    stand_in: None, provider: LiteLLMProvider
) -> None:
    history = talk(5)
    assert await heard(provider, history) > 5 * len(LONG)
    for step in range(3):
        history += [message(f"a-{step}", "well"), message(f"u-{step}", "hear")]
        assert await heard(provider, history) < 5_000


@pytest.mark.parametrize("change", ["cut", "undo", "boundary", "model"])
async def test_what_is_not_as_it_was_is_sent_again(
    stand_in: None, provider: LiteLLMProvider, change: str
) -> None:
    history = talk(5)
    await heard(provider, history)
    cut = [message(one.id, "short") if one.id == "u2" else one for one in history]
    changed = {
        "cut": cut,
        "undo": [*history[:4], message("u9", "hear")],
        "boundary": talk(1, first="seed"),
        "model": history,
    }
    assert await heard(provider, changed[change], "openai/two" if change == "model" else "openai/one")
    assert await heard(provider, history)


async def test_a_new_process_is_sent_all_of_it(stand_in: None, provider: LiteLLMProvider) -> None:
    history = talk(5)
    await heard(provider, history)
    helper_process().end()
    assert await heard(provider, history) > 5 * len(LONG)


async def test_a_process_that_does_not_know_the_beginning_asks_for_it(
    stand_in: None, provider: LiteLLMProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = talk(5)
    await heard(provider, history)
    known = vars(helper_process())["_histories"]
    helper_process().end()
    monkeypatch.setattr(helper_process(), "_histories", known)
    assert await heard(provider, [*history, message("a-9", "well"), message("u-9", "hear")]) > 5 * len(LONG)


async def test_more_conversations_than_are_kept_are_all_heard(
    stand_in: None, provider: LiteLLMProvider
) -> None:
    for _ in range(2):
        for one in range(MOST_KEPT + 2):
            await heard(provider, talk(2, first=f"u-{one}", text=f"the words of {one}"))


@pytest.mark.parametrize("seed", range(20))
def test_both_ends_agree_whatever_becomes_of_histories(seed: int) -> None:
    chance = random.Random(seed)
    here, there = SentHistories(), KeptHistories()
    histories = {name: [message(f"u{name}", "begin")] for name in range(7)}
    access = ProviderAccess()

    def through(frame: Ask) -> Request | None:
        arrived = decode_app_frame(encode_frame(frame))
        assert isinstance(arrived, Ask)
        return there.whole(arrived)

    for call in range(300):
        name = chance.randrange(7)
        history = histories[name]
        match chance.randrange(8):
            case 0 if len(history) > 2:
                del history[chance.randrange(1, len(history)) :]
            case 1 if len(history) > 2:
                place = chance.randrange(len(history))
                history[place] = message(history[place].id, f"cut {call}")
            case 2:
                here.let_go(name % 2)
                there.let_go(name % 2)
            case 3:
                there = KeptHistories()
            case _:
                history += [message(f"a{call}", f"well {call}"), message(f"u{call}", f"more {call}")]
        request = Request(f"model/{chance.randrange(2)}", "Be brief.", tuple(history))
        asked = (call, name % 2, access, request)
        assert (through(here.ask(*asked)) or through(here.ask_whole(*asked))) == request
