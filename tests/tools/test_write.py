"""Setting a file's whole content."""

from pathlib import Path

import pytest
from filetools import PNG, call, knows, lend, names, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crushpy.core.access import Access
from crushpy.core.messages import Diff
from crushpy.tools.base import CallContext
from crushpy.tools.edit import EditTool
from crushpy.tools.write import WriteTool


@pytest.fixture
def context(workspace: Path) -> CallContext:
    return lend(workspace)


async def test_a_new_file_is_made_with_the_folders_it_needs(context: CallContext) -> None:
    outcome = await call(WriteTool(), context, file_path="src/deep/a.py", content="x = 1\ny = 2")
    assert (context.workspace.cwd / "src/deep/a.py").read_bytes() == b"x = 1\ny = 2"
    assert outcome.text == "Created src/deep/a.py (+2 -0)."
    assert outcome.display == Diff(
        "src/deep/a.py",
        "--- /dev/null\n+++ src/deep/a.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n\\ No newline at end of file",
        added=2,
        created=True,
    )
    assert names(context.workspace.cwd / "src/deep") == ["a.py"]


async def test_a_written_file_can_be_edited_without_a_view(context: CallContext) -> None:
    await call(WriteTool(), context, file_path="a", content="one\n")
    await call(EditTool(), context, file_path="a", old_string="one", new_string="two")
    assert (context.workspace.cwd / "a").read_text() == "two\n"


async def test_an_existing_file_must_have_been_read(context: CallContext) -> None:
    file = context.workspace.cwd / "a"
    file.write_text("precious\n")
    assert "view it first" in await refused(WriteTool(), context, file_path="a", content="new\n")
    knows(context, file)
    file.write_text("more precious\n")
    assert "view it again" in await refused(WriteTool(), context, file_path="a", content="new\n")
    assert file.read_text() == "more precious\n"
    knows(context, file)
    outcome = await call(WriteTool(), context, file_path="a", content="new\n")
    assert (file.read_text(), outcome.text) == ("new\n", "Wrote a (+1 -1).")


async def test_the_same_content_is_not_written_again(context: CallContext) -> None:
    file = context.workspace.cwd / "a"
    file.write_bytes(b"one\r\n")
    before = file.stat()
    outcome = await call(WriteTool(), context, file_path="a", content="one\n")
    after = file.stat()
    assert outcome.text == "a already has exactly this content: nothing was written."
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert outcome.display is None and not outcome.is_error


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n"),
        (b"a\rb\r", "c\nd\n", b"c\rd\r"),
        (b"a\r\nb\r\n", "c\r\nd\n", b"c\r\nd\n"),
        (b"\xef\xbb\xbfa\n", "c\n", b"\xef\xbb\xbfc\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffc\n", b"\xef\xbb\xbfc\n"),
        ("né\n".encode("utf-16"), "ü\n", "ü\n".encode("utf-16")),
        (b"caf\xe9\n", "th\xe9\n", b"th\xe9\n"),
        (b"", "c\n", b"c\n"),
        (b"a\n", "", b""),
    ],
)
async def test_the_form_of_the_old_content_is_kept(
    context: CallContext, before: bytes, content: str, after: bytes
) -> None:
    file = context.workspace.cwd / "a"
    file.write_bytes(before)
    knows(context, file)
    await call(WriteTool(), context, file_path="a", content=content)
    assert file.read_bytes() == after


async def test_mixed_line_endings_become_alike_and_that_is_said(context: CallContext) -> None:
    file = context.workspace.cwd / "a"
    file.write_bytes(b"a\r\nb\r\nc\n")
    knows(context, file)
    outcome = await call(WriteTool(), context, file_path="a", content="x\ny\n")
    assert file.read_bytes() == b"x\r\ny\r\n"
    assert "Note: line endings were mixed and are now uniform." in outcome.text


async def test_write_refuses_what_the_encoding_cannot_hold(context: CallContext) -> None:
    file = context.workspace.cwd / "a"
    file.write_bytes(b"caf\xe9\n")
    knows(context, file)
    assert "U+4E2D" in await refused(WriteTool(), context, file_path="a", content="中\n")
    assert "U+D800" in await refused(WriteTool(), context, file_path="b", content="\ud800")
    assert (names(context.workspace.cwd), file.read_bytes()) == (["a"], b"caf\xe9\n")


async def test_bytes_that_would_be_lost_are_not_overwritten(context: CallContext) -> None:
    file = context.workspace.cwd / "a"
    file.write_bytes("äöü".encode() + b"\xff\n")
    knows(context, file)
    assert "would be lost" in await refused(WriteTool(), context, file_path="a", content="new\n")
    assert file.read_bytes() == "äöü".encode() + b"\xff\n"


async def test_a_binary_file_is_not_overwritten(context: CallContext) -> None:
    file = context.workspace.cwd / "a.png"
    file.write_bytes(PNG)
    knows(context, file)
    assert "binary" in await refused(WriteTool(), context, file_path="a.png", content="text")
    assert file.read_bytes() == PNG


async def test_a_folder_and_a_path_through_a_file_are_refused(context: CallContext) -> None:
    (context.workspace.cwd / "dir").mkdir()
    (context.workspace.cwd / "file").touch()
    assert "dir is a folder" in await refused(WriteTool(), context, file_path="dir", content="x")
    assert "not a folder" in await refused(WriteTool(), context, file_path="file/x/y", content="x")
    assert names(context.workspace.cwd) == ["dir", "file"]


async def test_the_preview_is_the_diff_that_will_happen_and_changes_nothing(context: CallContext) -> None:
    args = WriteTool.args("sub/a", "one\n")
    preview = await WriteTool().preview(args, context)
    assert names(context.workspace.cwd) == []
    assert (await WriteTool().run(args, context)).display == preview
    again = lend(context.workspace.cwd)
    assert await WriteTool().preview(args, again) is None
    assert again.agent.memory.state(context.workspace.cwd / "sub" / "a", b"one\n") == "unread"


def test_write_accesses_the_real_file(context: CallContext) -> None:
    (context.workspace.cwd / "link").symlink_to("/somewhere/else")
    accesses = WriteTool().accesses(WriteTool.args("link/new", "x"), context)
    assert accesses == (Access("write", "path", "/somewhere/else/new", writes=True),)


_every = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_every
@given(st.text(max_size=60))
async def test_write_stores_the_given_text(workspace: Path, content: str) -> None:
    context = lend(workspace)
    (workspace / "a").unlink(missing_ok=True)
    await call(WriteTool(), context, file_path="a", content=content)
    assert (workspace / "a").read_bytes() == content.encode()
