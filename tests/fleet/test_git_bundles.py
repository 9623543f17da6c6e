"""Code as bundles: a hostile or damaged one adds objects at most; no refs, hooks or files elsewhere."""

import subprocess
from pathlib import Path

import pytest
from support.fleet_workers import git

from crushpy.core.errors import UsageError
from crushpy.engine.agents.task_workspaces import GitFailed
from crushpy.fleet.git_bundles import (
    TaskCheckout,
    cached_base,
    fetch_branch,
    fill_cache,
    make_base,
    make_bundle,
    require_safe_names,
)


def checkout(
    repository: Path, tmp_path: Path, steps: tuple[bytes, ...] = (), name: str = "one"
) -> TaskCheckout:
    base = make_base(repository, "list", dirty=False)
    folder = tmp_path / "fleet"
    folder.mkdir(exist_ok=True)
    if not cached_base(folder, "list").exists():
        fill_cache(folder, "list", make_bundle(repository, "refs/crushpy/list/base"))
    made = TaskCheckout(tmp_path / "trees" / name, "list", "task", base.commit)
    made.create(cached_base(folder, "list"), steps)
    return made


def test_steps_restore_files_and_commits_elsewhere(repository: Path, tmp_path: Path) -> None:
    first = checkout(repository, tmp_path)
    assert first.checkpoint() == b""
    (first.top / "b.txt").write_text("two")
    steps = [first.checkpoint()]
    git(first.top, "add", "-A")
    git(first.top, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "its own")
    (first.top / "a.txt").unlink()
    steps.append(first.checkpoint())
    assert first.checkpoint() == b""
    second = checkout(repository, tmp_path, tuple(steps), "two")
    assert sorted(path.name for path in second.top.iterdir()) == [".git", "b.txt"]
    assert git(second.top, "log", "--format=%s", "-1") == "its own"
    left, bundle = second.leave("the rest")
    fetch_branch(repository, left.branch, bundle)
    assert git(repository, "ls-tree", "--name-only", left.branch) == "b.txt"


def test_commits_of_the_user_on_a_result_stay_and_the_branch_of_an_earlier_attempt_is_renamed(
    repository: Path, tmp_path: Path
) -> None:
    bundles: list[bytes] = []
    for name in ("first", "second"):
        task = checkout(repository, tmp_path, name=name)
        (task.top / f"{name}.txt").write_text(name)
        left, bundle = task.leave(name)
        bundles.append(bundle)
    assert fetch_branch(repository, left.branch, bundles[0]) == ""
    git(repository, "checkout", "-q", left.branch)
    git(repository, "commit", "-q", "--allow-empty", "-m", "by hand")
    assert fetch_branch(repository, left.branch, bundles[0]) == ""
    assert git(repository, "log", "--format=%s", "-1", left.branch) == "by hand"
    earlier = fetch_branch(repository, left.branch, bundles[1])
    assert git(repository, "log", "--format=%s", "-1", left.branch) == "second"
    assert git(repository, "log", "--format=%s", "-1", earlier) == "by hand"
    assert git(repository, "status", "--porcelain") == ""


def test_a_damaged_bundle_is_refused(repository: Path, tmp_path: Path) -> None:
    data = make_bundle(repository, "HEAD")
    with pytest.raises(GitFailed):
        fill_cache(tmp_path, "list", data[: len(data) // 2])
    assert not cached_base(tmp_path, "list").exists()


def test_a_bundle_sets_no_other_branch_and_runs_no_hook(repository: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    git(tmp_path, "clone", "-q", str(repository), str(evil))
    (evil / "link").symlink_to("/etc/passwd")
    (evil / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ../../outside\n')
    git(evil, "add", "-A")
    git(evil, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "evil")
    git(evil, "branch", "crushpy/list/task")
    made = subprocess.run(
        ["git", "-C", str(evil), "bundle", "create", "-", "--all"], check=True, capture_output=True
    ).stdout
    hook = repository / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    before = git(repository, "rev-parse", "main")
    fetch_branch(repository, "crushpy/list/task", made)
    assert git(repository, "rev-parse", "main") == before
    refs = git(repository, "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/crushpy/list/task", "refs/heads/main"]
    assert not (tmp_path / "ran").exists()


def test_a_tree_that_names_gits_own_folder_is_not_checked_out(repository: Path, tmp_path: Path) -> None:
    blob = git(repository, "hash-object", "-w", "a.txt")
    inner = subprocess.run(
        ["git", "-C", str(repository), "mktree"],
        input=f"100755 blob {blob}\tpost-checkout\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for name in ("hooks", ".git"):
        inner = subprocess.run(
            ["git", "-C", str(repository), "mktree"],
            input=f"040000 tree {inner}\t{name}\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    commit = git(repository, "commit-tree", inner, "-m", "evil")
    git(repository, "update-ref", "refs/crushpy/evil", commit)
    fill_cache(tmp_path, "evil", make_bundle(repository, "refs/crushpy/evil"))
    with pytest.raises(GitFailed):
        TaskCheckout(tmp_path / "trees", "evil", "task", commit).create(cached_base(tmp_path, "evil"), ())
    assert not (tmp_path / "trees" / "task" / ".git" / "hooks").exists()


@pytest.mark.parametrize(
    ("root_id", "name"),
    [("../up", "task"), ("list", "../../up"), ("list", "x:refs/heads/main"), ("list", "")],
)
def test_names_from_the_database_cannot_leave_their_folder_or_branch(root_id: str, name: str) -> None:
    with pytest.raises(UsageError):
        require_safe_names(root_id, name)
