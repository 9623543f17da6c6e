"""Rules that the user made for one project: valid in all its worktrees, and in no other folder."""

import json
import subprocess
from pathlib import Path

from support.command import Cli

from crushpy.core.paths import Paths
from crushpy.settings.files import project_rules_file, repository_path
from crushpy.settings.layers import load
from crushpy.settings.save import add_rule, remove_rule

RULE = "bash(pytest)"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@y", *words], check=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def allowed(cwd: Path) -> tuple[str, ...]:
    return tuple(load(Paths(), cwd).settings.permissions.allow)


def test_a_rule_of_a_project_holds_in_its_worktrees_and_folders_and_nowhere_else(
    home: Path, tmp_path: Path
) -> None:
    ours, other = repository(tmp_path / "ours"), repository(tmp_path / "other")
    git(ours, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "tree")
    (ours / "src").mkdir()
    file = add_rule(Paths(), "allow", RULE, ours)
    assert file.is_relative_to(home) and file.stat().st_mode & 0o777 == 0o600
    for place in (ours, ours / "src", tmp_path / "tree"):
        assert allowed(place) == (RULE,), place
        assert load(Paths(), place).origins["permissions.allow"] == f"project rules: {file}"
    assert allowed(other) == allowed(tmp_path) == ()
    assert remove_rule(Paths(), RULE, ours / "src") == [file]
    assert allowed(ours) == ()


def test_a_rule_for_all_projects_holds_as_before(home: Path, tmp_path: Path) -> None:
    add_rule(Paths(), "allow", RULE)
    assert allowed(tmp_path) == (RULE,)


def test_a_folder_cannot_claim_the_rules_of_another_repository(home: Path, tmp_path: Path) -> None:
    ours, foreign = repository(tmp_path / "ours"), tmp_path / "foreign"
    git(ours, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "tree")
    add_rule(Paths(), "allow", RULE, ours)
    foreign.mkdir()
    (foreign / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    assert repository_path(foreign) == foreign.resolve()
    assert allowed(foreign) == ()
    (foreign / ".git").write_text(f"gitdir: {ours / '.git'}\n")
    assert allowed(foreign) == ()


def test_the_command_line_lists_and_revokes_them(cli: Cli, home: Path, workspace: Path) -> None:
    file = add_rule(Paths(), "allow", RULE, workspace)
    assert file == project_rules_file(Paths(), workspace)
    listed = json.loads(cli("permissions", "list", "--json").stdout)
    assert listed["rules"] == [{"kind": "allow", "rule": RULE, "origin": f"project rules: {file}"}]
    assert "project rules" in cli("config", "list").stdout
    assert cli("permissions", "revoke", RULE).returncode == 0
    assert json.loads(cli("permissions", "list", "--json").stdout)["rules"] == []
