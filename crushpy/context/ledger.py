"""What happened in a whole lineage, kept as facts: extended message by message, never read again from prose.

A session inherits the ledger of those before it, so that a boundary reads no ancestor's messages. It is
bounded: the oldest facts of a kind are dropped and counted.
"""

import re
from collections.abc import Sequence

import msgspec

from crushpy.context import facts
from crushpy.messages import Data, Message

MAX_REQUESTS = 400
MAX_COMMANDS = 600
MAX_FILES = 2_000
MAX_REQUEST_CHARS = 40_000
MAX_REPLY_CHARS = 8_000
MAX_PATHS = 40
"""Of those that a failing command names."""
TEST_LINES = 3
"""Of a test run's output."""
OPEN_GENERATIONS = 3
"""How long a failing command counts as open although nobody looked at it again."""
_PATHS = re.compile(r"(?<![\w.@~+-])[\w.@~+-]*+(?:/[\w.@+-]++)+|(?<![\w+-])[\w+-]++\.[A-Za-z]\w{0,4}\b")
_SEARCHED = 4_000
"""Characters of a failing command's output in which the files it names are looked for."""


class RunFact(Data, frozen=True):
    """One shell command, however often it ran. Numbers are places on the ledger's clock."""

    text: str
    number: int
    """Of the last run."""
    runs: int = 1
    failures: int = 0
    failed: bool = False
    """By the last run that came to its end; a start in the background repairs nothing."""
    exit_code: int | None = None
    note: str = ""
    """Exit code and note are those of the last failure."""
    failed_at: int = 0
    failed_in: int = 0
    """The generation of the last failure."""
    paths: tuple[str, ...] = ()
    """The files that the last failure named, in full."""


class FileFact(Data, frozen=True):
    """One file, with the last thing that was done to it."""

    path: str
    """In full."""
    number: int
    action: str = "read"
    changed_at: int = 0
    """0 where it was only read."""


class TestRun(Data, frozen=True):
    """The last command that ran tests to their end."""

    text: str
    failed: bool
    exit_code: int | None
    note: str
    lines: tuple[str, ...]
    """The last of its output."""


