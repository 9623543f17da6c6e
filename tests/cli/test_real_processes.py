"""Every command and exit code in a process of its own, which says the same as in the process of the tests."""

import shlex
from pathlib import Path

import pytest
from support.command import IN_PROCESS, Cli, run_crushpy

from crushpy.cli.arguments import COMMANDS

CALLS: dict[str, int] = {
    "run hello --model demo/tour --format json": 0,
    "run": 2,
    "run 'run git push' --model demo/tour": 3,
    "run 'search for hello' --model demo/tour --max-steps 1": 4,
    "worker": 2,  # without a PostgreSQL server
    "fleet": 2,
    "sessions list --all": 0,
    "sessions search no-such-words": 1,
    "compact no-such-session": 2,
    "template show": 0,
    "config set no_such_setting 1": 2,
    "acp": 0,  # whose stdin is closed
    "mcp list": 0,
    "skills list": 0,
    "plugins list": 0,
    "models": 0,
    "stats --json": 0,
    "connect openai --remove": 1,
    "connect no-such-provider": 2,
    "permissions test bash ls": 0,
    "permissions test bash 'touch made' --mode plan": 1,
    "permissions test bash 'git push'": 3,
    "audit show": 2,
    "storage copy": 2,
    "trust --list": 0,
    "untrust": 2,
    "version --json": 0,
    "doctor": 0,
    "doctor --no-such-flag": 2,
}
"""Calls of each command, and their exit codes."""


def test_each_command_is_called() -> None:
    called = {line.partition(" ")[0] for line in CALLS}
    assert called == set(COMMANDS), "add a call of the new command, and its exit code, to CALLS above"


@pytest.mark.parametrize("line", CALLS)
def test_each_command_exits_with_its_code_as_in_the_process_of_the_tests(
    line: str, cli: Cli, workspace: Path
) -> None:
    args, code = shlex.split(line), CALLS[line]
    done = run_crushpy(*args, cwd=workspace)
    assert (done.returncode, done.stderr if done.returncode != code else "") == (code, "")
    if args[0] in IN_PROCESS:
        here = cli(*args)
        assert (here.returncode, here.stdout, here.stderr) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("command", sorted(IN_PROCESS))
def test_the_help_of_a_command_is_the_same_in_the_process_of_the_tests(
    command: str, cli: Cli, workspace: Path
) -> None:
    done = run_crushpy(command, "--help", cwd=workspace)
    here = cli(command, "--help")
    assert done.returncode == 0 and f"crushpy {command}" in done.stdout
    assert (here.stdout, here.stderr, here.returncode) == (done.stdout, done.stderr, 0)
