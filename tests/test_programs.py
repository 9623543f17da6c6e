"""Which programs crushpy itself starts: none that a project could have brought."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crushpy.security.programs import find_program, safe_path
from crushpy.security.safe_git import git_command, git_environment

PROGRAMS = ("git", "bwrap", "rg", "bash")


def plant(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho planted\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    "element", [".", "", "bin", "{workspace}", "{workspace}/bin", "{workspace}/../work", "{link}"]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_in_the_project_is_never_found(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, element: str, name: str
) -> None:
    for folder in (workspace, workspace / "bin"):
        plant(folder, *PROGRAMS)
    link = workspace.parent / "link"
    link.symlink_to(workspace / "bin")
    monkeypatch.chdir(workspace)
    before = find_program(name)
    monkeypatch.setenv(
        "PATH", element.format(workspace=workspace, link=link) + os.pathsep + os.environ["PATH"]
    )
    assert find_program(name) == before
    assert str(workspace) not in safe_path() and not {".", ""} & set(safe_path().split(os.pathsep))


def test_a_link_to_a_program_in_the_project_is_skipped_too(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(workspace, "git", "only-here")
    links = workspace.parent / "links"
    links.mkdir()
    for name in ("git", "only-here"):
        (links / name).symlink_to(workspace / name)
    monkeypatch.setenv("PATH", f"{links}{os.pathsep}{os.environ['PATH']}")
    assert find_program("only-here", workspace) is None
    assert not git_command(workspace, "status")[0].startswith(str(links))


def test_programs_elsewhere_and_those_of_our_own_environment_are_found(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace.parent / "other"
    plant(other, "git")
    monkeypatch.setenv("PATH", str(other))
    assert find_program("git", workspace) == str(other / "git")
    assert find_program(Path(sys.executable).name, Path(sys.prefix)) == sys.executable
    assert find_program("no-such-program") is None


def test_git_runs_nothing_that_lies_in_the_project(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(workspace, "git")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    printed = subprocess.run(
        git_command(workspace, "--version"), env=git_environment(), capture_output=True, check=False
    )
    assert b"planted" not in printed.stdout
    monkeypatch.setenv("PATH", ".")
    assert set(safe_path().split(os.pathsep)) >= {"/usr/bin", "/bin"}
