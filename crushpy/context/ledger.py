"""What happened in a whole lineage: the merged facts of its messages, never taken from prose.

A session inherits the ledger of those before it, so that a boundary reads no ancestor's messages. It is
bounded: the oldest facts of a kind are dropped and counted.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from crushpy.context import facts
from crushpy.context.facts import CommandFacts, MessageFacts
from crushpy.context.standing_rules import MAX_RULES, RuleBook, RuleFact, RulePhrases
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.core.messages import Data, TouchedFile
from crushpy.util.lazy_pattern import lazy_pattern

MAX_REQUESTS = 400
MAX_COMMANDS = 600
MAX_COMMAND_CHARS = 50_000
"""Of all commands together."""
MAX_FILES = 2_000
MAX_DECISIONS = 400
MAX_NUMBERS = 1_000
MAX_LOADED = 200
MAX_NAMES = 1_000
MAX_SOURCE_CHARS = 80
USE_WEIGHT = 8
"""A name that the agent wrote counts as much as one that results showed this often."""
MAX_NUMBERED_CHARS = 2_000
"""Characters of a request that are searched for numbers."""
_NUMBER = lazy_pattern(r"(?<![\w.])\d[\d.,:/-]*\d(?!\w)")


class RunFact(Data, frozen=True):
    """One shell command, however often it ran. Numbers are places on the ledger's clock."""

    text: str
    number: int
    """Of the last run."""
    runs: int = 1
    failures: int = 0
    failed: bool = False
    """According to the last run that ended; a start in the background does not count."""
    exit_code: int | None = None
    note: str = ""
    """Exit code and note are those of the last failure."""
    failed_at: int = 0
    paths: tuple[str, ...] = ()
    """The files that the last failure named, in full."""


class FileFact(Data, frozen=True):
    path: str
    """In full."""
    action: str = "read"
    changed_at: int = 0
    """0 if it was only read."""


class SeenName(Data, frozen=True, array_like=True):
    """A name in results and in what the agent wrote."""

    name: str
    seen: int = 0
    """How often results showed it."""
    used: int = 0
    """In how many messages the agent wrote it."""
    number: int = 0
    """When it last occurred."""

    @property
    def weight(self) -> tuple[float, int]:
        """How likely it is needed again, for the room it takes; the latest among equals."""
        return (self.seen + USE_WEIGHT * self.used) / math.sqrt(len(self.name)), self.number


