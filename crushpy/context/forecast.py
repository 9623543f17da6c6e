"""Forecasts how many turns a session lasts, and what continuing costs compared with compacting now."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from crushpy.context.budget import Budget, median
from crushpy.core.messages import Data, Message, Usage, counted

PACE_TURNS = 5
"""How many turns the pace is taken from."""
MAX_FORECAST_TURNS = 10
"""The most turns that costs are compared over."""
WARN_TURNS_LEFT = 3
"""Turns left from which on the gauge says so."""
PER_MILLION = 1_000_000


class Prices(Data, frozen=True):
    """US dollars a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class CompactionCost(Data, frozen=True):
    """The size of a compaction made now, in tokens."""

    read: int
    """Given to the summariser."""
    written: int
    """By the summariser."""
    first_request: int
    """What the child starts with."""
    prices: Prices | None = None
    """Those of the summariser, if it is another model."""


class Forecast(Data, frozen=True, omit_defaults=False):
    """All of it is estimated. None: not enough is known."""

    turns: int
    """How many turns it is taken from."""
    tokens_per_turn: int | None = None
    turns_left: int | None = None
    """Until the session is compacted; None also if the window is unknown."""
    next_turns: int | None = None
    """How many turns the costs are for."""
    cost_going_on: float | None = None
    cost_compacted: float | None = msgspec.field(default=None, name="cost_afresh")
    """The compaction itself included."""


class TurnUsage(Data, frozen=True):
    """What the model calls of one turn reported together."""

    calls: int
    usage: Usage
    reached: int
    """Tokens in use at its end."""


def turn_usages(messages: Sequence[Message]) -> list[TurnUsage]:
    """The turns of a session's own messages for which usage was reported, in order."""
    turns = [TurnUsage(0, Usage(), 0)]
    for message in messages:
        if message.role == "user" and message.says_something:
            turns.append(TurnUsage(0, Usage(), 0))
        elif (used := message.usage) is not None and used.total > 0:
            turns[-1] = TurnUsage(turns[-1].calls + 1, turns[-1].usage + used, used.total)
    return [turn for turn in turns if turn.calls]


def forecast(
    turns: Sequence[TurnUsage],
    budget: Budget,
    *,
    start: int,
    limit: float | None,
    compaction: CompactionCost | None,
    prices: Prices | None,
) -> Forecast:
    """`start` are the tokens the session began with, `limit` the share of the window at which it ends.
    Without `compaction` there is nothing to compact."""
    pace = _pace(turns, start) if turns else None
    if pace is None:
        return Forecast(len(turns))
    room = max(0, int((limit or 1.0) * budget.window) - budget.used)
    left = room // pace if budget.window_known else None
    if prices is None:
        return Forecast(len(turns), pace, left)
    ahead = MAX_FORECAST_TURNS if left is None else max(1, min(left, MAX_FORECAST_TURNS))
    continuing = _cost(turns, prices, budget.used, pace, ahead, cached=True)
    if compaction is None:
        return Forecast(len(turns), pace, left, ahead, round(continuing, 6))
    paid = compaction.prices or prices
    summary = (compaction.read * paid.input + compaction.written * paid.output) / PER_MILLION
    compacted = summary + _cost(turns, prices, compaction.first_request, pace, ahead, cached=False)
    return Forecast(len(turns), pace, left, ahead, round(continuing, 6), round(compacted, 6))


def _pace(turns: Sequence[TurnUsage], start: int) -> int | None:
    """Tokens that a turn adds: the middle of the last ones. None if the reports do not grow."""
    reached = [start, *(turn.reached for turn in turns)]
    growth = [after - before for before, after in pairwise(reached)]
    pace = round(median(growth[-PACE_TURNS:]))
    return pace if pace > 0 else None


def _cost(
    turns: Sequence[TurnUsage], prices: Prices, used: int, pace: int, ahead: int, *, cached: bool
) -> float:
    """The cost of the next turns if each is like the last ones in calls, output and cache hits.

    Each call reads the whole context. `cached`: what is there now lies in the provider's cache already.
    """
    last = turns[-PACE_TURNS:]
    calls = sum(turn.calls for turn in last) / len(last)
    output = sum(turn.usage.output_tokens for turn in last) / len(last)
    total = sum((turn.usage for turn in last), Usage())
    asked = total.total - total.output_tokens
    hits = total.cache_read_tokens / asked if asked else 0.0
    fresh_price = prices.cache_write if total.cache_write_tokens else prices.input
    money = 0.0 if cached else used * hits * (fresh_price - prices.cache_read)  # not in the cache yet, once
    for turn in range(ahead):
        read = (used + (turn + 0.5) * pace) * calls
        money += read * hits * prices.cache_read + read * (1 - hits) * fresh_price
        money += output * prices.output
    return money / PER_MILLION


def turns_left_hint(forecast: Forecast) -> str:
    """One line for the gauge shortly before compaction, otherwise empty."""
    if not forecast.turns_left or forecast.turns_left > WARN_TURNS_LEFT:
        return ""  # none left: compaction is due, and the gauge says so
    return f"~{counted(forecast.turns_left, 'turn')} left"


def forecast_lines(forecast: Forecast) -> list[str]:
    if forecast.tokens_per_turn is None:
        why = "this session has not grown" if forecast.turns else "no reply has said what it used"
        return [f"no forecast yet: {why}"]
    left = "turns left not known: the window is unknown"
    if forecast.turns_left is not None:
        left = f"~{counted(forecast.turns_left, 'turn')} left"
    lines = [f"~{forecast.tokens_per_turn:,} tokens a turn, {left}"]
    if forecast.next_turns and forecast.cost_going_on is not None and forecast.cost_compacted is not None:
        ahead = "turn" if forecast.next_turns == 1 else counted(forecast.next_turns, "turn")
        lines.append(
            f"the next {ahead}: ~{dollars(forecast.cost_going_on)} without compaction, "
            f"~{dollars(forecast.cost_compacted)} compacting now"
        )
    return lines


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.4f}"
