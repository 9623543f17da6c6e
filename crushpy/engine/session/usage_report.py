"""Tokens and money of all conversations: by day, by model, by project and by conversation."""

import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from crushpy.core.messages import Data, Usage
from crushpy.storage.records import UsageSum
from crushpy.storage.store import Store

DAYS = 30
"""How far back a report goes where nobody says."""


class UsageShare(Data, frozen=True, omit_defaults=False):
    """What one day, model, project or conversation used."""

    key: str
    """The day, the model, the folder, or the id of the conversation."""
    name: str
    usage: Usage


class UsageReport(Data, frozen=True, omit_defaults=False):
    days: int
    """How many days it goes back; 0: all there are."""
    total: Usage
    by_day: tuple[UsageShare, ...]
    """The earliest first, without days on which nothing was used."""
    by_model: tuple[UsageShare, ...]
    """The largest first, as in the others below."""
    by_project: tuple[UsageShare, ...]
    by_conversation: tuple[UsageShare, ...]


async def usage_report(store: Store, days: int) -> UsageReport:
    """What was used on the last so many days, today included; 0: ever."""
    first = date.today() - timedelta(days=days - 1) if days else date.min
    moment = time.mktime(first.timetuple()) if days else 0.0
    sums = [one for one in await store.usage.sum_since(moment) if one.day >= first.isoformat()]
    return UsageReport(
        days,
        sum((one.usage for one in sums), Usage()),
        tuple(sorted(_shares(sums, lambda one: (one.day, one.day)), key=lambda share: share.key)),
        _largest_first(_shares(sums, lambda one: (one.model, one.model))),
        _largest_first(_shares(sums, lambda one: (one.cwd, one.cwd))),
        _largest_first(_shares(sums, lambda one: (one.root_id, one.title or one.root_id))),
    )


def _shares(sums: Sequence[UsageSum], named: Callable[[UsageSum], tuple[str, str]]) -> list[UsageShare]:
    """The sums put together by key; `named` gives the key and the name."""
    totals: dict[str, Usage] = {}
    names: dict[str, str] = {}
    for one in sums:
        key, name = named(one)
        names[key] = name
        totals[key] = totals.get(key, Usage()) + one.usage
    return [UsageShare(key, names[key], usage) for key, usage in totals.items()]


def _largest_first(shares: Sequence[UsageShare]) -> tuple[UsageShare, ...]:
    return tuple(sorted(shares, key=lambda share: (-share.usage.total, -share.usage.cost, share.key)))
