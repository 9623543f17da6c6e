"""`crushpy permissions` as a person types it."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crushpy.core.paths import Paths
from crushpy.settings.save import add_rule
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

CONFIG = """\
[permissions] # mine
allow = ["bash(git log)", "write(src/**)"]
ask = ["bash(git push)"]
deny = ["bash(rm)"]
"""


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "config.toml"
    file.write_text(CONFIG)
    return file


async def grant(home: Path, cwd: Path, *grants: str) -> None:
    store = Store(Paths(str(home)).database)
    await store.sessions.create(
        SessionInfo(
            id="abc123def456",
            root_id="abc123def456",
            parent_id=None,
            kind="root",
            generation=0,
            title="Fix \x1b[31mit",
            cwd=str(cwd),
            model="demo/tour",
            compaction="auto",
            system="",
            created_at=1.0,
            updated_at=1.0,
            grants=grants,
        )
    )
    await store.close()


def test_rules_are_listed_by_verdict_with_the_file_they_come_from(cli: Cli, config: Path, home: Path) -> None:
    add_rule(Paths(str(home)), "allow", "bash(npm run test)")
    done = cli("permissions", "list")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.index("deny:") < text.index("bash(rm)") < text.index("ask:") < text.index("allow:")
    assert str(config) in text
    assert str(home / "state.toml") in text
    listed = json.loads(cli("permissions", "list", "--json").stdout)
    assert [(each["kind"], each["rule"]) for each in listed["rules"]].count(
        ("allow", "bash(npm run test)")
    ) == 1
    assert len(listed["rules"]) == 5
    assert listed["grants"] == []


def test_permissions_list_describes_the_defaults_when_there_are_no_rules(cli: Cli, home: Path) -> None:
    assert "everything else asks" in cli("permissions", "list").stdout
    assert not (home / "crushpy.db").exists()


def test_grants_of_a_conversation_are_listed_and_can_be_taken_back(
    cli: Cli, home: Path, workspace: Path
) -> None:
    asyncio.run(grant(home, workspace, "bash(npm test)", "write(a)"))
    text = cli("permissions", "list").stdout
    assert "abc123def456" in text
    assert "bash(npm test)" in text
    assert "\x1b" not in text
    done = cli("permissions", "revoke", "write(a)", "--session", "abc123")
    assert done.returncode == 0, done.stderr
    listed = json.loads(cli("permissions", "list", "--json").stdout)
    assert [each["rules"] for each in listed["grants"]] == [["bash(npm test)"]]
    assert cli("permissions", "revoke", "write(a)", "--session", "abc123").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bash", "git log -5"), 0, "allow: allowed by the rule bash(git log)"),
        (("bash", "git log --output=x"), 3, "--allow 'bash(git log --output=x)'"),
        (("bash", "git push"), 3, "asked because of the rule bash(git push)"),
        (("bash", "sudo rm x"), 1, "deny: denied by the rule bash(rm)"),
        (("bash", "-x"), 3, "ask"),
        (("bash", "npm i", "--allow", "bash(npm i)"), 0, "allow"),
        (("bash", "npm i", "--yolo"), 0, "allow"),
        (("bash", "rm x", "--yolo"), 1, "deny"),
        (("write", "src/a.py"), 0, "write(src/**)"),
        (("write", "a.py"), 3, "--allow 'write(./a.py)'"),
        (("edit", "a.py"), 3, "--allow 'edit(./a.py)'"),
        (("view", "a.py"), 0, "needs no rule"),
        (("view", "/etc/hosts"), 3, "--allow 'view(/etc/hosts)'"),
        (("view", "~/x"), 3, "outside the workspace"),
        (("ls",), 0, "needs no rule"),
        (("fetch", "example.com"), 3, "--allow 'fetch(example.com)'"),
        (("fetch", "https://example.com:8080/x?y"), 3, "--allow 'fetch(example.com)'"),
        (("todos",), 0, "allow"),
    ],
)
def test_a_call_can_be_tried(
    arguments: tuple[str, ...], code: int, says: str, cli: Cli, config: Path
) -> None:
    done = cli("permissions", "test", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout


def test_a_trial_can_be_read_by_a_program(cli: Cli, config: Path) -> None:
    done = cli("permissions", "test", "bash", "npm i", "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["verdict"] == "ask"
    assert found["suggested"] == ["bash(npm i)"]
    assert found["owner"] == ""
    done = cli("permissions", "test", "bash", "npm i", "--allow", "bash(npm i)")
    assert "owner of the rule: user\n" in done.stdout


def test_rule_of_a_project_is_named_as_such(cli: Cli, workspace: Path) -> None:
    (workspace / ".crushpy").mkdir()
    (workspace / ".crushpy" / "config.toml").write_text('[permissions]\ndeny = ["write(a.py)"]\n')
    cli("trust")
    done = cli("permissions", "test", "write", "a.py", "--yolo")
    assert done.returncode == 1 and "owner of the rule: project\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("test", "bahs", "ls"), "There is no tool 'bahs'"),
        (("test", "bash"), 'permissions test bash "git log"'),
        (("test", "bash", "ls", "--allow", "bash"), "any shell command"),
        (("revoke", "bash(nothing)"), "There is no rule bash(nothing)"),
    ],
)
def test_mistakes_are_named_with_the_way_out(arguments: tuple[str, ...], says: str, cli: Cli) -> None:
    done = cli("permissions", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_revoked_rule_is_gone_and_the_rest_of_the_file_stays(cli: Cli, config: Path, home: Path) -> None:
    add_rule(Paths(str(home)), "allow", "bash(npm run test)")
    for rule, file in (("bash(git log)", config), ("bash(npm run test)", home / "state.toml")):
        assert cli("permissions", "test", "bash", rule[5:-1]).returncode == 0
        done = cli("permissions", "revoke", rule)
        assert done.returncode == 0, done.stderr
        assert str(file) in done.stdout
        assert cli("permissions", "test", "bash", rule[5:-1]).returncode == 3
    assert "# mine" in config.read_text()
    assert "bash(rm)" in config.read_text()


def test_a_rule_that_stands_elsewhere_is_not_called_revoked(cli: Cli, config: Path) -> None:
    environment = {"CRUSHPY_PERMISSIONS__DENY": "bash(rm)"}
    done = cli("permissions", "revoke", "bash(rm)", env=environment)
    assert done.returncode == 2
    assert "CRUSHPY_PERMISSIONS__DENY" in done.stderr
    assert cli("permissions", "test", "bash", "rm x", env=environment).returncode == 1
