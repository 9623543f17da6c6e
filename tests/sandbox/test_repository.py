"""Which git folders count as the workspace's own. A `.git` file that came with a project can name any."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confined import bash, confined, needs_sandbox

from crushpy.core.access import Privileges
from crushpy.sandbox.repository import git_folders

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.outside_tmp,
]


def git(folder: Path, *words: str) -> None:
    settings = ("user.name=a", "user.email=a@b", "protocol.file.allow=always")
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", "-C", folder, *options, *words], check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "1")
    return folder


def folders_of(workspace: Path) -> list[Path]:
    found = git_folders(workspace)
    assert found is not None
    return [Path(folder) for folder in found.folders]


@pytest.fixture
def other(workspace: Path) -> Path:
    return repository(workspace.parent / "other")


def test_a_repository_a_folder_in_it_and_a_bare_one_inside_count(workspace: Path) -> None:
    repository(workspace)
    (workspace / "sub").mkdir()
    assert folders_of(workspace) == folders_of(workspace / "sub") == [workspace / ".git"]
    layout = workspace.parent / "layout"
    git(workspace.parent, "clone", "-q", "--bare", "work", "layout/.bare")
    (layout / ".git").write_text("gitdir: ./.bare\n")
    assert folders_of(layout) == [layout / ".bare"]
    git(layout, "worktree", "add", "-q", "main")
    assert folders_of(layout / "main") == [layout / ".bare/worktrees/main", layout / ".bare"]


def test_a_worktree_counts_with_its_repository_also_from_a_folder_in_it_and_through_a_link(
    workspace: Path, other: Path
) -> None:
    git(other, "worktree", "add", "-q", "--detach", str(workspace))
    (workspace / "sub").mkdir()
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    expected = [other / ".git/worktrees/work", other / ".git"]
    assert [folders_of(place) for place in (workspace, workspace / "sub", link)] == [expected] * 3
    pointer = other / ".git/worktrees/work/gitdir"
    pointer.write_text(os.path.relpath(workspace / ".git", pointer.parent))
    assert folders_of(workspace) == expected, "git writes relative names with worktree.useRelativePaths"


def test_a_submodule_counts_also_in_a_worktree_of_its_repository(workspace: Path, other: Path) -> None:
    repository(workspace)
    git(workspace, "submodule", "add", "-q", str(other), "lib/my sub")
    git(workspace, "commit", "-q", "-m", "2")
    assert folders_of(workspace / "lib/my sub") == [workspace / ".git/modules/lib/my sub"]
    tree = workspace.parent / "tree"
    git(workspace, "worktree", "add", "-q", str(tree))
    git(tree, "submodule", "update", "-q", "--init")
    assert folders_of(tree / "lib/my sub") == [workspace / ".git/worktrees/tree/modules/lib/my sub"]


@pytest.mark.parametrize(
    "named", ["other/.git", "other", "other/.git/worktrees/tree", "other/.git/modules/x"]
)
def test_a_git_file_that_names_a_folder_of_another_project_gives_nothing(
    workspace: Path, other: Path, named: str
) -> None:
    git(other, "worktree", "add", "-q", "--detach", "../tree")
    git(other, "init", "-q", "--bare", str(other / ".git/modules/x"))
    git(other, "config", "--file", ".git/modules/x/config", "core.worktree", "../../../x")
    (workspace / ".git").write_text(f"gitdir: {workspace.parent / named}\n")
    assert folders_of(workspace) == []


@pytest.mark.parametrize("target", ["other/.git", "tree/.git"])
def test_a_link_to_the_git_entry_of_another_project_gives_nothing(
    workspace: Path, other: Path, target: str
) -> None:
    git(other, "worktree", "add", "-q", "--detach", "../tree")
    (workspace / ".git").symlink_to(workspace.parent / target)
    assert folders_of(workspace) == []


def test_a_common_folder_outside_does_not_count(workspace: Path, other: Path) -> None:
    repository(workspace)
    (workspace / ".git/commondir").write_text(f"{other / '.git'}\n")
    assert folders_of(workspace) == [workspace / ".git"]
    own = workspace / "fake/worktrees/x"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "gitdir").write_text(f"{workspace}/.git\n")
    (own / "commondir").write_text(f"{other / '.git'}\n")
    shutil.rmtree(workspace / ".git")
    (workspace / ".git").write_text("gitdir: fake/worktrees/x\n")
    assert folders_of(workspace) == [own]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        (b"gitdir: {}", True),
        (b"gitdir: {}\r\n\n", True),
        (b"gitdir: {}\0/../../other", True),
        (b"gitdir:{}\n", False),
        (b"gitdir: {} \n", False),
        (b"gitdir:  {}\n", False),
        (b" gitdir: {}\n", False),
        (b"gitdir: {}\n\0\n", False),
        (b"gitdir: {}\n" + b"\n" * (1 << 20), False),
    ],
    ids=range(9),
)
def test_pointers_are_read_byte_for_byte_as_git_reads_them(
    workspace: Path, text: bytes, is_read: bool
) -> None:
    git(workspace, "init", "-q", "--bare", "own")
    (workspace / ".git").write_bytes(text.replace(b"{}", os.fsencode(workspace / "own")))
    done = subprocess.run(
        ["git", "-C", workspace, "rev-parse", "--git-dir"], capture_output=True, check=False
    )
    assert (done.returncode == 0) == is_read, done.stderr
    assert folders_of(workspace) == ([workspace / "own"] if is_read else [])


def test_a_worktree_counts_only_in_what_git_calls_a_repository(workspace: Path) -> None:
    """An archive that is unpacked beside the project could bring `HEAD`, `objects` and `worktrees`."""
    git(workspace.parent, "init", "-q", "--bare", "tmp-bare")
    base = workspace.parent / "downloads"
    (workspace.parent / "tmp-bare").rename(base)
    own = base / "worktrees/x"
    own.mkdir(parents=True)
    (own / "gitdir").write_text(f"{workspace}/.git\n")
    (own / "commondir").write_text("../..\n")
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git").write_text(f"gitdir: {own}\n")
    assert folders_of(workspace) == []


def test_repository_at_or_above_the_home_folder_is_ignored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(workspace, "init", "-q", "--bare", "user")
    (workspace / ".git").write_text("gitdir: user\n")
    assert folders_of(workspace) == [workspace / "user"]
    monkeypatch.setenv("HOME", str(workspace / "user"))
    assert folders_of(workspace) == []
    (workspace / ".git").write_text("gitdir: .\n")
    assert folders_of(workspace) == []


@needs_sandbox
async def test_commands_cannot_write_where_a_git_file_leads(home: Path) -> None:
    base = Path(__file__).parent / f"scratch-{os.getpid()}"  # outside /tmp: the sandbox has its own
    try:
        other = repository(base / "other")
        workspace = base / "work"
        workspace.mkdir()
        (workspace / ".git").write_text(f"gitdir: {other}\n")
        async with confined(workspace, home) as context:
            outcome = await bash(context, f"touch {other}/x {other}/.git/x", Privileges(git=True))
        assert "Read-only" in outcome.text
        assert not (other / "x").exists() and not (other / ".git/x").exists()
    finally:
        shutil.rmtree(base)
