"""A command's write into a hidden place is refused in every mode; only the settings open such a place."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crushpy.core.access import Access, Mode, Privileges
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.rules import RuleSet, in_mode
from crushpy.tools.registry import tool_table

pytestmark = pytest.mark.outside_tmp


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose user has keys; outside /tmp, which each conversation has its own of."""
    home = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    (home / ".ssh").mkdir()
    (home / ".config" / "gh").mkdir(parents=True)
    (home / ".netrc").write_text("password")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CRUSHPY_HOME", raising=False)
    workspace = home / "project"
    workspace.mkdir()
    yield workspace
    shutil.rmtree(home)


def judge(
    command: str,
    project: Path,
    *,
    allow: tuple[str, ...] = (),
    opened: tuple[str, ...] = (),
    needs: Privileges | None = None,
    mode: Mode = "ask",
    auto_allow: bool = True,
) -> Decision:
    guard = ExecutionContext(sandbox="bubblewrap", auto_allow=auto_allow, opened=opened)
    access = Access("bash", "command", command, writes=True, needs=needs or Privileges())
    rules = in_mode(mode, RuleSet.from_strings(allow, tools=tool_table()))
    return decide((access,), rules, project, yolo=True, guard=guard)


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ~/.ssh/new; python3 x.py",
        "cp a ~/.ssh/",
        "cp a.netrc ~/.netrc",
        "cp .netrc ~",
        "mkdir -p ~/.config/gh/deeper/still",
        "touch ~/.ssh",
        "cd ~/.ssh && tee new < a",
        "sh -c 'echo x >> ~/.ssh/config'",
        "echo x > /run/x",
        "echo x > ../other/.env",
        "rm ~/.config/crushpy/config.toml",
    ],
)
@pytest.mark.parametrize("mode", ["ask", "edits"])
def test_yolo_opens_no_hidden_place(command: str, mode: Mode, project: Path) -> None:
    decision = judge(command, project, mode=mode)
    assert decision.verdict == "deny"
    assert "sandbox.read" in decision.reason and "sandbox.write" in decision.reason
    assert judge(command, project, auto_allow=False).verdict == "deny"


def test_requested_privileges_open_no_hidden_place(project: Path) -> None:
    ssh = str(Path.home() / ".ssh")
    assert judge("make", project, needs=Privileges(write=(ssh,))).verdict == "deny"
    assert judge("make", project, needs=Privileges(write=(f"{ssh}/deep/er",))).verdict == "deny"


@pytest.mark.parametrize("rule", ["bash(cp)", "write(~/.ssh/**)", "write"])
def test_rules_open_no_hidden_place(rule: str, project: Path) -> None:
    assert judge("cp a ~/.ssh/new", project, allow=(rule,)).verdict == "deny"


def test_place_named_by_the_settings_is_open(project: Path) -> None:
    ssh = str(Path.home() / ".ssh")
    assert judge("cp a ~/.ssh/new", project, opened=(ssh,)).verdict == "allow"
    assert judge("cp a ~/.config/gh/x", project, opened=(ssh,)).verdict == "deny"
    above = str(Path.home() / ".config")
    assert judge("cp a ~/.config/gh/x", project, opened=(above,)).verdict == "deny", "it is not named"


def test_writes_beside_hidden_places_are_not_affected(project: Path) -> None:
    assert judge("cp a ~/.config/other && echo x > ~/notes && echo x > .env", project).verdict == "allow"


def test_approved_call_of_the_write_tool_is_not_affected(project: Path) -> None:
    access = Access("write", "path", str(Path.home() / ".ssh" / "config"), writes=True)
    guard = ExecutionContext(sandbox="bubblewrap")
    assert decide((access,), RuleSet(), project, guard=guard).verdict == "ask"
    allowed = RuleSet.from_strings(("write(~/.ssh/config)",), tools=tool_table())
    assert decide((access,), allowed, project, guard=guard).verdict == "allow"
    assert decide((access,), RuleSet(), project, yolo=True, guard=guard).verdict == "allow"
