"""How long deciding about a command takes: `python -m benchmarks.permissions [--rounds 20]`.

The commands are common ones of coding sessions, read for the first time (nothing is remembered between them).
"""

import argparse
import statistics
import time
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.shell.line_reader import parse_shell
from crushpy.tools.registry import tool_table

COMMANDS = (
    *(
        "git status",
        "git diff HEAD~1 -- src",
        "git log --oneline -20",
        "ls -la src",
        "rg -n 'def main' --type py",
    ),
    *(
        "sed -n '1,80p' src/app.py",
        "cat package.json | jq .scripts",
        "find . -name '*.py' -not -path './.venv/*'",
    ),
    *(
        "pytest -x -q tests/test_app.py::test_one",
        "npm test -- --watch=false",
        "cargo build --release 2>&1 | tail -20",
    ),
    *(
        "cd src && ls && wc -l *.py",
        'for f in src/*.py; do head -5 "$f"; done',
        "make test > out/log 2>&1; echo $?",
    ),
    *(
        "python - <<'E'\nprint(1)\nE",
        "go test ./... | grep -v '^ok'",
        "git add -A && git commit -m 'a message'",
    ),
    *("docker compose ps", "curl -s localhost:8000/health", "env NO_COLOR=1 npx tsc --noEmit"),
)
RULES = {
    "allow": ("bash(git)", "bash(ls)", "bash(rg)", "bash(pytest)", "bash(npm test)", "write(out/**)"),
    "deny": ("bash(rm -rf)", "bash(git push)", "bash(sudo)"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    tool_table()
    rules = RuleSet.from_strings(**RULES)
    workspace = Path.cwd()
    took: dict[str, list[float]] = {command: [] for command in COMMANDS}
    decide([Access("bash", "command", "true", writes=True)], rules, workspace)  # loads the parser
    for _ in range(rounds):
        for command in COMMANDS:
            parse_shell.cache_clear()
            start = time.perf_counter()
            decide([Access("bash", "command", command, writes=True)], rules, workspace)
            took[command].append((time.perf_counter() - start) * 1000)
    medians = {command: statistics.median(times) for command, times in took.items()}
    slowest = max(medians, key=lambda command: medians[command])
    print(f"commands           {len(COMMANDS)}")
    print(f"median             {statistics.median(medians.values()):.2f} ms")
    print(f"slowest            {medians[slowest]:.2f} ms  {slowest!r}")


if __name__ == "__main__":
    main()
