"""`crushpy trust` and `crushpy untrust` as a person types them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.headless import Run

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / ".crushpy" / "templates").mkdir(parents=True)
    (workspace / ".crushpy" / "config.toml").write_text('[permissions]\ndeny = ["bash(rm)"] # \u202e\n')
    (workspace / ".crushpy" / "templates" / "summary.md").write_text("hi")
    (workspace / "src" / "deep").mkdir(parents=True)
    return workspace


def test_trusting_a_project_shows_what_it_brings_and_puts_it_in_force(cli: Cli, project: Path) -> None:
    assert cli("permissions", "test", "bash", "rm x").returncode == 3
    done = cli("trust", cwd=project / "src" / "deep")
    assert done.returncode == 0, done.stderr
    assert str(project) in done.stdout
    assert 'deny = ["bash(rm)"]' in done.stdout
    assert "templates/summary.md" in done.stdout
    assert "\u202e" not in done.stdout
    assert cli("permissions", "test", "bash", "rm x", cwd=project / "src").returncode == 1


def test_trust_listing_removes_escape_sequences(cli: Cli, project: Path) -> None:
    (project / ".crushpy" / "config.toml").write_text("model = 'x' # \x1b]52;c;eA==\x07\n")
    (project / ".crushpy" / "templates" / "\x1b[2J.md").touch()
    done = cli("trust")
    assert done.returncode == 0
    assert "model = 'x'" in done.stdout
    assert "\x1b" not in done.stdout


def test_untrusting_a_project_puts_its_settings_out_of_force(cli: Cli, project: Path) -> None:
    cli("trust")
    done = cli("untrust", cwd=project / "src")
    assert done.returncode == 0
    assert str(project) in done.stdout
    assert cli("permissions", "test", "bash", "rm x").returncode == 3
    again = cli("untrust")
    assert again.returncode == 2
    assert "not trusted" in again.stderr


def test_a_trusted_project_without_settings_is_not_called_untrusted(cli: Cli, workspace: Path) -> None:
    (workspace / ".crushpy" / "templates").mkdir(parents=True)
    (workspace / ".crushpy" / "templates" / "summary.md").write_text("hi")
    assert "is ignored" in cli("config", "get", "model").stderr
    cli("trust")
    assert cli("config", "get", "model").stderr == ""


def test_consents_are_listed_and_revoked(cli: Cli, project: Path) -> None:
    assert cli("trust", "--list").stdout == "Nothing has been accepted.\n"
    assert json.loads(cli("trust", "--list", "--json").stdout) == []
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    (project / ".crushpy").mkdir(exist_ok=True)
    (project / ".crushpy" / "hooks.json").write_text(json.dumps(hook))
    cli("trust", str(project))
    listed = json.loads(cli("trust", "--list", "--json").stdout)
    assert {each["kind"]: each["where"] for each in listed} == {
        "project": str(project),
        "hooks": str(project),
    }
    assert all("crushpy trust" in each["who"] and each["when"] > 0 for each in listed)
    hooks = next(each for each in listed if each["kind"] == "hooks")
    assert f"{hooks['id']}  hooks" in cli("trust", "--list").stdout
    assert "Revoked" in cli("trust", "--revoke", hooks["id"]).stdout
    assert cli("trust", "--revoke", hooks["id"]).returncode == 2
    assert [each["kind"] for each in json.loads(cli("trust", "--list", "--json").stdout)] == ["project"]


def test_a_project_that_is_gone_can_be_untrusted(cli: Cli, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    cli("trust", str(gone))
    gone.rmdir()
    assert cli("untrust", str(gone)).returncode == 0


def test_trust_refuses_unusable_folders_with_the_next_step(cli: Cli) -> None:
    for path, says in (
        ("/", "more than one project"),
        ("missing", "does not exist"),
        ("~", "does not exist"),
    ):
        done = cli("trust", path)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_a_project_without_anything_of_its_own_can_be_trusted(cli: Cli) -> None:
    done = cli("trust")
    assert done.returncode == 0
    assert "settings: none" in done.stdout
    assert "templates: none" in done.stdout


def test_extensions_are_named_before_and_after(cli: Cli, run: Run, llm: ScriptedLLM, project: Path) -> None:
    for name in (".claude/skills/pdf/SKILL.md", ".agents/commands/fix.md", ".mcp.json"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("{}")
    brought = ".crushpy/config.toml, .crushpy/templates, .agents/commands, .claude/skills, .mcp.json"
    llm.script("Hello.", "Hello.")
    assert f"{brought} in {project} is ignored: this project is not trusted" in run("hi").stdout
    done = cli("trust")
    assert ".claude/skills: pdf\n" in done.stdout and ".agents/commands: fix.md\n" in done.stdout
    assert ".mcp.json: each server is asked about before it starts" in done.stdout
    assert "not trusted" not in run("hi").stdout
