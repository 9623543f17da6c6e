"""Crushpy's own folder is its user's alone."""

import os
from pathlib import Path

import pytest
from support.command import Cli


def test_a_home_open_to_others_is_closed_with_one_notice(cli: Cli, home: Path) -> None:
    home.mkdir(mode=0o700)
    home.chmod(0o755)
    first = cli("config", "list")
    assert first.returncode == 0
    assert f"{home} was accessible to other users" in first.stderr
    assert home.stat().st_mode & 0o777 == 0o700
    assert cli("config", "list").stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("command", [("config", "list"), ("sessions", "list"), ("run", "hi"), ("doctor",)])
def test_a_home_of_another_user_is_refused(cli: Cli, home: Path, command: tuple[str, ...]) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, 12345, 12345)
    done = cli(*command)
    assert done.returncode in (1, 2) if command[0] == "doctor" else done.returncode == 2
    assert f"{home} belongs to user 12345" in done.stdout + done.stderr
    assert "CRUSHPY_HOME" in done.stdout + done.stderr
    assert list(home.iterdir()) == []