class Ledger(Data, frozen=True):
    clock: int = 0
    requests: tuple[facts.Quote, ...] = ()
    commands: tuple[RunFact, ...] = ()
    """In order of the last run."""
    files: tuple[FileFact, ...] = ()
    """In order of the last access."""
    last_test: CommandFacts | None = None
    """The last command that ran tests to their end."""
    green_at: int = 0
    """When tests last passed."""
    tools: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    ended_jobs: tuple[tuple[str, str], ...] = ()
    dropped: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many facts of each kind are no longer held."""
    first_reply: facts.Quote | None = None
    """The last text of the first turn."""
    rules: tuple[RuleFact, ...] | None = None
    """The user's standing rules, those that ended included. None if they were not searched for."""
    decisions: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    """In the user's requests."""
    loaded: tuple[str, ...] = ()
    """Skills and rules files, the latest last."""
    edits: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The messages that the user edited, and how: the ledger has only facts of what is left of them."""
    unconfirmed: tuple[str, ...] = ()
    """Sentences of imported prompts that would be rules if the user had said them here."""
    seen_names: dict[str, tuple[SeenName, ...]] | None = None
    """Those most likely needed, by the file or command that last showed them; None if not counted."""

    def merged(self, found: Sequence[MessageFacts], *, phrases: RulePhrases | None = None) -> "Ledger":
        """The ledger with the facts of the messages that follow. `phrases` find the rules in facts that were
        stored without them."""
        writer = _Writer(self, phrases)
        for fact in found:
            writer.add(fact)
        return writer.ledger()

    def with_ended(self, rules: Sequence[RuleFact]) -> "Ledger":
        """The ledger with these rules ended as they say."""
        ended = {(rule.message_id, rule.text): rule.ended for rule in rules}
        kept = [
            msgspec.structs.replace(rule, ended=rule.ended or ended.get((rule.message_id, rule.text), ""))
            for rule in self.rules or ()
        ]
        return msgspec.structs.replace(self, rules=tuple(kept)) if ended else self

    def still_failing(self) -> list[RunFact]:
        """The commands that count as open, the latest first."""

        def repaired(run: RunFact) -> bool:
            """A file that it named was changed since, and the tests passed after that."""
            named = (file for file in self.files if file.path in run.paths)
            return any(run.failed_at < file.changed_at < self.green_at for file in named)

        return [run for run in reversed(self.commands) if run.failed and not repaired(run)]

    def rules_of(self, message_ids: Collection[str]) -> list[str]:
        """The rules that apply and were said in these messages."""
        return [rule.text for rule in self.rules or () if rule.message_id in message_ids and not rule.ended]

    @property
    def dropped_messages(self) -> int:
        """How many the user dropped. A prompt that was withdrawn is none of them."""
        return sum(kind in ("drop", "remove") for kind in self.edits.values())

    @property
    def loaded_tools(self) -> list[str]:
        """The tools of MCP servers that were used."""
        return [name for name in self.tools if name.startswith(MCP_PREFIX)]


class _Writer:
    """The ledger while it is being extended: the latest of each kind goes to the end."""

    def __init__(self, before: Ledger, phrases: RulePhrases | None) -> None:
        self._before = before
        self._clock = before.clock
        self._requests = list(before.requests)
        self._first_reply = before.first_reply
        self._commands = {run.text: run for run in before.commands}
        self._files = {file.path: file for file in before.files}
        self._tools = dict(before.tools)
        self._last_test = before.last_test
        self._green_at = before.green_at
        self._ended_jobs = set(before.ended_jobs)
        self._phrases = phrases
        self._rules = RuleBook(before.rules or ())
        self._decisions = dict.fromkeys(before.decisions)
        self._numbers = dict.fromkeys(before.numbers)
        self._loaded = dict.fromkeys(before.loaded)
        by_source = (before.seen_names or {}).items()
        self._names = {name.name: (source, name) for source, names in by_source for name in names}
        self._more_rules = 0
        if before.rules is None:
            for request in before.requests:
                self._say(MessageFacts(request))

    def add(self, found: MessageFacts) -> None:
        for fact in found.branch:
            self.add(fact)
        if found.request is not None:
            self._requests.append(found.request)
        self._say(found)
        if found.reply is not None and len(self._requests) == 1:
            self._first_reply = found.reply
        if found.tool:
            self._clock += 1
            self._tools[found.tool] = self._tools.get(found.tool, 0) + 1
        if found.command is not None:
            self._run(found.command)
        for file in found.files:
            self._touch(file)
        if found.names:
            self._see(found, found.names)
        for key in found.loaded:
            self._loaded.pop(key, None)
            self._loaded[key] = None

    def _say(self, found: MessageFacts) -> None:
        """The rules, decisions and numbers in what the user said."""
        request, statements = found.request, found.statements
        if statements is None:
            statements = self._phrases.find(request.text) if self._phrases and request else ()
        for statement in statements:
            self._rules.add(statement, found.message_id or (request.id if request else ""), found.at)
            if statement.decision:
                self._decisions[statement.text] = None
        self._more_rules += found.statements_dropped
        if request is not None:
            self._numbers |= dict.fromkeys(_NUMBER.findall(request.text[:MAX_NUMBERED_CHARS]))

    def _see(self, found: MessageFacts, names: dict[str, int]) -> None:
        """The names in a result, or in what the agent wrote."""
        source = found.files[0].path if found.files else found.command.text if found.command else ""
        for name, times in names.items():
            last, known = self._names.get(name) or ("", SeenName(name))
            seen, used = (times, 0) if found.tool else (0, 1)
            counted = SeenName(name, known.seen + seen, known.used + used, self._clock)
            self._names[name] = source[:MAX_SOURCE_CHARS] or last, counted

    def _run(self, command: CommandFacts) -> None:
        if command.job is not None:
            if command.job in self._ended_jobs:
                return
            self._ended_jobs.add(command.job)
        known = self._commands.pop(command.text, None)
        self._commands[command.text] = self._ran(command, known)
        if command.is_test:
            self._last_test = command
            if not command.failed:
                self._green_at = self._clock

    def _ran(self, command: CommandFacts, known: RunFact | None) -> RunFact:
        run = known or RunFact(command.text, self._clock, 0)
        run = msgspec.structs.replace(run, number=self._clock, runs=run.runs + 1)
        if command.failed:
            told = {"exit_code": command.exit_code, "note": command.note, "paths": command.paths}
            return msgspec.structs.replace(
                run, failures=run.failures + 1, failed=True, failed_at=self._clock, **told
            )
        failed = run.failed and command.background
        return msgspec.structs.replace(run, failed=failed, paths=run.paths if failed else ())

    def _touch(self, file: TouchedFile) -> None:
        known = self._files.pop(file.path, None)
        if file.action != "read":
            known = FileFact(file.path, file.action, self._clock)
        self._files[file.path] = known or FileFact(file.path)

    def ledger(self) -> Ledger:
        before, asked = self._before, self._requests
        commands, files = _bounded(self._commands), tuple(self._files.values())
        kept = (*asked[:1], *asked[1:][-MAX_REQUESTS:])
        rules, decisions, numbers = self._rules.rules, tuple(self._decisions), tuple(self._numbers)
        dropped = {
            "rules": self._more_rules + sum(not rule.ended for rule in rules[:-MAX_RULES]),
            "decisions": max(0, len(decisions) - MAX_DECISIONS),
            "numbers": max(0, len(numbers) - MAX_NUMBERS),
            "requests": len(asked) - len(kept),
            "commands": len(self._commands) - len(commands),
            "files": max(0, len(files) - MAX_FILES),
            "loaded": max(0, len(self._loaded) - MAX_LOADED),
        }
        return Ledger(
            self._clock,
            kept,
            commands,
            files[-MAX_FILES:],
            self._last_test,
            self._green_at,
            self._tools,
            tuple(sorted(self._ended_jobs)),
            dict(Counter(dropped) + Counter(before.dropped)),
            self._first_reply,
            rules[-MAX_RULES:] if self._phrases or rules else before.rules,
            decisions[-MAX_DECISIONS:],
            numbers[-MAX_NUMBERS:],
            tuple(self._loaded)[-MAX_LOADED:],
            before.edits,
            before.unconfirmed,
            self._most_likely_names(),
        )

    def _most_likely_names(self) -> dict[str, tuple[SeenName, ...]]:
        found = sorted(self._names.values(), key=lambda pair: pair[1].weight, reverse=True)[:MAX_NAMES]
        by_source: dict[str, list[SeenName]] = {}
        for source, name in found:
            by_source.setdefault(source, []).append(name)
        return {source: tuple(names) for source, names in by_source.items()}


def _bounded(commands: Mapping[str, RunFact]) -> tuple[RunFact, ...]:
    """Those there is room for: the failing ones first, then the latest."""
    latest = sorted(commands.values(), key=lambda run: (run.failed, run.number), reverse=True)
    kept, room = set[str](), MAX_COMMAND_CHARS
    for run in latest[:MAX_COMMANDS]:
        if len(run.text) <= room:
            kept.add(run.text)
            room -= len(run.text)
    return tuple(run for run in commands.values() if run.text in kept)
