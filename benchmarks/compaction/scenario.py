"""A recorded coding conversation: what the user asks, what the agent calls, and the facts planted in it.

The same sizes and the same seed give the same conversation, word for word. Nothing here knows crushpy but the
names of its tools.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AREAS = ("billing", "auth", "search", "catalog", "shipping", "reports", "admin", "payments", "stock", "mail")
NOUNS = ("invoice", "refund", "session", "token", "index", "basket", "label", "ledger", "coupon", "export",
         "import", "quota", "profile", "address", "webhook", "digest")  # fmt: skip
PARTS = ("parser", "store", "view", "job", "rules", "client", "cache", "form")
CASES = ("rounding", "empty_input", "timezone", "unicode", "retry", "overlap", "ordering", "limits")
ASKS = (
    "Add a dry run to the {noun} {part} in {area}; nothing may be written then. The ticket is {mark}.",
    "The {noun} {part} drops the last row when {area} is busy. Find out why and fix it, see {mark}.",
    "Rename {noun}_{part} in {area} everywhere, but keep the old name as an alias until {mark}.",
    "Please make {area} log every {noun} with its id, and never the customer's name. Mark it {mark}.",
    "Speed up the {noun} {part}: it must stay below 40 ms with 10,000 rows ({mark}, measured on {area}).",
    "Write tests for the {noun} {part} of {area} first:\n- empty input\n- two time zones\nThen mend {mark}.",
    "No new dependency for {mark}! Use what {area} has; the {noun} {part} has a helper for that.",
)
TASKS = (
    "Cover the {noun} {part} with tests",
    "Move {area} {noun} rules into one place",
    "Document the {noun} {part} of {area}",
    "Remove the old {area} {noun} alias",
)


@dataclass(frozen=True)
class Sizes:
    """How much of everything, over all generations."""

    generations: int = 8
    paths: int = 120
    failing: int = 60
    todos: int = 20
    requests: int = 30
    noise: int = 29_000
    """Characters of one large file that is looked at."""
    looks: int = 5
    """Large files looked at in a turn."""
    batch: int = 3
    """Calls in one step."""


@dataclass(frozen=True)
class Fact:
    """Something that must not get lost. `kind` is path, command, todo or request, or else where it stands."""

    kind: str
    text: str


@dataclass(frozen=True)
class Step:
    """One reply of the agent: some calls, or a word at the end of a turn."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    text: str = ""
    facts: tuple[Fact, ...] = ()
    """What is planted once this step is done."""


@dataclass(frozen=True)
class Turn:
    prompt: str
    steps: tuple[Step, ...]
    facts: tuple[Fact, ...]
    """Planted in the prompt itself."""
    generation: int


@dataclass
class Scenario:
    sizes: Sizes
    turns: list[Turn] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """What lies in the workspace at the beginning."""
    answers: dict[str, str] = field(default_factory=dict)
    """What each command prints that fails."""

    def lay_out(self, workspace: Path) -> Path:
        """Writes the workspace; gives the folder with the programs that its commands run."""
        for path, text in self.files.items():
            file = workspace / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        programs = workspace / ".programs"
        (programs / "answers").mkdir(parents=True)
        for command, text in self.answers.items():
            (programs / "answers" / _key(command)).write_text(text)
        for name in ("pytest", "npm", "mypy", "make", "cargo"):
            program = programs / name
            program.write_text(_PROGRAM.format(answers=programs / "answers"))
            program.chmod(0o755)
        return programs


_PROGRAM = """#!/bin/sh
answer={answers}/$(printf '%s' "${{0##*/}} $*" | sha1sum | cut -c1-16)
[ -f "$answer" ] || {{ echo "ok"; exit 0; }}
cat "$answer"
exit 1
"""


def _key(command: str) -> str:
    return hashlib.sha1(command.encode()).hexdigest()[:16]


def make(sizes: Sizes, seed: int = 1) -> Scenario:
    """The conversation for these sizes."""
    return _Maker(sizes, seed).make()


