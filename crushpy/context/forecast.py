"""How long a session lasts at its pace, and what going on costs against starting afresh now."""

from collections.abc import Sequence
from itertools import pairwise

from crushpy.context.budget import Budget
from crushpy.context.calibration import median
from crushpy.core.messages import Data, Message, Usage, counted

LAST_TURNS = 5
"""How many turns the pace is taken from."""
HORIZON = 10
"""The most turns that costs are compared over."""
SOON = 3
"""Turns left from which on the gauge says so."""
PER_MILLION = 1_000_000


class Prices(Data, frozen=True):
    """US dollars a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class FreshStart(Data, frozen=True):
    """What a fresh start made now would look like, in tokens."""

    read: int
    """Given to the summariser."""
    written: int
    """By the summariser."""
    first_request: int
    """What the child starts with."""


class Forecast(Data, frozen=True, omit_defaults=False):
    """All of it is estimated. None: not enough is known."""

    turns: int
    """How many turns it is taken from."""
    tokens_per_turn: int | None = None
    turns_left: int | None = None
    """Until the session ends by itself; None also where nobody knows the window."""
    next_turns: int | None = None
    """How many turns the costs are for."""
    cost_going_on: float | None = None
    cost_afresh: float | None = None
    """The fresh start itself included."""


class TurnUsage(Data, frozen=True):
    """What the model calls of one turn reported together."""

    calls: int
    usage: Usage
    reached: int
    """Tokens in use at its end."""


_NOTHING = TurnUsage(0, Usage(), 0)


class TurnUsages:
    """The turns of a session's own messages for which usage was reported: each message is looked at once."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._over: list[TurnUsage] = []
        self._last = _NOTHING
        """The turn that may go on."""

    def of(self, messages: Sequence[Message]) -> list[TurnUsage]:
        """In order. What is kept holds while the messages begin with the very same ones."""
        known = len(self._messages)
        if tuple(messages[:known]) != self._messages:
            known, self._over, self._last = 0, [], _NOTHING
        for message in messages[known:]:
            if message.role == "user" and message.says_something:
                self._over, self._last = self._turns(), _NOTHING
            elif (used := message.usage) is not None and used.total > 0:
                self._last = TurnUsage(self._last.calls + 1, self._last.usage + used, used.total)
        self._messages = tuple(messages)
        return self._turns()

    def _turns(self) -> list[TurnUsage]:
        return [*self._over, self._last] if self._last.calls else self._over


def forecast(
    turns: Sequence[TurnUsage],
    budget: Budget,
    *,
    start: int,
    limit: float | None,
    fresh: FreshStart,
    prices: Prices | None,
) -> Forecast:
    """`start` are the tokens the session began with, `limit` the share of the window at which it ends."""
    if not turns:
        return Forecast(0)
    pace = _pace(turns, start)
    if pace is None:
        return Forecast(len(turns))
    room = max(0, int((limit or 1.0) * budget.window) - budget.used)
    left = room // pace if budget.window_known else None
    if prices is None:
        return Forecast(len(turns), pace, left)
    ahead = HORIZON if left is None else max(1, min(left, HORIZON))
    going_on = _cost(turns, prices, budget.used, pace, ahead, cached=True)
    summary = (fresh.read * prices.input + fresh.written * prices.output) / PER_MILLION
    afresh = summary + _cost(turns, prices, fresh.first_request, pace, ahead, cached=False)
    return Forecast(len(turns), pace, left, ahead, round(going_on, 6), round(afresh, 6))


def _pace(turns: Sequence[TurnUsage], start: int) -> int | None:
    """Tokens that a turn adds: the middle of the last ones. None where the reports do not grow."""
    reached = [start, *(turn.reached for turn in turns)]
    growth = [after - before for before, after in pairwise(reached)]
    pace = round(median(growth[-LAST_TURNS:]))
    return pace if pace > 0 else None


def _cost(
    turns: Sequence[TurnUsage], prices: Prices, used: int, pace: int, ahead: int, *, cached: bool
) -> float:
    """Of the next turns, each as the last ones were: so many calls, so much written, so much from the cache.

    Each call reads the whole context. `cached`: what is there now lies in the provider's cache already.
    """
    last = turns[-LAST_TURNS:]
    calls = sum(turn.calls for turn in last) / len(last)
    output = sum(turn.usage.output_tokens for turn in last) / len(last)
    total = Usage()
    for turn in last:
        total += turn.usage
    asked = total.total - total.output_tokens
    hits = total.cache_read_tokens / asked if asked else 0.0
    fresh_price = prices.cache_write if total.cache_write_tokens else prices.input
    money = 0.0 if cached else used * hits * (fresh_price - prices.cache_read)  # not in the cache yet, once
    for turn in range(ahead):
        read = (used + (turn + 0.5) * pace) * calls
        money += read * hits * prices.cache_read + read * (1 - hits) * fresh_price
        money += output * prices.output
    return money / PER_MILLION


def soon(forecast: Forecast) -> str:
    """One line for the gauge when it matters; empty while it does not."""
    if forecast.turns_left is None or forecast.turns_left > SOON:
        return ""
    return f"~{counted(forecast.turns_left, 'turn')} left"


def in_words(forecast: Forecast) -> list[str]:
    """For people, a line each. Nothing here is exact."""
    if forecast.tokens_per_turn is None:
        why = "this session has not grown" if forecast.turns else "no reply has said what it used"
        return [f"no forecast yet: {why}"]
    left = "turns left not known, as the window is not"
    if forecast.turns_left is not None:
        left = f"~{counted(forecast.turns_left, 'turn')} left"
    lines = [f"~{forecast.tokens_per_turn:,} tokens a turn, {left}"]
    if forecast.next_turns and forecast.cost_going_on is not None and forecast.cost_afresh is not None:
        ahead = "turn" if forecast.next_turns == 1 else counted(forecast.next_turns, "turn")
        lines.append(
            f"the next {ahead}: ~{dollars(forecast.cost_going_on)} going on, "
            f"~{dollars(forecast.cost_afresh)} starting afresh now"
        )
    return lines


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 else f"${amount:.4f}"
