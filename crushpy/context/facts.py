"""Facts taken from stored messages: requests, commands, files, todos. Never from prose."""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from crushpy.context.names import count_names
from crushpy.context.partition import units
from crushpy.context.standing_rules import MAX_STATEMENTS, RulePhrases, UserStatement, edits_in, own_words_of
from crushpy.core.mcp_names import called_tool
from crushpy.core.messages import (
    Data,
    Diff,
    Message,
    Note,
    TaskReport,
    Terminal,
    Todo,
    TodoList,
    ToolCall,
    ToolResult,
    TouchedFile,
)
from crushpy.util.lazy_pattern import lazy_pattern

INTERRUPTED = "Interrupted"
"""The beginning of the result of a call that was stopped while it ran: its effects are unknown."""

COMMAND_START = (
    r"(?:^|[;&|(\n])[^\S\n]*+(?:\w+=\S*\s+)*"
    r"(?:(?:sudo|time|env|command|exec|npx|bunx|(?:uv|poetry|pipenv|pdm|hatch|rye) run|bundle exec"
    r"|timeout (?:-\S+ )*\S+|\S{0,99}python[\d.]* (?:-\w+ )*-m)\s+)*(?:\S{0,99}/)?"
)
"""A pattern for the start of a command, with what may precede its name."""
_TEST_WORDS = lazy_pattern("est|spec|tox|nox|trial|mocha|ava|karma|unit|bats|busted|cypress|check|verify")
"""Every match of `_TESTS`, whose compilation takes long, contains one of them."""
_TESTS = lazy_pattern(
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


class CommandFacts(Data, frozen=True):
    """A shell command that ran, or whose end was reported."""

    text: str
    failed: bool = False
    exit_code: int | None = None
    note: str = ""
    """How it ended, in words: timed out, killed, interrupted."""
    background: bool = False
    """It was only started here; its end is in the output of the job, if that was read."""
    job: tuple[str, str] | None = None
    """The job whose end was reported, which may be repeated: each end counts once."""
    is_test: bool = False
    """It ran tests, and not in the background."""
    lines: tuple[str, ...] = ()
    """Of tests: the last of their output."""
    paths: tuple[str, ...] = ()
    """The files that a failing command named, in full."""


class Command(CommandFacts, frozen=True):
    """A command with its output, which is not stored again."""

    output: str = ""


def calls(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Every call that has a result, in order of the results."""
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.calls:
            waiting[call.id] = call
        result = message.result
        if result is not None and result.call_id in waiting:
            yield waiting.pop(result.call_id), result


def said_in(message: Message, *, notes: bool = False) -> str:
    """All text of a message: its prose, the arguments of its calls, its result, and `notes` if wanted. Not
    thinking, not seeds."""
    texts = [message.text, *(text for call in message.calls for text in _texts(call.args))]
    texts += [part.text for part in message.parts if notes and isinstance(part, Note)]
    return "\n".join((*texts, message.result.text if message.result is not None else ""))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore
        for part in inner:
            yield from _texts(part)


def request_text(message: Message) -> str:
    """The user's prompt in a message, with a line for each picture. Seeds and notes are not the user's."""
    pictures = (f"[image {image.info}]" for image in message.images)
    return "\n".join(filter(None, (message.text.strip(), *pictures)))


def commands(messages: Sequence[Message]) -> list[Command]:
    """Every command that ran, in order; not those that were refused or never started."""
    found: list[Command] = []
    for call, result in calls(messages):
        command = command_of(call, result)
        if command is not None and (command.job is None or all(command.job != known.job for known in found)):
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
    searched = "" if background else text[:SEARCHED_CHARS]
    is_test = _TEST_WORDS.search(searched) is not None and _TESTS.search(searched) is not None
    return Command(text, result.is_error, exit_code, note, background, job, is_test, output=output)


def touched(messages: Sequence[Message]) -> list[TouchedFile]:
    """Files read and changed by successful calls, in order."""
    return [file for call, result in calls(messages) for file in touched_by(call, result)]


def touched_by(call: ToolCall, result: ToolResult) -> list[TouchedFile]:
    found: list[TouchedFile] = []
    if isinstance(result.display, TaskReport):
        found += [TouchedFile(direct(file.path), file.action) for file in result.display.changed]
    if result.touched:
        return [*found, *(TouchedFile(direct(file.path), file.action) for file in result.touched)]
    changed = result.display.path if isinstance(result.display, Diff) else ""
    path = str(call.args.get("file_path", "") or changed).strip()
    if result.is_error or not path:
        return found
    path = direct(path)
    if isinstance(result.display, Diff):  # whichever tool changed it
        action = "written" if call.name in ("write", "Write") else "edited"
        found.append(TouchedFile(path, "created" if result.display.created else action))
    elif call.name == "view":
        found.append(TouchedFile(path, "read"))
    return found


def todos(messages: Sequence[Message]) -> tuple[Todo, ...]:
    latest: tuple[Todo, ...] = ()
    for _, result in calls(messages):
        if not result.is_error and isinstance(result.display, TodoList):
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


# --- the facts of one message ----------------------------------------------------------------------------


MAX_REQUEST_CHARS = 40_000
MAX_REPLY_CHARS = 4_000
MAX_PATHS = 40
"""Of the files that a failing command names."""
MAX_NAMED_CHARS = 100_000
"""Characters of a message that are searched for names."""
MAX_NAMES = 500
"""Of one message."""
TEST_LINES = 3
"""Of a test run's output."""
_PATHS = lazy_pattern(r"(?<![\w.@~+-])[\w.@~+-]*+(?:/[\w.@+-]++)+|(?<![\w+-])[\w+-]++\.[A-Za-z]\w{0,4}\b")
_SEARCHED_CHARS = 4_000
"""Characters of a failing command's output that are searched for file names."""


class MessageFacts(Data, frozen=True):
    """Extracted once, when the message is committed; the ledger merges them."""

    request: Quote | None = None
    reply: Quote | None = None
    """Text of a reply that may belong to the first turn of the conversation."""
    tool: str = ""
    """The tool that a call was answered by."""
    command: CommandFacts | None = None
    files: tuple[TouchedFile, ...] = ()
    """Read or changed; paths in full."""
    loaded: tuple[str, ...] = ()
    """Skills and rules files that came with a result."""
    statements: tuple[UserStatement, ...] | None = None
    """Of the user's own words: rules, decisions and the end of rules. None if they were not searched for."""
    statements_dropped: int = 0
    """Beyond `MAX_STATEMENTS`."""
    message_id: str = ""
    at: float = 0.0
    """The message and its time, if there are statements."""
    branch: "tuple[MessageFacts, ...]" = ()
    """Of a returned branch: the facts of its messages, in their order."""
    names: dict[str, int] | None = None
    """How often a result showed each name, or the agent used it. None if they were not counted."""


NOTHING = MessageFacts(names={})


class FactReader:
    """Reads the messages of one session in their order: a result is understood by the call it answers."""

    def __init__(
        self,
        cwd: str,
        messages: Sequence[Message] = (),
        phrases: Callable[[], RulePhrases] | None = None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`messages` were committed before. Without `phrases` no rules are searched for."""
        self._cwd = cwd
        self._phrases = phrases
        self._redact = redact
        self._waiting: dict[str, ToolCall] = {}
        self._asked = 0
        for message in messages:
            self.committed(message)

    def extract(self, message: Message) -> MessageFacts:
        """The facts of the next message. Changes nothing, because the message may fail to be stored."""
        if message.role == "user":
            text = request_text(message)
            bounded = _bounded(text, message.id, MAX_REQUEST_CHARS)
            request = Quote(message.id, bounded) if text else None
            return self._said(message, request)
        if message.role == "assistant":
            text = message.text.strip() if self._asked <= 1 else ""  # a child may begin in the first turn
            bounded = _bounded(text, message.id, MAX_REPLY_CHARS)
            reply = Quote(message.id, bounded) if text else None
            return MessageFacts(reply=reply, names=self._names(said_in(message)))
        result = message.result
        call = self._waiting.get(result.call_id) if result is not None else None
        return self._of_call(call, result) if call is not None and result is not None else NOTHING

    def _said(self, message: Message, request: Quote | None) -> MessageFacts:
        names = self._names(request.text) if request else {}
        if self._phrases is None:
            return MessageFacts(request=request, names=names) if request else NOTHING
        found = edits_in(message)
        if request is not None:
            found += self._phrases().find(own_words_of(message))
        if request is None and not found:
            return NOTHING
        if message.origin in ("sdk", "fleet"):
            found = [msgspec.structs.replace(statement, origin=message.origin) for statement in found]
        kept = tuple(found[:MAX_STATEMENTS])
        more = sum(statement.rule for statement in found[MAX_STATEMENTS:])
        return MessageFacts(
            request,
            statements=kept,
            statements_dropped=more,
            message_id=message.id,
            at=message.created_at,
            names=names,
        )

    def committed(self, message: Message) -> None:
        for call in message.calls:
            self._waiting[call.id] = call
        if (result := message.result) is not None:
            self._waiting.pop(result.call_id, None)
        if message.role == "user" and request_text(message):
            self._asked += 1

    def extract_all(self, messages: Sequence[Message]) -> list[MessageFacts]:
        found: list[MessageFacts] = []
        for message in messages:
            found.append(self.extract(message))
            self.committed(message)
        return found

    def _of_call(self, call: ToolCall, result: ToolResult) -> MessageFacts:
        files = tuple(
            TouchedFile(absolute(file.path, self._cwd), file.action) for file in touched_by(call, result)
        )
        tool = called_tool(call.name, call.args) if not result.is_error else call.name
        command, names = self._command(call, result), self._names(result.text)
        return MessageFacts(tool=tool, command=command, files=files, loaded=result.loaded, names=names)

    def _names(self, text: str) -> dict[str, int]:
        """The names that occur most often; not in a secret."""
        near = self._redact(text[:MAX_NAMED_CHARS]).replace(f"{self._cwd.rstrip('/')}/", "")
        return dict(count_names(near).most_common(MAX_NAMES))

    def _command(self, call: ToolCall, result: ToolResult) -> CommandFacts | None:
        ran = command_of(call, result)
        if ran is None:
            return None
        lines = [line for line in ran.output.strip().splitlines() if line.strip()][-TEST_LINES:]
        facts = msgspec.convert(ran, CommandFacts, from_attributes=True)
        return msgspec.structs.replace(
            facts,
            lines=tuple(lines) if ran.is_test else (),
            paths=self._named(ran) if ran.failed else (),
        )

    def _named(self, command: Command) -> tuple[str, ...]:
        text = f"{command.text[:_SEARCHED_CHARS]}\n{command.output[-_SEARCHED_CHARS:]}"
        named = dict.fromkeys(absolute(path, self._cwd) for path in _PATHS.findall(text))
        return tuple(named)[:MAX_PATHS]


def facts_left(facts: MessageFacts, message: Message) -> MessageFacts:
    """The facts of a message of which requests show only a part: `message` as they show it."""
    text = message.result.text if message.result else request_text(message)
    command, said = facts.command, facts.statements
    lines = tuple(line for line in command.lines if line.strip() in text) if command else ()
    return msgspec.structs.replace(
        facts,
        request=facts.request and Quote(message.id, text),
        reply=facts.reply and Quote(message.id, text),
        command=command and msgspec.structs.replace(command, lines=lines),
        statements=said and tuple(each for each in said if each.text in text or each.edit == "withdrawn"),
        names={name: times for name, times in (facts.names or {}).items() if name in said_in(message)},
    )


def _bounded(text: str, message_id: str, most: int) -> str:
    """A text of a size that can be quoted; the stored message has the rest."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[... recall {message_id} ...]\n{text[-half:]}"


# --- natural moments -------------------------------------------------------------------------------------


TODO_DONE = "todo done"
GIT_COMMIT = "git commit"
TESTS_GREEN = "tests green"
NEW_PROMPT = "new prompt"

_WORD = r"(?:[^\s'\";&|]|'[^']*'|\"[^\"]*\")+"
_COMMIT = lazy_pattern(
    rf"{COMMAND_START}git\s+(?:(?:-[Cc]|--git-dir|--work-tree)[=\s]\s*{_WORD}\s+|-[\w-]+\s+)*"
    r"commit(?![\w-])(?P<rest>[^;&|\n]*)"
)
_ONLY_LOOKS = lazy_pattern(r"(?:^|\s)(?:--dry-run|--help|-h)(?=\s|$)")
_NOTHING_DONE = lazy_pattern(
    r"nothing (?:added )?to commit|no changes added to commit|aborting commit", re.IGNORECASE
)


def moment_at(history: Sequence[Message], before: Iterable[Todo], now: Iterable[Todo]) -> str:
    """The natural moment that `history` ends with, at which a compaction disturbs least; empty if it is none.
    `before` and `now` are the todos at the last call and the current ones."""
    if not history:
        return ""
    last = history[-1]
    if last.role == "user":
        return NEW_PROMPT if last.says_something and not open_todos(tuple(now)) else ""
    step = units(history)[-1]
    if _finished(step, before, now):
        return TODO_DONE
    ran = commands(step)
    if any(map(_committed, ran)):
        return GIT_COMMIT
    if any(_passed(command) for command in ran) and _green_after_red(commands(history), len(ran)):
        return TESTS_GREEN
    return ""


def _finished(step: Sequence[Message], before: Iterable[Todo], now: Iterable[Todo]) -> bool:
    """Whether the step completed a todo."""
    changed = any(isinstance(result.display, TodoList) for _, result in calls(step) if not result.is_error)
    return changed and bool(_completed(now) - _completed(before))


def _completed(todos: Iterable[Todo]) -> Counter[str]:
    return Counter(todo.text for todo in todos if todo.status == "completed")


def _committed(command: Command) -> bool:
    if command.failed or command.exit_code != 0 or command.background:
        return False
    found = _COMMIT.search(command.text[:SEARCHED_CHARS])
    return (
        found is not None
        and _ONLY_LOOKS.search(found["rest"]) is None
        and _NOTHING_DONE.search(command.output) is None
    )


def _passed(command: Command) -> bool:
    return command.is_test and not command.failed and command.exit_code == 0


def _green_after_red(ran: Sequence[Command], recent: int) -> bool:
    """Whether one of the last `recent` commands is a passing test run and the test run before it failed."""
    failed = False
    for place, command in enumerate(ran):
        if failed and _passed(command) and place >= len(ran) - recent:
            return True
        failed = command.failed if command.is_test else failed
    return False
