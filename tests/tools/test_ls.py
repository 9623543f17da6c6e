"""Listing a folder."""

from pathlib import Path

import pytest
from filetools import call, lend, refused

from crushpy.core.access import Access
from crushpy.core.messages import FileList
from crushpy.tools.ls import LsTool


def grow(root: Path, *paths: str) -> None:
    """Makes files, and folders for paths that end with a slash."""
    for path in paths:
        place = root / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


async def listing(root: Path, path: str = ".") -> str:
    return (await call(LsTool(), lend(root), path=path)).text


async def test_a_folder_is_a_tree_with_folders_first(workspace: Path) -> None:
    grow(workspace, "b.py", "a/x.py", "a/deep/y.py", "empty/", ".env")
    outcome = await call(LsTool(), lend(workspace))
    assert outcome.text == "./\na/\n  deep/\n    y.py\n  x.py\nempty/\n.env\nb.py"
    assert isinstance(outcome.display, FileList)
    assert (outcome.display.rows[0], outcome.display.total) == ("a/", 7)


async def test_a_folder_below_and_one_outside_can_be_listed(workspace: Path) -> None:
    grow(workspace, "src/a.py")
    assert await listing(workspace, "src") == "src/\na.py"
    assert await listing(workspace / "src", str(workspace)) == f"{workspace}/\nsrc/\n  a.py"


async def test_ls_leaves_out_ignored_files(workspace: Path) -> None:
    grow(
        workspace,
        "keep.py",
        "a.log",
        "sub/b.log",
        "sub/keep.log",
        "build/x",
        "sub/own/c",
        "private/p",
        ".git/config",
    )
    (workspace / ".gitignore").write_text("# comment\n*.log\n/build/\n")
    (workspace / "sub" / ".gitignore").write_text("!keep.log\nown\n")
    (workspace / ".ignore").write_text("private\n")
    assert await listing(workspace) == "./\nsub/\n  .gitignore\n  keep.log\n.gitignore\n.ignore\nkeep.py"


async def test_ignore_files_of_the_folders_above_hold_up_to_the_repository(workspace: Path) -> None:
    grow(
        workspace,
        "repo/.git/info/exclude",
        "repo/src/a.py",
        "repo/src/a.tmp",
        "repo/src/a.pyc",
        "repo/src/a.log",
    )
    (workspace / ".gitignore").write_text("*.py\n")
    (workspace / "repo" / ".gitignore").write_text("*.pyc\n")
    (workspace / "repo" / ".git" / "info" / "exclude").write_text("*.tmp\n")
    assert await listing(workspace, "repo/src") == "repo/src/\na.log\na.py"


async def test_an_ignored_folder_is_listed_when_it_is_asked_for(workspace: Path) -> None:
    grow(workspace, "node_modules/lib/index.js")
    (workspace / ".gitignore").write_text("node_modules/\n")
    assert await listing(workspace, "node_modules") == "node_modules/\nlib/\n  index.js"


async def test_a_broken_pattern_in_an_ignore_file_spoils_only_itself(workspace: Path) -> None:
    grow(workspace, "a.log", "b.py")
    (workspace / ".gitignore").write_bytes(b"!\n\xff\xfe\n*.log\n")
    assert await listing(workspace) == "./\n.gitignore\nb.py"


async def test_links_are_shown_with_their_target_and_not_followed(workspace: Path) -> None:
    grow(workspace, "real/a")
    (workspace / "link").symlink_to("real")
    (workspace / "loop").symlink_to(".")
    assert await listing(workspace) == "./\nreal/\n  a\nlink -> real\nloop -> ."


async def test_folders_that_do_not_fit_are_counted(workspace: Path) -> None:
    grow(workspace, *(f"many/{n:03}" for n in range(500)), "few/a")
    outcome = await call(LsTool(), lend(workspace))
    assert outcome.text == (
        "./\nfew/\n  a\nmany/ (500 entries)\n[500 entries left out: ls a folder to see what is in it]"
    )
    assert isinstance(outcome.display, FileList) and outcome.display.total == 503


async def test_a_folder_with_too_much_in_it_is_cut(workspace: Path) -> None:
    grow(workspace, *(f"{n:03}" for n in range(500)))
    text = await listing(workspace)
    assert text.endswith("399\n[100 entries left out: ls a folder to see what is in it]")


async def test_an_empty_folder_says_so(workspace: Path) -> None:
    assert "is empty" in await listing(workspace)


async def test_names_that_are_not_utf_8_can_be_stored(workspace: Path) -> None:
    try:
        (workspace / "caf\udce9").touch()
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    assert await listing(workspace) == "./\ncaf\ufffd"


async def test_files_and_missing_folders_are_refused_with_a_way_out(workspace: Path) -> None:
    grow(workspace, "source/", "a.py")
    assert await refused(LsTool(), lend(workspace), path="a.py") == "a.py is a file: use view."
    assert "Nearest: source." in await refused(LsTool(), lend(workspace), path="sorce")


def test_ls_accesses_the_listed_folder(workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc")
    etc = str(Path("/etc").resolve())
    assert LsTool().accesses(LsTool.args("link"), lend(workspace)) == (Access("ls", "path", etc),)
    assert LsTool().accesses(LsTool.args(), lend(workspace))[0].value == str(workspace.resolve())
