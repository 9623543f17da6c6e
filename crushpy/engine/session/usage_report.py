"""Tokens and money: of one conversation, and of all of them by day, model, project and conversation."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from msgspec import structs
from rich.cells import cell_len, set_cell_size

from crushpy.context.forecast import Forecast, dollars, forecast_lines
from crushpy.core.messages import Data, Usage
from crushpy.engine.agents.task_reports import fit_line
from crushpy.security.sanitize import one_line
from crushpy.storage.records import UsageSum
from crushpy.storage.store import Store
from crushpy.util.shown_paths import path_shortener

REPORT_DAYS = 30
EIGHTHS = "▏▎▍▌▋▊▉█"
MAX_BARS = 10
"""Of models, projects and conversations; days have one each."""
MIN_BAR_COLUMNS = 8


class UsageShare(Data, frozen=True, omit_defaults=False):
    """The usage of one day, model, project or conversation."""

    key: str
    """The day, the model, the folder, or the id of the conversation."""
    name: str
    usage: Usage


class UsageReport(Data, frozen=True, omit_defaults=False):
    days: int
    """The period, today included; 0: all days."""
    total: Usage
    by_day: tuple[UsageShare, ...]
    """The earliest first, without empty days."""
    by_model: tuple[UsageShare, ...]
    """The largest first, as in the others below."""
    by_project: tuple[UsageShare, ...]
    by_conversation: tuple[UsageShare, ...]


async def usage_report(store: Store, days: int) -> UsageReport:
    """The usage of the last `days` days, today included; 0: all days."""
    first = date.today() - timedelta(days=days - 1) if days else date.min
    moment = time.mktime(first.timetuple()) if days else 0.0
    sums = [row for row in await store.usage.sum_since(moment) if row.day >= first.isoformat()]
    return UsageReport(
        days,
        sum((total.usage for total in sums), Usage()),
        tuple(sorted(_shares(sums, lambda row: (row.day, row.day)), key=lambda share: share.key)),
        _largest_first(_shares(sums, lambda row: (row.model, row.model))),
        _largest_first(_shares(sums, lambda row: (row.cwd, row.cwd))),
        _largest_first(_shares(sums, lambda row: (row.root_id, row.title or row.root_id))),
    )


def _shares(sums: Sequence[UsageSum], named: Callable[[UsageSum], tuple[str, str]]) -> list[UsageShare]:
    """The sums grouped by key; `named` gives key and name."""
    totals = defaultdict[tuple[str, str], Usage](Usage)
    for total in sums:
        totals[named(total)] += total.usage
    return [UsageShare(*key_and_name, usage) for key_and_name, usage in totals.items()]


def _largest_first(shares: Sequence[UsageShare]) -> tuple[UsageShare, ...]:
    return tuple(sorted(shares, key=lambda share: (-share.usage.total, -share.usage.cost, share.key)))


def cost_report(usage: Usage, forecast: Forecast) -> list[str]:
    """What a conversation used and what is expected, a line each. Without a price no money is shown."""
    tokens = [
        f"{usage.input_tokens:,} in",
        f"{usage.cache_read_tokens:,} from the cache" if usage.cache_read_tokens else "",
        f"{usage.cache_write_tokens:,} into the cache" if usage.cache_write_tokens else "",
        f"{usage.output_tokens:,} out",
    ]
    first = f"This conversation: {usage.total:,} tokens ({', '.join(filter(None, tokens))})"
    if usage.cost:
        first += f", {dollars(usage.cost)}"
    return [first, *(f"Ahead: {line}" for line in forecast_lines(forecast))]


def usage_chart(report: UsageReport, width: int = 80) -> list[str]:
    """The report as lines of at most `width` columns. Bars show tokens."""
    span = f"the last {report.days} days" if report.days > 1 else "today" if report.days else "all days"
    if not report.by_day:
        ever = "crushpy stats --days 0 counts all days." if report.days else ""
        return [f"Nothing was used yet ({span}). {ever}".rstrip()]
    at_home = path_shortener(())
    lines = [f"{report.total.total:,} tokens{_money(report.total.cost, ', ')} ({span})"]
    groups = (
        ("By day", report.by_day),
        ("By model", report.by_model),
        ("By project", [structs.replace(share, name=at_home(share.name)) for share in report.by_project]),
        ("By conversation", report.by_conversation),
    )
    for title, shares in groups:
        shown = shares if title == "By day" else shares[:MAX_BARS]
        lines += ["", title, *bars(shown, width)]
        if len(shown) < len(shares):
            lines.append(f"  and {len(shares) - len(shown):,} more")
    return lines


def bars(shares: Sequence[UsageShare], width: int) -> list[str]:
    """A line each: name, bar, tokens, money."""
    tokens = [f"{share.usage.total:,}" for share in shares]
    money = [_money(share.usage.cost) for share in shares]
    figures = [
        f"{token:>{max(map(len, tokens))}}  {other:>{max(map(len, money))}}".rstrip()
        for token, other in zip(tokens, money, strict=True)
    ]
    names = [one_line(share.name) for share in shares]
    room = width - 2 - 4 - max(map(len, figures), default=0)  # the margin, and two columns between two fields
    label = max(4, min(max(map(cell_len, names), default=0), room - max(MIN_BAR_COLUMNS, room // 3)))
    most = max((share.usage.total for share in shares), default=0)
    longest = max(1, room - label)
    return [
        f"  {_fitted(name, label)}  {_bar(share.usage.total, most, longest)}  {figure}"
        for name, share, figure in zip(names, shares, figures, strict=True)
    ]


def _bar(part: int, most: int, longest: int) -> str:
    """A bar of at least one step for anything above zero."""
    steps = len(EIGHTHS)
    filled = max(1, round(part / most * longest * steps)) if part and most else 0
    whole, rest = divmod(filled, steps)
    return (EIGHTHS[-1] * whole + (EIGHTHS[rest - 1] if rest else "")).ljust(longest)


def _money(amount: float, before: str = "") -> str:
    """Empty if the price is unknown."""
    return f"{before}{dollars(amount)}" if amount else ""


def _fitted(name: str, width: int) -> str:
    """A name in exactly `width` columns. Of a long path the end is kept."""
    if cell_len(name) > width and name.startswith(("/", "~")):
        name = f"…{set_cell_size(name[::-1], width - 1)[::-1]}"
    return set_cell_size(fit_line(name, width), width)
