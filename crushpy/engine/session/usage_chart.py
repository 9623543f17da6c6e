"""Draws a report of what was used: a bar for each day, model, project and conversation. Pure text."""

from collections.abc import Sequence
from pathlib import Path
from unicodedata import combining, east_asian_width

from crushpy.context.forecast import dollars
from crushpy.engine.session.usage_report import UsageReport, UsageShare
from crushpy.security.sanitize import one_line

EIGHTHS = "▏▎▍▌▋▊▉█"
PLAIN = "#"
"""For an output that cannot say the others."""
LARGEST = 10
"""So many models, projects and conversations have a bar; days have one each."""
LEAST_BAR = 8


def usage_chart(report: UsageReport, width: int = 80, *, marks: str = EIGHTHS) -> list[str]:
    """The report as lines of at most `width` columns. Bars are as long as there are tokens."""
    span = f"the last {report.days} days" if report.days > 1 else "today" if report.days else "all days"
    if not report.by_day:
        ever = "crushpy stats --days 0 counts all days." if report.days else ""
        return [f"Nothing was used yet ({span}). {ever}".rstrip()]
    lines = [f"{_tokens(report.total.total)} tokens{_money(report.total.cost, ', ')} ({span})"]
    groups = (
        ("By day", report.by_day),
        ("By model", report.by_model),
        ("By project", [_at_home(share) for share in report.by_project]),
        ("By conversation", report.by_conversation),
    )
    for title, shares in groups:
        shown = shares if title == "By day" else shares[:LARGEST]
        lines += ["", title, *bars(shown, width, marks)]
        if len(shown) < len(shares):
            lines.append(f"  and {len(shares) - len(shown):,} more")
    return lines


def bars(shares: Sequence[UsageShare], width: int, marks: str = EIGHTHS) -> list[str]:
    """A line each: name, bar, tokens, money."""
    tokens = [_tokens(share.usage.total) for share in shares]
    money = [_money(share.usage.cost) for share in shares]
    figures = [
        f"{one:>{max(map(len, tokens))}}  {other:>{max(map(len, money))}}".rstrip()
        for one, other in zip(tokens, money, strict=True)
    ]
    names = [one_line(share.name) for share in shares]
    room = (
        width - 2 - 4 - max(map(len, figures), default=0)
    )  # the margin, and two columns between two of them
    label = max(4, min(max(map(_cells, names), default=0), room - max(LEAST_BAR, room // 3)))
    most = max((share.usage.total for share in shares), default=0)
    longest = max(1, room - label)
    return [
        f"  {_fitted(name, label)}  {_bar(share.usage.total, most, longest, marks)}  {figure}"
        for name, share, figure in zip(names, shares, figures, strict=True)
    ]


def _bar(part: int, most: int, longest: int, marks: str) -> str:
    """Something is seen of everything that is more than nothing."""
    steps = len(marks)
    filled = max(1, round(part / most * longest * steps)) if part and most else 0
    whole, rest = divmod(filled, steps)
    return (marks[-1] * whole + (marks[rest - 1] if rest else "")).ljust(longest)


def _tokens(many: int) -> str:
    return f"{many:,}"


def _money(amount: float, before: str = "") -> str:
    """Without a price there is no money."""
    return f"{before}{dollars(amount)}" if amount else ""


def _at_home(share: UsageShare) -> UsageShare:
    """A folder as people write it."""
    home = str(Path.home())
    inside = share.key == home or share.key.startswith(f"{home}/")
    return UsageShare(share.key, f"~{share.key[len(home) :]}", share.usage) if inside else share


def _fitted(name: str, width: int) -> str:
    """A name in exactly `width` columns. Of a path that is too long the end is what tells it from others."""
    if _cells(name) > width:
        is_path = name.startswith(("/", "~"))
        letters = name[::-1] if is_path else name
        kept = ""
        for letter in letters:
            if _cells(kept + letter) > width - 1:
                break
            kept += letter
        name = f"…{kept[::-1]}" if is_path else f"{kept}…"
    return name + " " * (width - _cells(name))


def _cells(text: str) -> int:
    """How many columns a terminal needs for it."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
