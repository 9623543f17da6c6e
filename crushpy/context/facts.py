"""Facts taken from stored messages: requests, commands, files, todos. Never from prose."""

import posixpath
import re
from collections.abc import Iterator, Sequence

from crushpy.core.messages import (
    Data,
    Diff,
    Message,
    TaskReport,
    Terminal,
    Todo,
    TodoList,
    ToolCall,
    ToolResult,
)

INTERRUPTED = "Interrupted"
"""The beginning of the result of a call that was stopped while it ran: its effects are unknown."""

COMMAND_START = (
    r"(?:^|[;&|(\n])[^\S\n]*+(?:\w+=\S*\s+)*"
    r"(?:(?:sudo|time|env|command|exec|npx|bunx|(?:uv|poetry|pipenv|pdm|hatch|rye) run|bundle exec"
    r"|timeout (?:-\S+ )*\S+|\S{0,99}python[\d.]* (?:-\w+ )*-m)\s+)*(?:\S{0,99}/)?"
)
"""A pattern for the start of a command, with what may precede its name."""
_TESTS = re.compile(
    rf"{COMMAND_START}(?:"
    r"(?:pytest|py\.test|tox|nox|unittest|trial|nosetests|jest|vitest|mocha|ava|karma|rspec|phpunit|pest|ctest"
    r"|nextest|minitest|playwright test|cypress run|busted|bats)\b"
    r"|(?:npm|pnpm|yarn|bun|deno|cargo|go|make|just|task|mvn|mvnw|gradle|gradlew|dotnet|mix|rake|swift|bazel"
    r"|zig build|composer|lein|sbt|stack|cabal|dart|flutter|rails|python[\d.]* \S*manage\.py)\s+"
    r"(?:-\S+\s+|run\s+)*(?:test|tests|check|nextest|verify|spec)\b"
    r"|run[-_]?tests?\b"
    r")"
    rf"|{COMMAND_START.removesuffix('?')}tests?(?:\.\w+)?(?=\s|$)"
)

_JOBS = ("job_output", "job_kill")
SEARCHED_CHARS = 2_000
"""Characters of a command that are searched: the rest is a message or a script, not a call."""


class Quote(Data, frozen=True):
    """What the user asked, or the model said, and the id of the message."""

    id: str
    text: str


class Command(Data, frozen=True):
    text: str
    failed: bool
    exit_code: int | None
    output: str
    background: bool = False
    """It was only started here; its end is in the output of the job, if that was read."""
    note: str = ""
    """How it ended, in words: timed out, killed, interrupted."""
    job: tuple[str, str] | None = None
    """The background job whose end was reported, which may be repeated."""

    @property
    def is_test(self) -> bool:
        return _TESTS.search(self.text[:SEARCHED_CHARS]) is not None


class Touched(Data, frozen=True):
    """A file that was read or changed. `path` is as the model wrote it, normalised."""

    path: str
    action: str
    """created, edited, written or read."""


def calls(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Every call that has a result, in order of the results."""
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.calls:
            waiting[call.id] = call
        result = message.result
        if result is not None and result.call_id in waiting:
            yield waiting.pop(result.call_id), result


def requests(messages: Sequence[Message]) -> list[Quote]:
    """The user's prompts, oldest first, with a line for each picture. Seeds and notes are not the user's."""
    return [
        Quote(message.id, text)
        for message in messages
        if message.role == "user" and (text := request_text(message))
    ]


def request_text(message: Message) -> str:
    """The user's own words in a message, with a line for each picture."""
    pictures = (f"[image {image.info}]" for image in message.images)
    return "\n".join(filter(None, (message.text.strip(), *pictures)))


def commands(messages: Sequence[Message]) -> list[Command]:
    """Every command that ran, in order; not those that were refused or never started."""
    found: list[Command] = []
    for call, result in calls(messages):
        command = command_of(call, result)
        if command is not None and (command.job is None or all(command.job != one.job for one in found)):
            found.append(command)
    return found


def command_of(call: ToolCall, result: ToolResult) -> Command | None:
    """The command that a call ran, or whose end it reported; None for any other call."""
    job = None
    shown = result.display if isinstance(result.display, Terminal) else None
    if call.name == "bash":
        text = str(call.args.get("command", "")).strip()
        interrupted = shown is None and result.text.startswith(INTERRUPTED)
        if not text or (shown is None and result.is_error and not interrupted):
            return None
        background = bool(call.args.get("background"))
        note = "interrupted" if interrupted else shown.note if shown else ""
    else:
        # The end of a job, or the shell of another agent. A killed job neither failed nor succeeded.
        ended = call.name == "job_output" and shown is not None and (result.is_error or shown.exit_code == 0)
        if shown is None or not shown.command.strip() or (call.name in _JOBS and not ended):
            return None
        text, background, note = shown.command.strip(), False, shown.note
        job = (str(call.args.get("job_id", "")), text) if ended else None
    exit_code = shown.exit_code if shown else None
    output = shown.output if shown else result.text
    return Command(text, result.is_error, exit_code, output, background, note, job)


def touched(messages: Sequence[Message]) -> list[Touched]:
    """Files read and changed by successful calls, in order."""
    return [file for call, result in calls(messages) for file in touched_by(call, result)]


def touched_by(call: ToolCall, result: ToolResult) -> list[Touched]:
    found: list[Touched] = []
    if isinstance(result.display, TaskReport):
        found += [Touched(direct(file.path), file.action) for file in result.display.changed]
    changed = result.display.path if isinstance(result.display, Diff) else ""
    path = str(call.args.get("file_path", "") or changed).strip()
    if result.is_error or not path:
        return found
    path = direct(path)
    if isinstance(result.display, Diff):  # whichever tool changed it
        action = "written" if call.name in ("write", "Write") else "edited"
        found.append(Touched(path, "created" if result.display.created else action))
    elif call.name == "view":
        found.append(Touched(path, "read"))
    return found


def todos(messages: Sequence[Message]) -> tuple[Todo, ...]:
    latest: tuple[Todo, ...] = ()
    for call, result in calls(messages):
        if call.name == "todos" and not result.is_error and isinstance(result.display, TodoList):
            latest = result.display.todos
    return latest


def open_todos(items: Sequence[Todo]) -> list[Todo]:
    return [todo for todo in items if todo.status != "completed"]


def direct(path: str) -> str:
    """`path` without `./`, `//` and `x/../`. The file system is not consulted: the file may be gone."""
    tidy = posixpath.normpath(path)
    return tidy[1:] if tidy.startswith("//") else tidy


def absolute(path: str, cwd: str) -> str:
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:[\\/]", path):
        return direct(path)
    return direct(f"{cwd}/{path}")
