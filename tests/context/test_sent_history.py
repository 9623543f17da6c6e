"""A history that is kept while it grows says the same as one that is made anew each time."""

import random
from collections.abc import Sequence

import pytest
from support.histories import history_by_chance, seed

from crushpy.context.history import SentHistory, well_formed
from crushpy.context.overrides import apply_overrides, without_images
from crushpy.core.messages import Message, MessageOverride


class Grown:
    """A session as it is worked in: it grows, is edited, taken back, and starts afresh."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.messages: list[Message] = []
        self.overrides: dict[str, MessageOverride] = {}
        self.sees = True

    def change(self) -> None:
        chance, size = self._chance, len(self.messages)
        match chance.choice(["append", "append", "append", "shorten", "undo", "boundary", "model"]):
            case "append":
                self.messages += history_by_chance(chance, chance.randint(0, 8))
            case "shorten" if self.messages:
                one = chance.choice(self.messages)
                self.overrides[one.id] = MessageOverride(
                    one.id, 20, 10, kind=chance.choice(["shorten", "drop", "restore"])
                )
            case "undo":
                del self.messages[chance.randint(size // 2, size) :]
            case "boundary":
                self.messages = [seed("what was"), *self.messages[chance.randint(0, size) :]]
            case "model":
                self.sees = not self.sees
            case _:
                pass

    def show(self, messages: Sequence[Message]) -> list[Message]:
        shown = apply_overrides(messages, self.overrides)
        return shown if self.sees else [without_images(message, "unseen") for message in shown]

    @property
    def way(self) -> object:
        return dict(self.overrides), self.sees


@pytest.mark.parametrize("number", range(8))
def test_sent_history_equals_a_rebuilt_one_after_any_change(number: int) -> None:
    for case in range(40):
        chance = random.Random(number * 1_000 + case)
        session, sent = Grown(chance), SentHistory()
        for _ in range(20):
            before = len(session.messages)
            session.change()
            for step in sorted(chance.randint(0, len(session.messages)) for _ in range(before % 3)):
                # asked while the messages of a step come in, too
                sent.update(tuple(session.messages[:step]), session.way, session.show)
                assert sent.valid == well_formed(session.show(session.messages[:step]))
            sent.update(tuple(session.messages), session.way, session.show)
            assert sent.shown == tuple(session.show(session.messages))
            assert sent.valid == well_formed(session.show(session.messages))


def test_each_message_of_a_history_that_grows_is_looked_at_once() -> None:
    history, sent = history_by_chance(random.Random(1), 300), SentHistory()
    looked_at: list[Message] = []

    def show(messages: Sequence[Message]) -> Sequence[Message]:
        looked_at.extend(messages)
        return messages

    for size in range(len(history) + 1):
        sent.update(tuple(history[:size]), "", show)
    assert looked_at == history
