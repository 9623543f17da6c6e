"""How long a session lasts, and what it costs to go on or to start afresh."""

import pytest
from support.stored import replied, said

from crushpy.context.budget import Budget
from crushpy.context.forecast import (
    CompactionCost,
    Forecast,
    Prices,
    forecast,
    forecast_lines,
    turn_usages,
    turns_left_hint,
)
from crushpy.core.messages import Message, Usage

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
COMPACTION = CompactionCost(read=30_000, written=2_000, first_request=12_000)


def turns(*reached: int, cached: float = 0.0) -> list[Message]:
    """A turn each: a prompt, and a reply after which so many tokens were in use."""
    found: list[Message] = []
    for tokens in reached:
        asked = tokens - 500
        usage = Usage(round(asked * (1 - cached)), 500, round(asked * cached))
        found += [said("go on"), replied("done", usage=usage)]
    return found


def ahead(
    messages: list[Message], used: int, *, window_known: bool = True, prices: Prices | None = PRICES
) -> Forecast:
    budget = Budget(used, 100_000, estimated=False, window_known=window_known)
    return forecast(
        turn_usages(messages), budget, start=5_000, limit=0.75, compaction=COMPACTION, prices=prices
    )


def test_the_pace_is_the_middle_of_the_last_turns_and_says_how_many_are_left() -> None:
    found = ahead(turns(8_000, 11_000, 30_000, 33_000, 36_000), 36_000)
    assert (found.turns, found.tokens_per_turn, found.turns_left) == (5, 3_000, 13)
    assert forecast_lines(found)[0] == "~3,000 tokens a turn, ~13 turns left"


def test_a_blank_prompt_begins_no_turn() -> None:
    history = [*turns(8_000), replied("more", usage=Usage(9_000, 500)), *turns(11_000, 30_000)]
    history.insert(3, said(" "))  # says nothing: no turn begins
    assert [turn.calls for turn in turn_usages(history)] == [2, 1, 1]


def test_forecast_needs_one_reply() -> None:
    found = ahead(turns(9_000), 9_000)
    assert (found.tokens_per_turn, found.turns_left) == (4_000, 16)


@pytest.mark.parametrize("messages", [[], [said("hello")], [said("hello"), replied("hi", usage=Usage())]])
def test_forecast_is_empty_without_usage(messages: list[Message]) -> None:
    found = ahead(messages, 5_000)
    assert found == Forecast(0)
    assert forecast_lines(found) == ["no forecast yet: no reply has said what it used"]
    assert turns_left_hint(found) == ""


def test_reports_that_do_not_grow_give_no_pace() -> None:
    assert ahead(turns(9_000, 8_000, 7_000, 6_000), 6_000).tokens_per_turn is None


def test_forecast_shows_no_money_without_prices() -> None:
    found = ahead(turns(8_000, 11_000), 11_000, prices=None)
    assert (found.cost_going_on, found.cost_compacted, found.next_turns) == (None, None, None)
    assert not any("$" in line for line in forecast_lines(found))


def test_forecast_leaves_out_turns_when_the_window_is_unknown() -> None:
    found = ahead(turns(8_000, 11_000), 11_000, window_known=False)
    assert found.turns_left is None and found.tokens_per_turn == 3_000
    assert turns_left_hint(found) == ""
    assert "not known" in forecast_lines(found)[0]


def test_going_on_costs_what_the_context_costs_at_each_turn() -> None:
    found = ahead(turns(55_000, 58_000, 61_000), 61_000)
    assert found.next_turns == 4
    read, written = 4 * 61_000 + (0.5 + 1.5 + 2.5 + 3.5) * 3_000, 4 * 500
    assert found.cost_going_on == pytest.approx((read * 3.0 + written * 15.0) / 1e6)


def test_a_large_context_is_dearer_than_a_fresh_one_and_a_small_one_is_not() -> None:
    large = ahead(turns(47_000, 50_000, 53_000), 53_000)
    assert large.cost_going_on is not None and large.cost_compacted is not None
    assert large.cost_going_on > large.cost_compacted
    small = ahead(turns(8_000, 11_000, 14_000), 14_000)
    assert small.cost_going_on is not None and small.cost_compacted is not None
    assert small.cost_going_on < small.cost_compacted


def test_forecast_counts_cached_tokens_as_cheaper() -> None:
    cold, warm = (
        ahead(turns(47_000, 50_000, 53_000), 53_000),
        ahead(turns(47_000, 50_000, 53_000, cached=0.9), 53_000),
    )
    assert cold.cost_going_on is not None and warm.cost_going_on is not None
    assert warm.cost_going_on < cold.cost_going_on / 2


def test_the_gauge_says_so_when_few_turns_are_left() -> None:
    assert turns_left_hint(ahead(turns(8_000, 11_000), 11_000)) == ""
    assert turns_left_hint(ahead(turns(63_000, 66_000, 69_000), 69_000)) == "~2 turns left"
    assert turns_left_hint(ahead(turns(68_000, 71_000, 74_000), 74_000)) == "", "compaction is due"
