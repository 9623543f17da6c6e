"""Tasks with a git worktree of their own: side by side, each leaves a branch, the project stays as it was."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.databases import both_databases
from support.headless import Run, Start
from support.task_model import TaskModel, runs, writes

from crushpy.sandbox.finding import find_sandbox

pytestmark = pytest.mark.slow


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def project(workspace: Path) -> Path:
    """A repository with one commit, in the folder where crushpy runs."""
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "config", "user.name", "Ada")
    git(workspace, "config", "user.email", "ada@example.org")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "first")
    return workspace


def listed(folder: Path, *tasks: Any) -> str:
    (folder.parent / "list.json").write_text(json.dumps(tasks))
    return str(folder.parent / "list.json")


def tree(prompt: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "name": prompt, "worktree": True, **more}


def left_behind(home: Path) -> list[Path]:
    return list((home / "worktrees").rglob("*")) if (home / "worktrees").exists() else []


@both_databases
def test_each_leaves_a_branch_with_its_diff_and_nothing_is_merged(
    start: Start, llm: ScriptedLLM, project: Path, home: Path
) -> None:
    model = TaskModel(
        {
            "left": [Stall(writes("b.txt", "left\n")), "Left is done."],
            "right": [Stall(writes("new/b.txt", "right\n")), "Right is done."],
            "none": "Nothing to do.",
            "after": "Seen.",
        }
    )
    llm.always(model)
    tasks = [tree("left"), tree("right"), tree("none"), {"prompt": "after", "needs": ["left", "none"]}]
    live = start("--tasks", listed(project, *tasks), "--parallel", "2", "--yolo")
    llm.wait_requests_blocking(2)
    assert sorted(model.prompts) == ["left", "right"]
    llm.release()
    done = live.end()
    assert done.code == 0, done.stderr
    root = done.result["root_id"]
    branches = {task["name"]: task["branch"] for task in done.result["tasks"]}
    assert branches == {
        "left": f"crushpy/{root}/left",
        "right": f"crushpy/{root}/right",
        "none": "",
        "task-4": "",
    }
    assert git(project, "show", f"{branches['left']}:b.txt") == "left\n"
    assert git(project, "show", f"{branches['right']}:new/b.txt") == "right\n"
    assert git(project, "log", "-1", "--format=%an %s", branches["left"]) == "Ada left: left\n"
    assert git(project, "status", "--porcelain") == "" and (project / "a.txt").read_text() == "one\n"
    assert git(project, "branch", "--show-current") == "main\n"
    assert git(project, "branch", "--list", "crushpy/*").count("\n") == 2
    assert git(project, "worktree", "list").count("\n") == 1 and left_behind(home) == []
    assert branches["left"] in model.told["after"] and "+left" in model.told["after"]
    assert "It changed nothing in its worktree, and left no branch." in model.told["after"]
    assert done.of("notice")[-1]["text"] == (
        "2 branches hold the changes of tasks with a worktree, not merged: "
        f"git branch --list 'crushpy/{root}/*'"
    )
    assert "Working directory: " + str(home / "worktrees" / root / "left") in str(
        next(
            request.body
            for request in llm.requests
            if request.body["messages"][1]["content"].startswith("left")
        )
    )


def test_rules_and_folders_are_those_of_the_project(
    run: Run, llm: ScriptedLLM, project: Path, home: Path
) -> None:
    """A rule for `sub/**` holds in the worktree, and reaches neither the project nor the rest of it."""
    (project / "sub").mkdir()
    (project / "sub/c.txt").write_text("c\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "second")
    outside = str(project / "sub/e.txt")
    model = TaskModel(
        {"work": [writes("sub/d.txt", "new\n"), writes("b.txt", "no\n"), writes(outside, "no\n"), "Done."]}
    )
    llm.always(model)
    done = run("--tasks", listed(project, tree("work")), "--allow", "write(sub/**)")
    assert done.code == 3, "two of the three needed a permission"
    branch = f"crushpy/{done.result['root_id']}/work"
    assert git(project, "diff", "--name-only", f"main..{branch}") == "sub/d.txt\n"
    assert [path.name for path in (project / "sub").iterdir()] == ["c.txt"]


@pytest.mark.skipif(not find_sandbox("on").on, reason="needs a sandbox")
def test_the_sandbox_lets_commands_write_in_the_worktree_and_guards_the_repository(
    run: Run, llm: ScriptedLLM, project: Path
) -> None:
    repository = f"{project}/.git"
    hostile = [f"{project}/a.txt", f"{repository}/hooks/post-commit", f"{repository}/config"]
    tries = "; ".join(f"echo x >> {place}" for place in hostile)
    looks = Reply(calls=[Call("grep", {"pattern": "one"}), Call("glob", {"pattern": "*.txt"})])
    model = TaskModel({"work": [looks, runs(f"git status && echo made > made.txt; {tries}"), "Done."]})
    llm.always(model)
    config = (project / ".git/config").read_text()
    done = run("--tasks", listed(project, tree("work")), "--yolo")
    assert done.code == 0
    found = [line["text"] for line in done.of("tool_result")]
    assert "a.txt" in found[0] and "a.txt" in found[1], found
    branch = f"crushpy/{done.result['root_id']}/work"
    assert git(project, "diff", "--name-only", f"main..{branch}") == "made.txt\n"
    assert (project / "a.txt").read_text() == "one\n" and (project / ".git/config").read_text() == config
    assert not (project / ".git/hooks/post-commit").exists()


def test_worktree_commits_the_rest_and_names_files_that_git_refuses(
    run: Run, llm: ScriptedLLM, project: Path, home: Path
) -> None:
    nested = "git init -q inner; mkdir shut; echo x > shut/x.txt; chmod 500 shut"
    model = TaskModel({"work": [runs(nested), "Done."], "after": "Seen."})
    llm.always(model)
    done = run("--yolo", "--tasks", listed(project, tree("work"), {"prompt": "after", "needs": ["work"]}))
    assert done.code == 0
    branch = f"crushpy/{done.result['root_id']}/work"
    assert git(project, "diff", "--name-only", f"main..{branch}") == "shut/x.txt\n"
    assert "Not in the branch: " in model.told["after"] and "inner" in model.told["after"]
    assert left_behind(home) == []


def test_worktree_runs_no_program_named_by_the_repository(run: Run, llm: ScriptedLLM, project: Path) -> None:
    mark = project.parent / "ran"
    hook = project / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "post-commit"):
        (hook.parent / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hook.parent / name).chmod(0o755)
    git(project, "config", "filter.bad.clean", f"touch {mark}; cat")
    git(project, "config", "filter.bad.smudge", f"touch {mark}; cat")
    git(project, "config", "commit.gpgSign", "true")
    model = TaskModel(
        {"work": [writes(".gitattributes", "* filter=bad\n"), writes("b.txt", "new\n"), "Done."]}
    )
    llm.always(model)
    done = run("--tasks", listed(project, tree("work")), "--yolo")
    assert done.code == 0 and not mark.exists()
    assert git(project, "show", f"crushpy/{done.result['root_id']}/work:b.txt") == "new\n"


def test_worktree_reports_uncommitted_changes_and_submodules(
    run: Run, llm: ScriptedLLM, project: Path
) -> None:
    (project / ".gitmodules").write_text("")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "modules")
    (project / "a.txt").write_text("changed\n")
    llm.always(lambda body: Reply("Done."))
    done = run("--tasks", listed(project, tree("work")))
    said = [line["text"] for line in done.of("notice")]
    assert any(
        "changes that are not committed" in text and "begin at the last commit" in text for text in said
    )
    assert "Submodules are empty folders in the worktrees of tasks." in said
    assert done.code == 0 and (project / "a.txt").read_text() == "changed\n"


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        pytest.param([], "is not in a git repository", id="none"),
        pytest.param([("init", "-q")], "the repository has no commit yet", id="no commit"),
        pytest.param(
            [
                ("init", "-q"),
                ("-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x", "--allow-empty"),
                ("branch", "crushpy"),
            ],
            "the branch crushpy is in the way",
            id="taken",
        ),
    ],
)
def test_tasks_do_not_begin_when_no_worktree_can_be_made(
    run: Run, llm: ScriptedLLM, workspace: Path, prepare: list[tuple[str, ...]], said: str
) -> None:
    for words in prepare:
        git(workspace, *words)
    done = run("--tasks", listed(workspace, {"prompt": "x"}, tree("tree")))
    assert done.code == 2 and "task 2 (tree) wants a worktree, but" in done.result["error"]
    assert said in done.result["error"] and not llm.requests


def test_a_folder_that_no_commit_has_can_have_no_worktree(run: Run, llm: ScriptedLLM, project: Path) -> None:
    (project / "fresh").mkdir()
    done = run("--cwd", str(project / "fresh"), "--tasks", listed(project, tree("tree")))
    assert done.code == 2 and "the folder fresh is not in the last commit" in done.result["error"]


@both_databases
def test_failed_task_leaves_its_branch_and_the_next_attempt_reuses_the_name(
    run: Run, llm: ScriptedLLM, project: Path, home: Path
) -> None:
    from scripted_llm import Fail

    model = TaskModel({"work": [writes("b.txt", "half\n"), Fail(401), writes("b.txt", "whole\n"), "Done."]})
    llm.always(model)
    first = run("--tasks", listed(project, tree("work")), "--yolo")
    assert first.code == 1
    branch = f"crushpy/{first.result['root_id']}/work"
    assert git(project, "show", f"{branch}:b.txt") == "half\n"
    again = run("--resume", first.result["root_id"], "--yolo")
    assert again.code == 0 and git(project, "show", f"{branch}:b.txt") == "whole\n"
    assert git(project, "show", f"{branch}-attempt-1:b.txt") == "half\n"
    notices = [line["text"] for line in again.of("notice")]
    assert f"The changes of an earlier attempt at work are on the branch {branch}-attempt-1." in notices
    assert left_behind(home) == []


def test_a_worktree_in_which_nothing_changed_is_said_to_leave_no_branch(
    run: Run, llm: ScriptedLLM, project: Path
) -> None:
    llm.always(TaskModel({"look": "All is well."}))
    done = run("--tasks", listed(project, tree("look")), "--format", "text")
    assert done.code == 0 and "look: done, 1 step," in done.stderr
    assert done.stderr.partition("look: done")[2].splitlines()[0].endswith("no changes, no branch")


def test_the_last_line_counts_what_is_on_branches(run: Run, llm: ScriptedLLM, project: Path) -> None:
    llm.always(TaskModel({"left": [writes("b.txt", "left\n"), "Done."]}))
    done = run("--yolo", "--tasks", listed(project, tree("left")), "--format", "text")
    assert done.stderr.splitlines()[-1].startswith("1 file changed (1 on branches), ")


@both_databases
@pytest.mark.parametrize("by", ["resume", "next start"])
def test_changes_of_a_killed_run_become_a_branch(
    start: Start, run: Run, llm: ScriptedLLM, project: Path, home: Path, by: str
) -> None:
    model = TaskModel({"work": [writes("b.txt", "half\n"), Stall(), "Done."], "hello": "Hi."})
    llm.always(model)
    live = start("--tasks", listed(project, tree("work")), "--yolo")
    llm.wait_requests_blocking(2)
    live.process.kill()
    root = live.session
    live.end()
    assert git(project, "worktree", "list").count("\n") == 2
    done = run("--resume", root) if by == "resume" else run("hello")
    assert done.code == 0
    half = f"crushpy/{root}/work" + ("-attempt-1" if by == "resume" else "")
    assert git(project, "show", f"{half}:b.txt") == "half\n"
    assert any("holds the changes of the interrupted task work" in line["text"] for line in done.of("notice"))
    assert git(project, "worktree", "list").count("\n") == 1 and left_behind(home) == []


@both_databases
def test_an_interrupted_one_leaves_its_branch_and_no_worktree(
    start: Start, llm: ScriptedLLM, project: Path, home: Path
) -> None:
    model = TaskModel({"work": [writes("b.txt", "half\n"), Stall()]})
    llm.always(model)
    live = start("--tasks", listed(project, tree("work")), "--yolo")
    llm.wait_requests_blocking(2)
    live.process.terminate()
    done = live.end()
    assert done.code == 143
    assert git(project, "show", f"crushpy/{done.result['root_id']}/work:b.txt") == "half\n"
    assert git(project, "worktree", "list").count("\n") == 1 and left_behind(home) == []
