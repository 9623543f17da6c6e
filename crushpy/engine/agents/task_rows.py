"""How the tasks of a list stand, as rows of text: for terminals and the app."""

from collections.abc import Iterable, Sequence
from unicodedata import combining, east_asian_width

from crushpy.core.events import ListedTaskChanged
from crushpy.core.messages import counted
from crushpy.security.sanitize import clean, one_line

MARKS = {"waiting": " ", "running": "▸", "done": "✓", "skipped": "-"}
_ORDER = ("running", "failed", "limit", "interrupted", "skipped", "waiting", "done")
"""Who is shown first where not all fit."""
_NAME, _STATE = 24, 11


def table_lines(tasks: Sequence[ListedTaskChanged], width: int, height: int) -> list[str]:
    """The table as text of at most `height` lines, none wider than `width`."""
    room = max(0, height - 2)
    shown = sorted(tasks, key=lambda task: _ORDER.index(task.state))[:room] if len(tasks) > room else tasks
    names = min(_NAME, max((_width(task.name) for task in shown), default=4))
    head = f"  {'task':<{names}}  {'state':<{_STATE}} {'step':>4} {'tokens':>9} {'cost':>8}  last"
    rows = [_row(task, names) for task in sorted(shown, key=lambda task: task.number)]
    lines = [head, *rows, _sum(tasks, len(tasks) - len(shown))]
    return [_cut(line, width) for line in lines[-height:]]


def _row(task: ListedTaskChanged, names: int) -> str:
    name = _cut(task.name, names)
    last = one_line(clean(task.error or task.branch or unchanged(task) or task.line))
    return (
        f"{MARKS.get(task.state, '✗')} {name}{' ' * (names - _width(name))}  {task.state:<{_STATE}} "
        f"{task.step:>4} {task.tokens:>9,} {money(task.cost):>8}  {last}"
    )


def unchanged(task: ListedTaskChanged) -> str:
    """Says of a task with a worktree that it left no branch; empty of any other."""
    return "nothing changed, no branch" if task.worktree and task.state == "done" and not task.branch else ""


def _sum(tasks: Iterable[ListedTaskChanged], unseen: int) -> str:
    tasks = list(tasks)
    states = {state: sum(task.state == state for task in tasks) for state in _ORDER}
    words = [f"{many} {state}" for state, many in states.items() if many]
    tokens = sum(task.tokens for task in tasks)
    words += [f"{tokens:,} tokens", money(sum(task.cost for task in tasks))]
    return f"  {counted(len(tasks), 'task')}: {', '.join(words)}" + (
        f"; {unseen} not shown" if unseen else ""
    )


def money(cost: float) -> str:
    return f"${cost:.2f}"


def _width(text: str) -> int:
    """How many columns a terminal gives it."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while text and _width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
