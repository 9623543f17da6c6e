"""What the model knows of files."""

from pathlib import Path

import pytest
from filetools import lend

from crushpy.tools.edit import EditTool
from crushpy.tools.errors import ToolError
from crushpy.tools.files.workspace_files import FileMemory
from crushpy.tools.view import ViewTool


async def test_a_file_is_one_file_by_whichever_path(workspace: Path) -> None:
    context = lend(workspace)
    (context.workspace.cwd / "a").write_bytes(b"one\n")
    (context.workspace.cwd / "link").symlink_to("a")
    await ViewTool().run(ViewTool.args("link"), context)
    await EditTool().run(EditTool.args("sub/../a", "one", "two"), context)
    assert (context.workspace.cwd / "a").read_bytes() == b"two\n"
    (context.workspace.cwd / "a").write_bytes(b"three\n")
    with pytest.raises(ToolError, match="has changed since it was read"):
        await EditTool().run(EditTool.args("link", "three", "four"), context)


def test_the_latest_content_counts(tmp_path: Path) -> None:
    memory = FileMemory()
    memory.remember(tmp_path / "a", b"old")
    memory.remember(tmp_path / "a", b"new")
    assert memory.state(tmp_path / "a", b"old") == "changed"
    assert memory.state(tmp_path / "a", b"new") == "unchanged"


def test_a_name_that_is_not_unicode_is_remembered(tmp_path: Path) -> None:
    memory = FileMemory()
    memory.remember(tmp_path / "caf\udce9", b"y")
    assert memory.state(tmp_path / "caf\udce9", b"y") == "unchanged"
    assert memory.state(tmp_path / "caf\udce8", b"y") == "unread"
