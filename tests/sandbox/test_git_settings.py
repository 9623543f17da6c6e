"""Git granted: it changes its settings itself, but none that would make it run programs."""

import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from confined import bash, confined, needs_sandbox

from crushpy.core.access import Privileges
from crushpy.tools.base import CallContext

pytestmark = [
    needs_sandbox,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
GIT = Privileges(git=True)


@pytest.fixture
async def context(workspace: Path, tmp_path: Path) -> AsyncGenerator[CallContext]:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    async with confined(workspace, tmp_path / "crushpy") as lent:
        yield lent


def config(workspace: Path) -> Path:
    return workspace / ".git" / "config"


async def test_git_writes_what_it_needs_where_it_was_granted(context: CallContext, workspace: Path) -> None:
    commands = (
        "git remote add origin https://a.example/b.git",
        "git config user.name me && git config user.email me@a.example",
        "git commit -q --allow-empty -m one && git branch other && git branch -u other",
        "git init -q --bare /tmp/up && git remote set-url origin /tmp/up && git push -q -u origin HEAD:main",
    )
    for command in commands:
        outcome = await bash(context, command, GIT)
        assert not outcome.is_error and "put back" not in outcome.text, outcome.text
    text = config(workspace).read_text()
    assert "name = me" in text and "merge = refs/heads/main" in text and "url = /tmp/up" in text
    assert (await bash(context, "git config user.name other")).is_error, "without the grant it stays"


@pytest.mark.parametrize(
    "setting", ["remote.origin.url", "remote.origin.pushurl", "branch.main.remote", "user.email"]
)
async def test_changed_place_or_author_of_commits_is_said(context: CallContext, setting: str) -> None:
    outcome = await bash(context, f"git config {setting} other", GIT)
    assert f"config was changed by the command: it sets {setting}" in outcome.text
    assert "it sets" not in (await bash(context, "git config gc.auto 1", GIT)).text


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("core.hooksPath", "hooks"),
        ("core.fsmonitor", "./run"),
        ("core.sshCommand", "./run"),
        ("core.pager", "./run"),
        ("core.editor", "./run"),
        ("core.worktree", "/"),
        ("diff.x.textconv", "./run"),
        ("diff.external", "./run"),
        ("merge.x.driver", "./run"),
        ("filter.x.clean", "./run"),
        ("credential.helper", "!./run"),
        ("alias.st", "!./run"),
        ("pager.log", "./run"),
        ("sequence.editor", "./run"),
        ("gpg.program", "./run"),
        ("include.path", "../settings"),
        ("remote.x.url", "ext::./run"),
        ("remote.x.uploadpack", "./run"),
        ("submodule.x.update", "!./run"),
        ("gc.recentObjectsHook", "./run"),
        ("url.https://evil.example/.insteadOf", "https://a.example/"),
    ],
)
async def test_a_setting_that_runs_programs_is_taken_back_and_said(
    context: CallContext, workspace: Path, tmp_path: Path, setting: str, value: str
) -> None:
    before = config(workspace).read_bytes()
    outcome = await bash(context, f"git config '{setting}' '{value}'", GIT)
    assert config(workspace).read_bytes() == before
    assert "was restored" in outcome.text and setting.partition(".")[0] in outcome.text
    (kept,) = (tmp_path / "crushpy" / "put_aside").glob("*/config")
    assert value.encode() in kept.read_bytes()
    assert "put back" not in (await bash(context, "git status", GIT)).text


async def test_users_git_settings_stay(context: CallContext, workspace: Path) -> None:
    subprocess.run(["git", "-C", str(workspace), "config", "core.editor", "vi"], check=True)
    outcome = await bash(context, "git config user.name me", GIT)
    assert "put back" not in outcome.text
    assert "vi" in config(workspace).read_text() and "me" in config(workspace).read_text()


@pytest.mark.parametrize("trick", ["rm .git/config; ln -s ../other .git/config", "echo '[' >> .git/config"])
async def test_a_file_of_settings_that_is_none_any_more_is_put_back(
    context: CallContext, workspace: Path, trick: str
) -> None:
    before = config(workspace).read_bytes()
    (workspace / "other").write_text('[core]\n  pager = "./run"\n')
    assert "was restored" in (await bash(context, trick, GIT)).text
    assert config(workspace).read_bytes() == before and not config(workspace).is_symlink()


async def test_hooks_stay_as_they_are_although_git_was_granted(context: CallContext, workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(exist_ok=True)
    outcome = await bash(context, "echo x > .git/hooks/pre-commit", GIT)
    assert outcome.is_error and not (workspace / ".git" / "hooks" / "pre-commit").exists()


async def test_a_repository_that_was_just_made_is_looked_at_too(workspace: Path, tmp_path: Path) -> None:
    async with confined(workspace, tmp_path / "crushpy") as context:
        made = await bash(context, "git init -q && git config core.pager ./run", GIT)
        assert "core.pager may make git run programs" in made.text
        added = await bash(context, "git remote add origin https://a.example/b.git", GIT)
        assert not added.is_error, added.text
    assert "pager" not in config(workspace).read_text() and "a.example" in config(workspace).read_text()
