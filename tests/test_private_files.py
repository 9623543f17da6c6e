"""What crushpy keeps for its user is replaced whole or not at all, and only its owner can read it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crushpy.security.private_files import locked, write_private


def test_a_file_is_made_with_its_folder_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.toml"
    before = os.umask(0)
    try:
        write_private(file, b"one")
    finally:
        os.umask(before)
    assert file.read_bytes() == b"one"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_file_that_others_could_read_becomes_private_and_a_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "b.toml"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o644)
    link = tmp_path / "b.toml"
    link.symlink_to(real)
    write_private(link, b"new")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode & 0o777) == (b"new", 0o600)


def test_a_write_that_fails_leaves_what_was_there_and_no_litter(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "b.toml"
    folder.mkdir(parents=True)
    (folder / "kept").write_text("kept")
    with pytest.raises(IsADirectoryError):
        write_private(folder, b"new")
    assert [path.name for path in folder.parent.iterdir()] == ["b.toml"]
    assert (folder / "kept").read_text() == "kept"


HOLDER = """
import sys
from pathlib import Path
from crushpy.security.private_files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "mine" / ".lock"
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), locked(file, 0):
            pass
        holder.kill()  # it cannot tidy up
        holder.wait()
        with locked(file, 0):
            assert file.stat().st_mode & 0o777 == 0o600
    with locked(file, 0):
        pass


def test_a_lock_that_cannot_be_made_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError), locked(tmp_path / "file" / ".lock"):
        pass
