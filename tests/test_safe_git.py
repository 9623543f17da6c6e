"""When git's reading commands are known to run nothing of a repository."""

import subprocess
from pathlib import Path

import pytest

from crushpy.sandbox.repository import runs_no_program


@pytest.fixture
def repository(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q"], check=True, cwd=workspace)
    return workspace


def test_a_repository_as_git_makes_it_and_a_folder_without_one_name_no_program(repository: Path) -> None:
    assert runs_no_program(repository)
    with (repository / ".git" / "config").open("a") as file:
        file.write('[remote "origin"]\n\turl = https://example.com/a.git\n[user]\n\tname = me\n')
    (repository / "deep").mkdir()
    assert runs_no_program(repository / "deep")
    assert runs_no_program(repository.parent / "user")


@pytest.mark.parametrize(
    "settings",
    [
        "[core]\n\tfsmonitor = ./run",
        "[CORE]\n\tFSMonitor = ./run",
        "[core] fsmonitor = ./run",
        "[core]\n\thooksPath = .",
        '[diff "x"]\n\ttextconv = ./run',
        '[filter "x"]\n\tclean = ./run',
        "[include]\n\tpath = ../other",
        '[includeIf "gitdir:/"]\n\tpath = ../other',
        "[alias]\n\tstatus = !./run",
        "[core]\n\tfilemode = true\n\tpager = ./run",
        "\x00",
    ],
    ids=range(11),
)
def test_git_setting_counts_as_a_program_when_in_doubt(repository: Path, settings: str) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.write(settings + "\n")
    assert not runs_no_program(repository)


@pytest.mark.parametrize("name", [".gitmodules", ".git/config.worktree", ".git/hooks/post-index-change"])
def test_files_that_bring_settings_or_programs_count_too(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("#!/bin/sh\n")
    assert not runs_no_program(repository)


def test_a_worktree_elsewhere_is_not_known(workspace: Path) -> None:
    (workspace / ".git").write_text("gitdir: /somewhere\n")
    assert not runs_no_program(workspace)
