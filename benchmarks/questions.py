"""How many of the commonest commands of coding sessions ask: `python -m benchmarks.questions [--list]`.

In a repository of its own, without any rule: with a sandbox, and without one, the project trusted or not.
"""

import argparse
import tempfile
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.rules import RuleSet
from crushpy.tools.registry import tool_table

COMMANDS = (
    *(
        "git status",
        "git diff",
        "git log --oneline -10",
        "git show HEAD --stat",
        "git branch -a",
        "git diff --cached",
    ),
    *(
        "git status --short && git diff --stat",
        "git log -p -3 -- src/app.py",
        "git blame -L 10,20 src/app.py",
    ),
    *(
        "git add -A && git commit -m 'Fix the parser'",
        "git checkout -b fix-parser",
        "git push -u origin fix-parser",
    ),
    *(
        "ls",
        "ls -la",
        "pwd",
        "cat package.json",
        "cat src/app.py | head -50",
        "head -40 README.md",
    ),
    *("tail -n 30 build.log", "wc -l src/*.py", "sed -n '100,160p' src/app.py", "tree -L 2", "which python3"),
    *("rg -n 'def parse' src", "rg --files | head -100", "grep -rn TODO src", "grep -n parse src/app.py"),
    *(
        "find . -name '*.py' -not -path './.venv/*'",
        "find . -type f | head -50",
        "du -sh .",
        "python3 --version",
    ),
    *(
        "pytest",
        "pytest -x -q",
        "python -m pytest tests/test_app.py -k parse",
        "uv run pytest -q",
        "npm test",
    ),
    *("npm run build", "npm run lint", "npx tsc --noEmit", "npm run test -- --watch=false 2>&1 | tail -40"),
    *("node -e 'console.log(1)'", "python -c 'import app; print(app.VERSION)'", "python3 src/app.py --help"),
    *(
        "cargo build",
        "cargo test",
        "cargo check 2>&1 | head -60",
        "go build ./...",
        "go test ./...",
        "make",
        "make test",
    ),
    *(
        "ruff check .",
        "ruff format --check src",
        "mypy src",
        "pip install -r requirements.txt",
        "npm install",
    ),
    *(
        "mkdir -p src/parser",
        "cd src && python -m compileall -q .",
        "rm -rf build dist",
        "chmod +x scripts/run.sh",
    ),
    *("curl -s http://localhost:8000/health",),
)
"""The sixty of them."""
_FILES = (
    "src/app.py",
    "tests/test_app.py",
    "package.json",
    "README.md",
    "build.log",
    "scripts/run.sh",
    "node_modules/.bin/tsc",
)


def project(folder: Path) -> Path:
    """A repository as the commands expect it."""
    for name in _FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text(
        '[remote "origin"]\n\turl = https://github.com/someone/something.git\n'
    )
    return folder


def judge(command: str, workspace: Path, guard: ExecutionContext) -> Decision:
    tool_table()
    return decide([Access("bash", "command", command, writes=True)], RuleSet(), workspace, guard=guard)


def asked(workspace: Path, guard: ExecutionContext) -> dict[str, str]:
    """The commands that ask, and why."""
    decided = {command: judge(command, workspace, guard) for command in COMMANDS}
    return {command: each.reason for command, each in decided.items() if each.verdict != "allow"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="Name the commands that ask, and why.")
    shown = parser.parse_args().list
    guards = {
        "with a sandbox": ExecutionContext(sandbox="bubblewrap"),
        "without one, project trusted": ExecutionContext(trusted=True),
        "without one, not trusted": ExecutionContext(),
    }
    with tempfile.TemporaryDirectory() as folder:
        workspace = project(Path(folder))
        for name, guard in guards.items():
            asks = asked(workspace, guard)
            print(f"{name:30} {len(asks):2} of {len(COMMANDS)} ask ({len(asks) / len(COMMANDS):.0%})")
            for command, why in asks.items() if shown else ():
                print(f"    {command}\n        {why}")


if __name__ == "__main__":
    main()