class Ledger(Data, frozen=True):
    generation: int = 0
    clock: int = 0
    messages: int = 0
    requests: tuple[facts.UserRequest, ...] = ()
    commands: tuple[RunFact, ...] = ()
    """The one that ran last stands last."""
    files: tuple[FileFact, ...] = ()
    """The one touched last stands last."""
    last_test: TestRun | None = None
    green_at: int = 0
    """When tests passed the last time."""
    tools: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    ended_jobs: tuple[tuple[str, str], ...] = ()
    dropped: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many facts of each kind are no longer held."""
    first_reply: facts.Reply | None = None
    """To the first request."""

    def extended(self, messages: Sequence[Message], *, cwd: str, generation: int) -> "Ledger":
        """With what happened in `messages`, which follow those that are in here."""
        writer = _Writer(self, cwd, generation)
        for call, result in facts.calls(messages):
            writer.add(call.name, facts.command_of(call, result, writer.ended_jobs, number=0))
            for file in facts.touched_by(call, result):
                writer.touch(file)
        first = self.first_reply or facts.first_reply(messages, len(self.requests))
        return writer.ledger(facts.requests(messages), len(messages), first)

    def still_failing(self) -> list[RunFact]:
        """The commands that count as open, the latest first."""
        return [run for run in reversed(self.commands) if run.failed and not self._settled(run)]

    def aged(self) -> list[RunFact]:
        """Failing commands that nobody looked at again for some generations."""
        return [run for run in self.commands if run.failed and self._is_old(run) and not self._repaired(run)]

    def _settled(self, run: RunFact) -> bool:
        return self._is_old(run) or self._repaired(run)

    def _is_old(self, run: RunFact) -> bool:
        return self.generation - run.failed_in >= OPEN_GENERATIONS

    def _repaired(self, run: RunFact) -> bool:
        """A file that it named was changed since, and the tests passed after that."""
        named = set(run.paths)
        return any(
            run.failed_at < file.changed_at < self.green_at for file in self.files if file.path in named
        )


class _Writer:
    """The ledger while it is being extended: the latest of each kind goes to the end."""

    def __init__(self, before: Ledger, cwd: str, generation: int) -> None:
        self._before = before
        self._cwd = cwd
        self._generation = generation
        self._clock = before.clock
        self._commands = {run.text: run for run in before.commands}
        self._files = {file.path: file for file in before.files}
        self._tools = dict(before.tools)
        self._last_test = before.last_test
        self._green_at = before.green_at
        self.ended_jobs = set(before.ended_jobs)

    def add(self, tool: str, command: facts.Command | None) -> None:
        """One call, and the command that it ran."""
        self._clock += 1
        self._tools[tool] = self._tools.get(tool, 0) + 1
        if command is None:
            return
        known = self._commands.pop(command.text, None)
        self._commands[command.text] = self._ran(command, known)
        if command.is_test and not command.background:
            lines = [line for line in command.output.strip().splitlines() if line.strip()][-TEST_LINES:]
            self._last_test = TestRun(
                command.text, command.failed, command.exit_code, command.note, tuple(lines)
            )
            if not command.failed:
                self._green_at = self._clock

    def _ran(self, command: facts.Command, known: RunFact | None) -> RunFact:
        runs = known.runs + 1 if known else 1
        if command.failed:
            return RunFact(
                command.text,
                self._clock,
                runs,
                (known.failures if known else 0) + 1,
                failed=True,
                exit_code=command.exit_code,
                note=command.note,
                failed_at=self._clock,
                failed_in=self._generation,
                paths=self._named(command),
            )
        if known is None:
            return RunFact(command.text, self._clock)
        failed = known.failed and command.background
        return RunFact(
            command.text,
            self._clock,
            runs,
            known.failures,
            failed,
            known.exit_code,
            known.note,
            known.failed_at,
            known.failed_in,
            known.paths if failed else (),
        )

    def _named(self, command: facts.Command) -> tuple[str, ...]:
        text = f"{command.text[:_SEARCHED]}\n{command.output[-_SEARCHED:]}"
        named = dict.fromkeys(facts.absolute(path, self._cwd) for path in _PATHS.findall(text))
        return tuple(named)[:MAX_PATHS]

    def touch(self, file: facts.Touched) -> None:
        path = facts.absolute(file.path, self._cwd)
        known = self._files.pop(path, None)
        if file.action != "read":
            self._files[path] = FileFact(path, self._clock, file.action, self._clock)
        elif known is not None and known.changed_at:
            self._files[path] = FileFact(path, self._clock, known.action, known.changed_at)
        else:
            self._files[path] = FileFact(path, self._clock)

    def ledger(
        self, requests: Sequence[facts.UserRequest], messages: int, first: facts.Reply | None
    ) -> Ledger:
        before = self._before
        asked = (
            *before.requests,
            *(facts.UserRequest(one.id, _bounded(one.text, one.id, MAX_REQUEST_CHARS)) for one in requests),
        )
        commands, files = tuple(self._commands.values()), tuple(self._files.values())
        kept = (*asked[:1], *asked[1:][-MAX_REQUESTS:])
        dropped = {
            "requests": len(asked) - len(kept),
            "commands": max(0, len(commands) - MAX_COMMANDS),
            "files": max(0, len(files) - MAX_FILES),
        }
        for kind, number in before.dropped.items():
            dropped[kind] = dropped.get(kind, 0) + number
        return Ledger(
            self._generation,
            self._clock,
            before.messages + messages,
            kept,
            commands[-MAX_COMMANDS:],
            files[-MAX_FILES:],
            self._last_test,
            self._green_at,
            self._tools,
            tuple(sorted(self.ended_jobs)),
            {kind: number for kind, number in dropped.items() if number},
            facts.Reply(first.id, _bounded(first.text, first.id, MAX_REPLY_CHARS)) if first else None,
        )


def _bounded(text: str, message_id: str, most: int) -> str:
    """A text of a size that can be quoted; the stored message has the rest."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[... recall {message_id} ...]\n{text[-half:]}"
