"""What the model knows of files."""

from pathlib import Path

from crushpy.tools.files.file_memory import FileMemory


def test_a_file_is_one_file_by_whichever_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    memory = FileMemory()
    memory.remember(tmp_path / "link", b"x")
    assert memory.state(tmp_path / "a", b"x") == "unchanged"
    assert memory.state(tmp_path / "sub" / ".." / "a", b"y") == "changed"
    assert memory.state(tmp_path / "b", b"x") == "unread"


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
