"""Commands that only read run unasked in `crushpy run`; those of git only where the project is trusted."""

import shutil
import subprocess
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

pytestmark = pytest.mark.slow

GIT = shutil.which("git")


def bash(*commands: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command}) for command in commands])


def test_plain_readers_and_pipes_of_them_run_without_a_rule(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    llm.script(bash("cat a.txt | wc -l", "ls && pwd", "make"), "Read.")
    done = run("read it")
    counted, listed, asked = done.of("tool_result")
    assert counted["text"].strip() == "2"
    assert str(workspace) in listed["text"]
    assert asked["is_error"] and "--allow 'bash(make)'" in asked["text"]
    assert done.code == 3


def test_reading_calls_name_links_that_leave_the_workspace(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "link").symlink_to("/etc/hostname")
    llm.script(bash("cat link"), "I may not.")
    done = run("read it")
    (result,) = done.of("tool_result")
    assert "outside the workspace: /etc/hostname" in result["text"]
    assert "--allow 'view(/etc/hostname)'" in result["text"]


@pytest.mark.skipif(GIT is None, reason="git is not installed")
def test_a_repository_whose_settings_run_programs_runs_none_until_it_is_trusted(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    for key in ("core.fsmonitor", "core.pager", "diff.x.textconv", "alias.status"):
        value = "!touch pwned" if key.startswith("alias") else "touch pwned; false"
        subprocess.run(["git", "config", key, value], cwd=workspace, check=True)
    (workspace / ".gitattributes").write_text("* diff=x\n")
    llm.script(bash("git status", "git diff --stat", "git log -p", "cd . && git status"), "I may not.")
    done = run("look")
    assert all("not trusted" in each["text"] for each in done.of("tool_result"))
    assert done.code == 3
    assert not (workspace / "pwned").exists()
    cli("trust")
    llm.script(bash("git status --short"), "Seen.")
    trusted = run("look")
    assert trusted.code == 0
    assert ".gitattributes" in trusted.of("tool_result")[0]["text"]
