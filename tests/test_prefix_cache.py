"""State derived from a growing sequence is extended, and created again if the sequence is another one."""

import random
from itertools import accumulate

from crushpy.util.prefix_cache import PrefixCache


def test_the_state_is_that_of_all_items_whatever_happens_to_the_sequence() -> None:
    for case in range(60):
        chance = random.Random(case)
        cache: PrefixCache[int, list[int]] = PrefixCache(lambda: [0])
        items: list[int] = []
        for _ in range(15):
            match chance.choice(["append", "append", "undo", "boundary"]):
                case "append":
                    items += [chance.randint(0, 9) for _ in range(chance.randint(0, 6))]
                case "undo":
                    del items[chance.randint(len(items) // 2, len(items)) :]
                case _:
                    items = [0, *items[chance.randint(0, len(items)) :]]
            factor = chance.choice([1, 1, 1, 2])
            for item in cache.advance(tuple(items), factor):
                cache.state.append(cache.state[-1] + factor * item)
            assert cache.state == list(accumulate((factor * item for item in items), initial=0))


def test_each_item_of_a_growing_sequence_is_processed_once() -> None:
    cache: PrefixCache[int, None] = PrefixCache(lambda: None)
    processed: list[int] = []
    for size in range(101):
        processed += cache.advance(tuple(range(size)))
    assert processed == list(range(100))
    assert len(cache) == 100
