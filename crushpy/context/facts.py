"""What really happened, read off stored messages: requests, commands, files, todos. Never off prose."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from crushpy.messages import Data, Diff, Message, Terminal, Todo, TodoList, ToolCall, ToolResult

CHANGERS = ("edit", "multiedit", "write")
_TESTS = re.compile(
    r"\b(pytest|tox|nox|unittest|jest|vitest|mocha|rspec|phpunit|ctest|nextest|minitest)\b"
    r"|\b(npm|pnpm|yarn|bun|cargo|go|make|mvn|gradle|gradlew|dotnet|mix|rake|bin)[ /]"
    r"(run )?(test|tests|check)\b"
)


class Request(Data, frozen=True):
    """A user's own words."""

    id: str
    text: str


class Command(Data, frozen=True):
    """One shell command that ran. `number` is its place among all commands."""

    text: str
    failed: bool
    exit_code: int | None
    output: str
    number: int
    background: bool = False

    @property
    def is_test(self) -> bool:
        return _TESTS.search(self.text) is not None


class Touched(Data, frozen=True):
    """A file that was read or changed. `path` is as the model wrote it."""

    path: str
    action: str
    """created, edited, written or read."""


def calls(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Every call that has a result, in order of the calls."""
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.calls:
            waiting[call.id] = call
        result = message.result
        if result is not None and result.call_id in waiting:
            yield waiting.pop(result.call_id), result


def requests(messages: Sequence[Message]) -> list[Request]:
    """The user's prompts, oldest first. Seeds and notes are not the user's words."""
    return [
        Request(message.id, message.text.strip())
        for message in messages
        if message.role == "user" and message.text.strip()
    ]


def commands(messages: Sequence[Message]) -> list[Command]:
    found: list[Command] = []
    for call, result in calls(messages):
        text = str(call.args.get("command", "")).strip()
        if call.name != "bash" or not text:
            continue
        shown = result.display if isinstance(result.display, Terminal) else None
        found.append(
            Command(
                text,
                result.is_error,
                shown.exit_code if shown else None,
                shown.output if shown else result.text,
                len(found),
                bool(call.args.get("background")),
            )
        )
    return found


def touched(messages: Sequence[Message]) -> list[Touched]:
    """Files read and changed, in order, successful calls only."""
    found: list[Touched] = []
    for call, result in calls(messages):
        path = str(call.args.get("file_path", "")).strip()
        if result.is_error or not path:
            continue
        if call.name in CHANGERS:
            created = isinstance(result.display, Diff) and result.display.created
            found.append(
                Touched(path, "created" if created else "written" if call.name == "write" else "edited")
            )
        elif call.name == "view":
            found.append(Touched(path, "read"))
    return found


def todos(messages: Sequence[Message]) -> tuple[Todo, ...]:
    """The list of todos as it was last set."""
    latest: tuple[Todo, ...] = ()
    for call, result in calls(messages):
        if call.name == "todos" and not result.is_error and isinstance(result.display, TodoList):
            latest = result.display.todos
    return latest


def open_todos(items: Sequence[Todo]) -> list[Todo]:
    return [todo for todo in items if todo.status != "completed"]


def absolute(path: str, cwd: str) -> str:
    """`path` in full. Only words are looked at: the file may be gone by now."""
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:[\\/]", path):
        return path
    return str(PurePosixPath(cwd) / path.removeprefix("./"))