class _Maker:
    def __init__(self, sizes: Sizes, seed: int) -> None:
        self._sizes = sizes
        self._chance = random.Random(seed)
        self._scenario = Scenario(sizes)
        self._names = self._combinations()
        self._planted = 0
        self._todos: list[dict[str, str]] = []

    def make(self) -> Scenario:
        sizes, turns = self._sizes, self._sizes.requests
        paths = _shares(sizes.paths, turns)
        failing = _shares(sizes.failing, turns)
        todos = _shares(sizes.todos, turns)
        for number in range(turns):
            generation = number * sizes.generations // turns
            mark = f"SHOP-{1_000 + number}"
            area, noun, part = next(self._names)
            prompt = self._chance.choice(ASKS).format(area=area, noun=noun, part=part, mark=mark)
            if number == 0:
                prompt = (
                    "We clean up the shop's backend. Keep the public API stable and the port at 8417. "
                    + prompt
                )
            steps = [*self._planning(todos[number])]
            steps += self._looking(sizes.looks)
            steps += self._changing(paths[number])
            steps += self._failing(failing[number])
            steps.append(Step((("bash", {"command": f"pytest -q {area} --green-{number % 3}"}),)))
            steps.append(Step(text=f"Done with {mark}."))
            facts = (Fact("request", prompt), Fact("user words", mark))
            self._scenario.turns.append(Turn(prompt, tuple(steps), facts, generation))
        return self._scenario

    def _combinations(self) -> Iterator[tuple[str, str, str]]:
        every = [(area, noun, part) for area in AREAS for noun in NOUNS for part in PARTS]
        self._chance.shuffle(every)
        yield from every

    def _code(self) -> str:
        """A word that stands nowhere else."""
        self._planted += 1
        return f"{self._chance.choice(NOUNS)}-{hashlib.sha1(str(self._planted).encode()).hexdigest()[:6]}"

    def _planning(self, count: int) -> Iterator[Step]:
        if not count:
            return
        new: list[str] = []
        for _ in range(count):
            area, noun, part = next(self._names)
            new.append(self._chance.choice(TASKS).format(area=area, noun=noun, part=part))
        self._todos += [{"text": text, "status": "pending"} for text in new]
        done = [{"text": f"Read the code for step {len(self._todos)}", "status": "completed"}]
        yield Step(
            (("todos", {"todos": [*self._todos, *done]}),), facts=tuple(Fact("todo", text) for text in new)
        )

    def _looking(self, count: int) -> Iterator[Step]:
        for _ in range(count):
            area, noun, part = next(self._names)
            path, code = f"legacy/{area}/{noun}_{part}.log", self._code()
            self._scenario.files[path] = self._noise(code)
            yield Step((("view", {"file_path": path}),), facts=(Fact("tool result", code),))

    def _noise(self, code: str) -> str:
        words = [*AREAS, *NOUNS, *PARTS, *CASES, "return", "value", "if", "not", "self", "raise", "for"]
        lines: list[str] = []
        size = 0
        while size < self._sizes.noise:
            line = " ".join(self._chance.choice(words) for _ in range(self._chance.randint(4, 12)))
            lines.append(f"{'    ' * self._chance.randint(0, 3)}{line} = {self._chance.randint(0, 9_999)}")
            size += len(lines[-1]) + 8  # the number before each line
        lines.insert(self._chance.randrange(len(lines)), f"build id {code}")
        return "\n".join(lines) + "\n"

    def _changing(self, count: int) -> Iterator[Step]:
        """New files are written, old ones looked at and edited."""
        batches = [
            [next(self._names) for _ in range(min(self._sizes.batch, count - at))]
            for at in range(0, count, self._sizes.batch)
        ]
        for number, batch in enumerate(batches):
            paths = [f"src/{area}/{noun}_{part}.py" for area, noun, part in batch]
            facts = tuple(Fact("path", path) for path in paths)
            code = self._code()
            planted = (*facts, Fact("argument", code))
            if number % 2:
                calls = [("write", {"file_path": path, "content": f"BUILD = '{code}'\n"}) for path in paths]
                yield Step(tuple(calls), facts=planted)
                continue
            for path in paths:
                self._scenario.files[path] = "BUILD = 'none'\n"
            yield Step(tuple(("view", {"file_path": path}) for path in paths))
            change = {"old_string": "'none'", "new_string": f"'{code}'"}
            yield Step(tuple(("edit", {"file_path": path, **change}) for path in paths), facts=planted)

    def _failing(self, count: int) -> Iterator[Step]:
        commands: list[Fact] = []
        codes: list[Fact] = []
        for number in range(count):
            area, noun, part = next(self._names)
            case = self._chance.choice(CASES)
            command = (
                f"pytest tests/{area}/test_{noun}_{part}.py -k {case}",
                f"mypy src/{area}/{noun}_{part}.py --strict",
                f"npm run build --workspace {area}-{noun}-{part}",
                f"make check-{area}-{noun}-{part}",
                f"cargo test -p {area}-{noun}-{part} {case}",
            )[number % 5]
            code = self._code()
            self._scenario.answers[command] = f"collecting {case}\nerror: {code} is not what was expected\n"
            commands.append(Fact("command", command))
            codes.append(Fact("failure", code))
        for at in range(0, count, self._sizes.batch):
            some = slice(at, at + self._sizes.batch)
            calls = tuple(("bash", {"command": fact.text}) for fact in commands[some])
            yield Step(calls, facts=(*commands[some], *codes[some]))


def _shares(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole numbers that differ by one at most."""
    return [(number + 1) * total // parts - number * total // parts for number in range(parts)]
