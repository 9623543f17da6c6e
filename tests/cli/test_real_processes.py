"""Every command once in a process of its own, which says the same as in the process of the tests."""

from pathlib import Path

import pytest
from support.command import IN_PROCESS, Cli, run_crushpy

from crushpy.cli.arguments import COMMANDS

CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "run": (("run", "hello", "--model", "demo/tour", "--format", "json"), 0),
    "worker": (("worker", "--no-such-flag"), 2),
    "fleet": (("fleet",), 2),
    "sessions": (("sessions", "list", "--all"), 0),
    "compact": (("compact", "no-such-session"), 2),
    "template": (("template", "show"), 0),
    "config": (("config", "set", "no_such_setting", "1"), 2),
    "acp": (("acp", "--help"), 0),
    "mcp": (("mcp", "list"), 0),
    "skills": (("skills", "list"), 0),
    "plugins": (("plugins", "list"), 0),
    "models": (("models",), 0),
    "stats": (("stats", "--json"), 0),
    "connect": (("connect", "no-such-provider"), 2),
    "permissions": (("permissions", "test", "bash", "git push"), 3),
    "audit": (("audit", "show"), 2),
    "storage": (("storage", "copy"), 2),
    "trust": (("trust", "--list"), 0),
    "untrust": (("untrust",), 2),
    "version": (("version", "--json"), 0),
    "doctor": (("doctor", "--no-such-flag"), 2),
}
"""A call of each command, and its exit code."""


def test_each_command_is_called() -> None:
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.parametrize("command", CALLS)
def test_each_command_exits_with_its_code_as_in_the_process_of_the_tests(
    command: str, cli: Cli, workspace: Path
) -> None:
    args, code = CALLS[command]
    done = run_crushpy(*args, cwd=workspace)
    assert (done.returncode, done.stderr if done.returncode != code else "") == (code, "")
    if command in IN_PROCESS:
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
