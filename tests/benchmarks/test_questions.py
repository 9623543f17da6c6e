"""The commonest commands of coding sessions (`python -m benchmarks.questions`): how many of them ask."""

from pathlib import Path

from benchmarks.questions import COMMANDS, asked, project
from crushpy.permissions.decision import ExecutionContext


def test_common_commands_rarely_ask_when_sandboxed(tmp_path: Path) -> None:
    asks = asked(project(tmp_path), ExecutionContext(sandbox="bubblewrap"))
    assert len(COMMANDS) == len(set(COMMANDS)) == 60
    assert len(asks) <= 6
    assert {command.split()[0] for command in asks} <= {"git", "pip", "npm"}


def test_reading_commands_run_without_a_sandbox(tmp_path: Path) -> None:
    workspace = project(tmp_path)
    trusted, not_trusted = (
        asked(workspace, ExecutionContext(trusted=True)),
        asked(workspace, ExecutionContext()),
    )
    assert len(trusted) <= 33 and len(not_trusted) <= 42
    assert not {"ls -la", "rg -n 'def parse' src", "sed -n '100,160p' src/app.py"} & set(not_trusted)
    assert "git status" in not_trusted and "git status" not in trusted
