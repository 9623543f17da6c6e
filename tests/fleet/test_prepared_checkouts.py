"""What prepares the checkout of a task, and what of its project a worker uses."""

from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM
from support.command import Cli
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run
from support.task_model import runs

from crushpy.sandbox.finding import find_sandbox

pytestmark = pytest.mark.xdist_group("postgres")
SETUP = '[worktree]\nsetup = "sh prepare.sh"\n'
sandboxed = pytest.mark.skipif(not find_sandbox("on").on, reason="a project's command needs a sandbox")


def shows(*names: str) -> Any:
    """A model that looks at files and reports."""
    call = runs(f"cat {' '.join(names)}")
    return lambda body: call if body["messages"][-1]["role"] == "user" else Reply("seen")


def seen(llm: ScriptedLLM) -> str:
    return str(llm.requests[-1].body["messages"][-1]["content"])


def with_setup(repository: Path) -> None:
    (repository / ".crushpy").mkdir()
    (repository / ".crushpy" / "config.toml").write_text(SETUP)
    (repository / "prepare.sh").write_text("echo prepared > made.txt\n")
    (repository / ".gitignore").write_text("made.txt\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "setup")


def test_the_users_setup_runs_in_each_worktree_and_its_failure_is_the_tasks(
    run: Run, llm: ScriptedLLM, repository: Path
) -> None:
    llm.always(shows("made.txt"))
    file = listed(repository, named("look", worktree=True))
    env = {"CRUSHPY_WORKTREE__SETUP": "echo prepared > made.txt"}
    done = run("--tasks", file, "--allow", "bash(cat)", env=env)
    assert done.code == 0, done.stderr
    assert "prepared" in seen(llm)
    assert not (repository / "made.txt").exists()
    done = run("--tasks", file, env={"CRUSHPY_WORKTREE__SETUP": "echo no such thing; exit 3"})
    assert done.code == 1
    assert "exit code 3" in done.result["tasks"][0]["error"]
    assert "no such thing" in done.result["tasks"][0]["error"]


@sandboxed
def test_a_projects_setup_runs_only_as_it_was_accepted(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path
) -> None:
    llm.always(shows("made.txt"))
    with_setup(repository)
    file, allow = listed(repository, named("look", worktree=True)), ("--allow", "bash(cat)")
    assert run("--tasks", file, *allow).code == 0
    assert "prepared" not in seen(llm)
    assert "sh prepare.sh" in cli("trust").stdout
    assert run("--tasks", file, *allow).code == 0
    assert "prepared" in seen(llm)
    (repository / "prepare.sh").write_text("echo changed > made.txt\n")
    git(repository, "commit", "-qam", "changed")
    done = run("--tasks", file, *allow)
    assert done.code == 1
    assert "crushpy trust" in done.result["tasks"][0]["error"]


def test_ignored_files_that_worktreeinclude_names_are_copied_but_no_links(
    run: Run, llm: ScriptedLLM, repository: Path, tmp_path: Path
) -> None:
    (repository / ".gitignore").write_text("*.local\nlink\nother\n")
    (repository / ".worktreeinclude").write_text("*.local\nlink\na.txt\nplain\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "include")
    (repository / "sub").mkdir()
    for name in ("one.local", "sub/two.local", "other", "plain"):
        (repository / name).write_text("x")
    (repository / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("secret")
    list_files = runs("ls -A . sub")
    llm.always(lambda body: list_files if body["messages"][-1]["role"] == "user" else Reply("seen"))
    done = run("--tasks", listed(repository, named("look", worktree=True)), "--allow", "bash(ls)")
    assert done.code == 0, done.stderr
    assert "one.local" in seen(llm)
    assert "two.local" in seen(llm)
    assert not {"link", "other", "plain"} & set(seen(llm).split())
    assert done.result["tasks"][0]["branch"] == ""


@sandboxed
def test_a_worker_uses_what_a_project_brings_only_if_its_user_trusts_the_same(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet, tmp_path: Path
) -> None:
    llm.always(shows("made.txt"))
    with_setup(repository)
    clone, home = tmp_path / "clone", tmp_path / "machine-0"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    fleet.worker()
    file = listed(repository, named("look"))
    allow = ("--fleet", "--allow", "bash(cat)")
    done = run("--tasks", file, *allow, env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    assert "prepared" not in seen(llm)
    fleet.crushpy(home, "trust", str(clone))
    done = run("--tasks", file, *allow, env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    assert "prepared" in seen(llm)
    (repository / ".crushpy" / "config.toml").write_text(SETUP.replace("sh prepare", "sh ./prepare"))
    done = run("--tasks", file, *allow, env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    assert "prepared" not in seen(llm)
