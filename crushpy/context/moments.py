"""Natural moments: points in the work at which a compaction disturbs least, found in stored messages."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from crushpy.context import facts
from crushpy.context.partition import units
from crushpy.core.messages import Message, Todo

TODO_DONE = "todo done"
GIT_COMMIT = "git commit"
TESTS_GREEN = "tests green"
NEW_PROMPT = "new prompt"

_WORD = r"(?:[^\s'\";&|]|'[^']*'|\"[^\"]*\")+"
_COMMIT = re.compile(
    rf"{facts.COMMAND_START}git\s+(?:(?:-[Cc]|--git-dir|--work-tree)[=\s]\s*{_WORD}\s+|-[\w-]+\s+)*"
    r"commit(?![\w-])(?P<rest>[^;&|\n]*)"
)
_ONLY_LOOKS = re.compile(r"(?:^|\s)(?:--dry-run|--help|-h)(?=\s|$)")
_NOTHING_DONE = re.compile(
    r"nothing (?:added )?to commit|no changes added to commit|aborting commit", re.IGNORECASE
)


def moment_at(history: Sequence[Message], before: Iterable[Todo], now: Iterable[Todo]) -> str:
    """The moment that `history` ends with; empty if it is none. `before` and `now` are the todos at the last
    call and the current ones."""
    if not history:
        return ""
    last = history[-1]
    if last.role == "user":
        return NEW_PROMPT if last.says_something and not facts.open_todos(tuple(now)) else ""
    step = units(history)[-1]
    if _finished(step, before, now):
        return TODO_DONE
    ran = facts.commands(step)
    if any(map(_committed, ran)):
        return GIT_COMMIT
    if any(_passed(command) for command in ran) and _green_after_red(facts.commands(history), len(ran)):
        return TESTS_GREEN
    return ""


def _finished(step: Sequence[Message], before: Iterable[Todo], now: Iterable[Todo]) -> bool:
    """Whether the step completed a todo."""
    changed = any(call.name == "todos" and not result.is_error for call, result in facts.calls(step))
    return changed and bool(_completed(now) - _completed(before))


def _completed(todos: Iterable[Todo]) -> Counter[str]:
    return Counter(todo.text for todo in todos if todo.status == "completed")


def _committed(command: facts.Command) -> bool:
    if command.failed or command.exit_code != 0 or command.background:
        return False
    found = _COMMIT.search(command.text[: facts.SEARCHED_CHARS])
    return (
        found is not None
        and _ONLY_LOOKS.search(found["rest"]) is None
        and _NOTHING_DONE.search(command.output) is None
    )


def _passed(command: facts.Command) -> bool:
    return command.is_test and not command.failed and command.exit_code == 0 and not command.background


def _green_after_red(ran: Sequence[facts.Command], recent: int) -> bool:
    """Whether one of the last `recent` commands is a passing test run and the test run before it failed."""
    failed = False
    for place, command in enumerate(ran):
        if not command.is_test or command.background:
            continue
        if failed and _passed(command) and place >= len(ran) - recent:
            return True
        failed = command.failed
    return False
