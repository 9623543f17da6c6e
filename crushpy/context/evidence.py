"""Facts carried over a boundary, built by code from the stored record of the whole lineage.

Deterministic: the same record gives the same bytes. What does not fit is counted, never silently gone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from crushpy.context import facts
from crushpy.context.tags import element, quoted, safe
from crushpy.messages import Data, Message, Todo

Count = Callable[[str], int]
LINE = 400
"""Characters of one command or error line."""
REQUESTS_SHARE = 0.6
"""Of the whole bound, for all requests together: long ones must not crowd out every other fact."""


class Standing(Data, frozen=True):
    """What the messages do not say: how things stand at the moment of the boundary."""

    cwd: str = "/"
    todos: tuple[Todo, ...] = ()
    jobs: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()


class Section(Data, frozen=True):
    """Some lines under a title, in order of right to space."""

    title: str
    lines: tuple[str, ...]


def build_evidence(
    lineage: Sequence[Message],
    around: Standing,
    *,
    limit: int,
    request_limit: int,
    count: Count,
    redact: Callable[[str], str] = lambda text: text,
) -> str:
    """The evidence as text, at most `limit` tokens; a single request above `request_limit` is shortened."""
    room = limit
    blocks: list[str] = []
    asked, spent = _requests(lineage, int(limit * REQUESTS_SHARE), request_limit, count, redact)
    blocks += asked
    room -= spent
    for section in _sections(lineage, around):
        block, spent = _fit(section, room, count, redact)
        if block:
            blocks.append(block)
            room -= spent
    return "\n".join(blocks)


def _requests(
    lineage: Sequence[Message], room: int, request_limit: int, count: Count, redact: Callable[[str], str]
) -> tuple[list[str], int]:
    """The first request, then the others from the newest back, shown in the order they were made."""
    asked = facts.requests(lineage)
    kept: dict[int, str] = {}
    spent = 0
    for number in [0, *range(len(asked) - 1, 0, -1)] if asked else []:
        request = asked[number]
        text = quoted(redact(request.text), request_limit, count, request.id)
        block = element("request", text, id=request.id, number=str(number + 1))
        cost = count(block) + 1
        if kept and spent + cost > room:
            continue
        kept[number] = block
        spent += cost
    blocks = [kept[number] for number in sorted(kept)]
    left_out = len(asked) - len(kept)
    if left_out:
        blocks.append(f"({left_out} more requests; recall finds them)")
        spent += 12
    return blocks, spent


def _fit(section: Section, room: int, count: Count, redact: Callable[[str], str]) -> tuple[str, int]:
    """The section with as many of its lines as there is room for, and what they cost."""
    if not section.lines:
        return "", 0
    reserve = 16  # for the line that counts what is left out
    spent = count(section.title) + 2
    lines: list[str] = []
    for line in section.lines:
        clean = safe(redact(line))
        cost = count(clean) + 1
        if spent + cost > room - reserve:
            break
        lines.append(clean)
        spent += cost
    left_out = len(section.lines) - len(lines)
    if left_out:
        if room < reserve:
            return "", 0
        lines.append(f"({left_out} more; recall finds them)")
        spent += 12
    return "\n".join((f"{section.title}:", *lines)), spent


def _sections(lineage: Sequence[Message], around: Standing) -> Iterable[Section]:
    """Everything but the requests, in order of right to space."""
    ran = facts.commands(lineage)
    files = facts.touched(lineage)
    last: dict[str, facts.Command] = {command.text: command for command in ran}
    times = Counter(command.text for command in ran if command.failed)
    failing = [c for c in _newest(last.values()) if c.failed]
    repaired = [c for c in _newest(last.values()) if not c.failed and times[c.text]]
    tests = [command for command in ran if command.is_test and not command.background]
    changed = _last_action([file for file in files if file.action != "read"], around.cwd)
    read = _last_action([file for file in files if file.action == "read"], around.cwd)
    plain = Counter(command.text for command in ran)
    told = {command.text for command in (*failing, *repaired, *tests[-1:])}

    todos = [f"- [{todo.status}] {todo.text}" for todo in facts.open_todos(around.todos)]
    yield Section("Open todos", tuple(todos))
    yield Section("Failing commands, not repaired since", tuple(_failure(c, times[c.text]) for c in failing))
    yield Section("Files changed", tuple(_grouped(changed)))
    yield Section("Last test run", tuple(_test_run(tests[-1]) if tests else ()))
    yield Section("Background jobs running", around.jobs)
    yield Section("Git", around.git)
    yield Section("Commands that failed and work by now", tuple(_failure(c, times[c.text]) for c in repaired))
    yield Section("Files read", tuple(path for path in sorted(read) if path not in changed))
    others = [c for c in _newest(last.values()) if c.text not in told]
    yield Section("Other commands, latest first", tuple(_counted(c.text, plain[c.text]) for c in others))
    yield Section("Granted for this conversation", around.grants)
    tools = Counter(call.name for call, _ in facts.calls(lineage))
    yield Section(
        "Tools called", (", ".join(f"{name} {n}" for name, n in tools.most_common()),) if tools else ()
    )
    yield Section("Messages folded", (str(len(lineage)),))


def _newest(found: Iterable[facts.Command]) -> list[facts.Command]:
    return sorted(found, key=lambda command: -command.number)


def _last_action(files: Sequence[facts.Touched], cwd: str) -> dict[str, str]:
    """Each path once, with the last thing done to it; a file made here stays `created`."""
    actions: dict[str, str] = {}
    for file in files:
        path = facts.absolute(file.path, cwd)
        if actions.get(path) != "created":
            actions[path] = file.action
    return actions


def _grouped(actions: dict[str, str]) -> Iterable[str]:
    """Full paths, those of one folder together."""
    for path in sorted(actions, key=lambda path: (path.rpartition("/")[0], path)):
        yield f"{path} ({actions[path]})"


def _one_line(text: str, limit: int = LINE) -> str:
    line = " ⏎ ".join(part.strip() for part in text.strip().splitlines() if part.strip())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _counted(text: str, times: int) -> str:
    return f"$ {_one_line(text)}" + (f" ({times}x)" if times > 1 else "")


def _failure(command: facts.Command, times: int) -> str:
    code = f"exit {command.exit_code}" if command.exit_code is not None else "failed"
    return f"$ {_one_line(command.text)} ({code}{f', {times}x' if times > 1 else ''})"


def _test_run(command: facts.Command) -> Iterable[str]:
    yield _failure(command, 1) if command.failed else f"$ {_one_line(command.text)} (passed)"
    lines = [line for line in command.output.strip().splitlines() if line.strip()]
    for line in lines[-3:]:
        yield f"  {_one_line(line, 160)}"
