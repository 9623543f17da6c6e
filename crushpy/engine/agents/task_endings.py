"""How a list of tasks ended, in words: what is done, what is not, and how to go on."""

from collections.abc import Mapping, Sequence

from crushpy.core.messages import Data
from crushpy.engine.agents.task_schedule import TaskState
from crushpy.storage.records import ListedTask

MOST_NAMES = 10
"""Tasks that are named one by one, of each kind."""
MOST_REASONS = 5
_WORDS: dict[TaskState, str] = {
    "failed": "failed",
    "limit": "stopped at a limit",
    "interrupted": "interrupted",
    "skipped": "not begun for that",
    "waiting": "not begun",
}


class ListEnding(Data, frozen=True):
    """Why not all is done."""

    text: str
    reasons: str
    """Of tasks that failed."""
    go_on: str


def ending(
    states: Mapping[str, TaskState], tasks: Sequence[ListedTask], root_id: str, stopped: str
) -> ListEnding:
    """`stopped`: interrupted, or the limit that was reached; empty where it came to its end by itself."""
    named: dict[TaskState, list[str]] = {
        state: [name for name, found in states.items() if found == state] for state in _WORDS
    }
    done = sum(state == "done" for state in states.values())
    rest = "; ".join(f"{_WORDS[state]}: {_some(names)}" for state, names in named.items() if names)
    why = {"": "", "interrupted": "Interrupted: "}.get(stopped, f"Stopped, {stopped}: ")
    failed = [task for task in tasks if task.name in named["failed"]][:MOST_REASONS]
    return ListEnding(
        f"{why}{done} of {len(states)} tasks are done; {rest}.",
        "; ".join(f"{task.name}: {task.error}" for task in failed),
        f"`crushpy run --resume {root_id}` goes on with the rest (with the same --allow or --yolo); "
        "the file is not read again.",
    )


def branches_left(tasks: Sequence[ListedTask], root_id: str) -> str:
    """What tasks with worktrees left, and how to look at it; empty where they left nothing."""
    many = sum(bool(task.branch) for task in tasks)
    if not many:
        return ""
    held = f"{many} branches hold" if many > 1 else "1 branch holds"
    look = f"git branch --list 'crushpy/{root_id}/*'"
    return f"{held} what tasks with a worktree changed, merged nowhere: {look}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
