"""The sizes of a history that grows are added up once; another history is added up anew."""

import random
from itertools import accumulate

from histories import history_by_chance, seed

from crushpy.engine.compaction.gauge import RunningTotals
from crushpy.messages import Message


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
