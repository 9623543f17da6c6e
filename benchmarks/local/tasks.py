"""The five tasks: what the project holds, what is asked, and how the result is checked."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 80
"""The percentage of the window from which the last task wants a new session."""
_FILLER = "".join(
    f"{hour:02}:{minute:02} worker {minute % 7} stored batch {hour * 60 + minute} of the nightly import\n"
    for hour in range(6)
    for minute in range(0, 60, 4)
)


@dataclass(frozen=True)
class Outcome:
    """What one run left: its project, its last answer, and the events of all its prompts."""

    project: Path
    answer: str
    events: list[dict[str, Any]]

    def text(self, name: str) -> str:
        file = self.project / name
        return file.read_text() if file.is_file() else ""


@dataclass(frozen=True)
class Task:
    name: str
    files: Mapping[str, str]
    prompts: tuple[str, ...]
    check: Callable[[Outcome], bool]
    windows: Mapping[str, int] = field(default_factory=dict[str, int])
    """For each variant; the model decides when to compact. None: the server's window, and `auto`."""


def _fixed(outcome: Outcome) -> bool:
    """The test is unchanged and passes now."""
    if outcome.text("test_prices.py") != _PRICES["test_prices.py"]:
        return False
    command = [sys.executable, "test_prices.py"]
    done = subprocess.run(command, cwd=outcome.project, check=False, capture_output=True, timeout=20)
    return done.returncode == 0


def _continued(outcome: Outcome) -> bool:
    """The model opened a new session, and both files are right."""
    opened = any(e["type"] == "boundary" and e["trigger"] == "agent" for e in outcome.events)
    return opened and "4711" in outcome.text("batch.txt") and "heron" in outcome.text("host.txt")


_SETTINGS = '[server]\nhost = "0.0.0.0"\nport = 48213\nworkers = 3\n\n[cache]\nport = 6379\n'
_READER = """\
import re

LINE = re.compile(r"^(\\d+):")


def read_lines(text):
    return [line for line in text.splitlines() if line]


def parse_offset(line):
    found = LINE.match(line)
    return int(found[1]) if found else 0
"""
_WRITER = """\
from reader import parse_offset


def write_lines(lines):
    return "\\n".join(sorted(lines, key=parse_offset))
"""
_PRICES = {
    "prices.py": "def total(prices, discount):\n    return sum(prices) - discount / 100\n",
    "test_prices.py": """\
from prices import total


def test_total():
    assert total([10, 20], 0) == 30
    assert total([50, 50], 10) == 90


test_total()
print("ok")
""",
}
_RULE = "From now on, the first line of every Python file that you write must be `# Copyright Heron Ltd`."

TASKS = (
    Task(
        "read and answer",
        {"settings.toml": _SETTINGS},
        ("Which port does the server listen on, according to settings.toml? Answer with the number.",),
        lambda outcome: "48213" in outcome.answer and "6379" not in outcome.answer,
    ),
    Task(
        "find a definition",
        {"reader.py": _READER, "writer.py": _WRITER},
        ("In which file and on which line is the function parse_offset defined?",),
        lambda outcome: "reader.py" in outcome.answer and bool(re.search(r"\b10\b", outcome.answer)),
    ),
    Task(
        "fix a failing test",
        _PRICES,
        (
            "`python3 test_prices.py` fails: the discount is a percentage of the sum. Fix prices.py, and run "
            "the test again.",
        ),
        _fixed,
    ),
    Task(
        "follow an earlier rule",
        {"notes.md": "The pump is called heron.\n"},
        (
            f"{_RULE} Answer only: understood.",
            "What is 17 + 25? Answer with the number.",
            "Name a colour of the rainbow, in one word.",
            "What does HTTP mean? Answer in one line.",
            "What is the capital of Norway? Answer in one word.",
            "Create the file area.py with a function area(width, height) that returns the product.",
        ),
        lambda outcome: (
            outcome.text("area.py").startswith("# Copyright Heron Ltd\n")
            and "def area(" in outcome.text("area.py")
        ),
    ),
    Task(
        "new session at 80%",
        {},
        (
            f"This is the log of last night:\n\n{_FILLER}06:00 host heron failed in batch 4711\n\n"
            "There are two steps. First write the number of the batch that failed to batch.txt. Then, if the "
            f"context status says {LIMIT}% or more, call new_session. Second, write the name of the host "
            "that failed to host.txt.",
        ),
        _continued,
        windows={"with": 3_080, "without": 5_200},  # the second request fills a little more than `LIMIT`
    ),
)
