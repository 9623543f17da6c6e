"""Every command where its output is closed, full, cut off, or knows few letters."""

from pathlib import Path

import pytest
from support.headless import InShell

pytestmark = pytest.mark.slow

COMMANDS = ["models", "doctor", "config list --all", "template show", "sessions list", "--help"]


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_LOCAL_PORTS", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_copes_with_any_output(in_shell: InShell, command: str, workspace: Path) -> None:
    assert in_shell(f"$CRUSHPY {command} >&- 2>&- <&-").code == 0
    few = in_shell(f"PYTHONIOENCODING=ascii $CRUSHPY {command}")
    assert few.code == 0
    assert in_shell(f"$CRUSHPY {command} | true").stderr.replace(few.stderr, "") == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["models", "doctor", "template show"])
def test_an_output_that_takes_no_more_is_one_line_on_stderr(in_shell: InShell, command: str) -> None:
    done = in_shell(f"$CRUSHPY {command} > /dev/full")
    assert done.code == 1
    assert done.stderr == "crushpy: [Errno 28] No space left on device\n"
