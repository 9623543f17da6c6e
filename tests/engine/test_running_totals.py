"""The sizes of a history that grows are added up once; another history is added up anew."""

import random
from itertools import accumulate

import pytest
from support.histories import history_by_chance, seed

from crushpy.core.messages import Message, Text
from crushpy.engine.compaction.gauge import Gauge, RunningTotals
from crushpy.llm.protocol import Request


def test_the_sums_are_those_of_all_messages_whatever_happens_to_the_history() -> None:
    for case in range(60):
        chance = random.Random(case)
        totals, history = RunningTotals(lambda message: len(message.text) + 1), list[Message]()
        for _ in range(15):
            size = len(history)
            match chance.choice(["append", "append", "undo", "boundary"]):
                case "append":
                    history += history_by_chance(chance, chance.randint(0, 6))
                case "undo":
                    del history[chance.randint(size // 2, size) :]
                case _:
                    history = [seed("what was"), *history[chance.randint(0, size) :]]
            sums = totals.of(tuple(history), exact=chance.random() < 0.9)
            assert list(sums) == list(accumulate((len(one.text) + 1 for one in history), initial=0))


def test_each_message_is_measured_once() -> None:
    measured: list[str] = []

    def size(message: Message) -> int:
        measured.append(message.id)
        return 1

    totals, history = RunningTotals(size), history_by_chance(random.Random(1), 100)
    for number in range(len(history) + 1):
        assert totals.of(tuple(history[:number]), exact=True)[-1] == number
    assert len(measured) == len(history)


def test_a_very_long_message_is_guessed_until_somebody_has_time_to_count_it() -> None:
    gauge = Gauge(lambda _: 200_000, lambda *_: (), lambda _: 0)
    gauge.load()
    assert gauge.exact
    text = "some words of a sentence, " * 4_000
    long = Message("m1", "assistant", (Text(text[:50_000], goes_on=True), Text(text[50_000:])))
    short = Message("m2", "assistant", (Text("some words of a sentence"),))
    guessed = gauge.size(long)
    assert guessed == pytest.approx(len(text) / 4, rel=0.01)
    assert gauge.size(short) == gauge.exact_size(short)
    history = (long, short)
    before = gauge.reading(Request("m", "", ()), history)
    gauge.load_for(history)
    assert gauge.size(long) == gauge.exact_size(long) != guessed
    after = gauge.reading(Request("m", "", ()), history)
    assert before.used - after.used == guessed - gauge.size(long)
