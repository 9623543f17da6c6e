"""Writing whole or not at all: links, modes, owners, full disks, and what comes in between."""

import asyncio
import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest
from filetools import call, knows, lend, names, refused

from crushpy.tools.base import CallContext
from crushpy.tools.edit import EditTool
from crushpy.tools.errors import ToolError
from crushpy.tools.files.file_change import FileChange, make_change
from crushpy.tools.files.locate import NamedPath
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.tools.write import WriteTool

_HELPERS = str(Path(__file__).parent)


@pytest.fixture
def context(workspace: Path) -> CallContext:
    return lend(workspace)


def known(context: CallContext, name: str = "a", content: str = "one\n") -> Path:
    file = context.workspace.cwd / name
    file.write_text(content)
    knows(context, file)
    return file


async def replace_passage(context: CallContext, path: str = "a") -> str:
    return (await call(EditTool(), context, file_path=path, old_string="one", new_string="two")).text


# --- what is kept ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o664, 0o4711])
async def test_the_mode_is_kept(context: CallContext, mode: int) -> None:
    file = known(context)
    file.chmod(mode)
    await replace_passage(context)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two\n", mode)


async def test_a_new_file_has_the_mode_that_the_user_chose(context: CallContext) -> None:
    before = os.umask(0o027)
    try:
        await call(WriteTool(), context, file_path="new", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((context.workspace.cwd / "new").stat().st_mode) == 0o640


async def test_a_link_stays_a_link_and_its_file_is_changed(context: CallContext) -> None:
    (context.workspace.cwd / "real").mkdir()
    file = known(context, "real/a")
    (context.workspace.cwd / "link").symlink_to("real/a")
    await replace_passage(context, "link")
    assert (context.workspace.cwd / "link").is_symlink()
    assert file.read_text() == "two\n" and not file.is_symlink()
    assert names(context.workspace.cwd) == ["link", "real"] and names(context.workspace.cwd / "real") == ["a"]


async def test_a_link_to_nothing_stays_and_its_file_is_made(context: CallContext) -> None:
    (context.workspace.cwd / "link").symlink_to("made/later")
    await call(WriteTool(), context, file_path="link", content="x\n")
    assert (context.workspace.cwd / "link").is_symlink()
    assert (context.workspace.cwd / "made" / "later").read_text() == "x\n"


async def test_hard_links_keep_the_old_content_with_a_note(context: CallContext) -> None:
    file = known(context)
    (context.workspace.cwd / "b").hardlink_to(file)
    text = await replace_passage(context)
    assert "Note: 1 other hard links to it keep the old content." in text
    assert (file.read_text(), (context.workspace.cwd / "b").read_text()) == ("two\n", "one\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_the_owner_is_kept(context: CallContext) -> None:
    file = known(context)
    os.chown(file, 12345, 23456)
    await replace_passage(context)
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


async def test_extended_attributes_are_kept(context: CallContext) -> None:
    file = known(context)
    try:
        os.setxattr(file, "user.crushpy", b"label")
    except (OSError, AttributeError):
        pytest.skip("this file system has no extended attributes")
    await replace_passage(context)
    assert os.getxattr(file, "user.crushpy") == b"label"


async def test_atomic_write_leaves_no_temporary_file(context: CallContext) -> None:
    known(context)
    await replace_passage(context)
    await call(WriteTool(), context, file_path="b", content="x")
    assert names(context.workspace.cwd) == ["a", "b"]


# --- what is refused ---------------------------------------------------------------------------------------


async def test_a_read_only_file_is_not_replaced(context: CallContext) -> None:
    file = known(context)
    file.chmod(0o444)
    error = await refused(EditTool(), context, file_path="a", old_string="one", new_string="two")
    assert error.startswith("a is read-only")
    assert (file.read_text(), names(context.workspace.cwd)) == ("one\n", ["a"])


def place_of(file: Path) -> NamedPath:
    return NamedPath(file, file, file.name)


def test_a_file_changed_at_the_last_moment_is_not_overwritten(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(b"someone else's")
    with pytest.raises(ToolError, match="changed by another program just now"):
        WorkspaceFiles().write(place_of(file), b"ours", b"what we read")
    assert (file.read_bytes(), names(workspace)) == (b"someone else's", ["a"])


def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(b"someone else's")
    with pytest.raises(ToolError, match="was created meanwhile"):
        WorkspaceFiles().write(place_of(file), b"ours", None)
    assert (file.read_bytes(), names(workspace)) == (b"someone else's", ["a"])


def test_a_file_that_disappears_at_the_last_moment_is_not_made_again(workspace: Path) -> None:
    with pytest.raises(ToolError, match="it no longer exists"):
        WorkspaceFiles().write(place_of(workspace / "a"), b"ours", b"what we read")
    assert names(workspace) == []


def in_a_process(code: str, cwd: Path) -> str:
    """What `code` prints in a process of its own, which may limit itself."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([_HELPERS, str(Path(__file__).parents[2])])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_WRITE_MUCH = """
    import asyncio
    from pathlib import Path
    from filetools import knows, lend, names, refused
    from crushpy.tools.write import WriteTool

    async def main():
        context = lend(Path.cwd())
        knows(context, Path("a"))
        print(await refused(WriteTool(), context, file_path="a", content="x" * 1_000_000))
        print(await refused(WriteTool(), context, file_path="new/b", content="x" * 1_000_000))
        print(Path("a").read_text() == "one\\n", names(Path.cwd()))

    asyncio.run(main())
"""


def test_a_full_disk_leaves_the_old_content_and_no_rubbish(workspace: Path) -> None:
    (workspace / "a").write_text("one\n")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    existing, new, rest = in_a_process(limit + textwrap.dedent(_WRITE_MUCH), workspace).splitlines()
    assert existing.startswith("a was not written: there is no space left") and "unchanged" in existing
    assert new.startswith("new/b was not written: there is no space left")
    assert rest == "True ['a']"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_a_really_full_disk_leaves_the_old_content_and_no_rubbish(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    try:
        (disk / "a").write_text("one\n")
        existing, new, rest = in_a_process(_WRITE_MUCH, disk).splitlines()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    assert "a was not written: there is no space left" in existing
    assert "new/b was not written: there is no space left" in new
    assert rest == "True ['a']"


_WRITE_AS_SOMEBODY = """
    import asyncio, os
    from pathlib import Path
    from filetools import knows, lend, names, refused
    from crushpy.tools.edit import EditTool
    from crushpy.tools.write import WriteTool

    async def edit(context, new):
        print(await refused(EditTool(), context, file_path="a", old_string="one", new_string=new))

    async def main():
        context = lend(Path.cwd())
        knows(context, Path("a"))
        await edit(context, "one")  # Everything is imported now.
        if os.geteuid() == 0:  # Root may write anywhere.
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        await edit(context, "two")
        print(await refused(WriteTool(), context, file_path="b", content="x"))
        print(Path("a").read_text() == "one\\n", names(Path.cwd()))

    asyncio.run(main())
"""


def test_a_read_only_folder_is_refused_with_its_name() -> None:
    # Not in tmp_path, which only its owner can reach.
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        folder = Path(outer) / "locked"
        folder.mkdir()
        (folder / "a").write_text("one\n")
        (folder / "a").chmod(0o666)
        folder.chmod(0o555)
        try:
            _, edited, written, rest = in_a_process(_WRITE_AS_SOMEBODY, folder).splitlines()
        finally:
            folder.chmod(0o755)
    assert edited.startswith(f"a was not written: no permission to write in {folder} (permission denied)")
    assert written.startswith(f"b was not written: no permission to write in {folder} (permission denied)")
    assert rest == "True ['a']"


# --- interrupted -------------------------------------------------------------------------------------------


async def test_a_second_cancellation_waits_for_the_write_too(context: CallContext) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def plan() -> FileChange:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return FileChange(context.open_text("new", may_be_new=True), "whole\n")

    writing = asyncio.create_task(make_change(context, plan))
    await begun.wait()
    for _ in range(2):
        writing.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not writing.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert (context.workspace.cwd / "new").read_text() == "whole\n"


@pytest.mark.slow
async def test_a_cancelled_write_is_whole_or_not_there_and_over_when_we_hear_of_it(
    context: CallContext,
) -> None:
    new = "two\n" * 1_000_000
    file = known(context)
    for pauses in range(4):
        file.write_text("one\n")
        knows(context, file)
        writing = asyncio.create_task(call(WriteTool(), context, file_path="a", content=new))
        for _ in range(pauses):
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert names(context.workspace.cwd) == ["a"]
        assert file.read_text() in ("one\n", new)
        assert context.agent.memory.state(file, file.read_bytes()) == "unchanged"
