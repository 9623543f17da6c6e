"""What a real path names is opened, and nothing else."""

import errno
import os
import stat
from pathlib import Path

import pytest

from crushpy.security.safe_open import NotRegular, make_folders, open_folder, open_regular


@pytest.fixture
def place(tmp_path: Path) -> Path:
    real = Path(os.path.realpath(tmp_path))
    (real / "a" / "b").mkdir(parents=True)
    (real / "a" / "b" / "file").write_text("content")
    (real / "link").symlink_to("a")
    (real / "a" / "b" / "file-link").symlink_to("file")
    return real


def content(path: Path) -> bytes:
    handle = open_regular(path)
    try:
        return os.read(handle, 100)
    finally:
        os.close(handle)


def test_a_real_path_is_opened(place: Path) -> None:
    assert content(place / "a" / "b" / "file") == b"content"
    with open_folder(place / "a") as folder, folder.entries() as entries:
        assert [entry.name for entry in entries] == ["b"]
    with open_folder(Path("/")) as root:
        assert os.path.samestat(os.fstat(root.handle), Path("/").stat())


@pytest.mark.parametrize("path", ["link/b/file", "a/b/file-link", "link"])
def test_a_link_on_the_way_or_at_its_end_is_not_followed(place: Path, path: str) -> None:
    with pytest.raises(OSError) as error:
        content(place / path) if path != "link" else open_folder(place / path)
    assert error.value.errno == errno.ELOOP


@pytest.mark.parametrize("spelled", ["/proc/self/root", "/proc/self/cwd"])
def test_proc_links_are_not_followed(place: Path, spelled: str) -> None:
    with pytest.raises(OSError) as error:
        open_folder(Path(f"{spelled}/tmp"))
    assert error.value.errno == errno.ELOOP


def test_a_file_where_a_folder_should_be_is_told_from_a_link(place: Path) -> None:
    with pytest.raises(NotADirectoryError):
        open_folder(place / "a" / "b" / "file")
    with pytest.raises(NotADirectoryError):
        content(place / "a" / "b" / "file" / "deeper")
    with pytest.raises(FileNotFoundError):
        content(place / "a" / "gone" / "file")


def test_pipes_and_folders_are_not_opened_as_files(place: Path) -> None:
    os.mkfifo(place / "pipe")
    for path, kind in (
        (place / "pipe", stat.S_IFIFO),
        (place / "a", stat.S_IFDIR),
        (Path("/"), stat.S_IFDIR),
    ):
        with pytest.raises(NotRegular) as error:
            open_regular(path)
        assert stat.S_IFMT(error.value.mode) == kind


@pytest.mark.parametrize("path", ["relative/path", "/tmp/../etc"])
def test_opening_an_unresolved_path_is_an_error(path: str) -> None:
    with pytest.raises(ValueError):
        open_folder(Path(path))


@pytest.mark.parametrize("name", ["", ".", "..", "b/file", "/etc"])
def test_folder_handle_accepts_only_single_names(place: Path, name: str) -> None:
    with open_folder(place / "a") as folder:
        for attempt in (
            lambda: folder.open(name, os.O_RDONLY),
            lambda: folder.status(name),
            lambda: folder.remove(name),
            lambda: folder.descend([name]),
            lambda: folder.move("b", folder, name, replace=True),
            lambda: folder.move("b", folder, name, replace=False),
        ):
            with pytest.raises(ValueError):
                attempt()


def test_a_folder_stays_itself_when_its_path_leads_elsewhere(place: Path) -> None:
    (place / "elsewhere").mkdir()
    with open_folder(place / "a" / "b") as folder:
        (place / "a").rename(place / "moved")
        (place / "a").symlink_to("elsewhere")
        os.close(folder.write_new("new", b"x", 0o600))
        with pytest.raises(FileExistsError):
            folder.write_new("new", b"x", 0o600)
        folder.move("new", folder, "newer", replace=True)
        with pytest.raises(OSError) as error:
            folder.descend(["file-link"])
        assert error.value.errno == errno.ELOOP
    assert sorted(os.listdir(place / "moved" / "b")) == ["file", "file-link", "newer"]
    assert os.listdir(place / "elsewhere") == []


def test_a_moved_file_replaces_another_only_if_that_is_asked_for(place: Path) -> None:
    with open_folder(place / "a") as above, above.descend(["b"]) as folder:
        os.close(folder.write_new("new", b"new", 0o600))
        with pytest.raises(FileExistsError):
            folder.move("new", folder, "file", replace=False)
        folder.move("new", above, "moved", replace=False)
        assert sorted(os.listdir(place / "a")) == ["b", "moved"]
        above.move("moved", folder, "file", replace=True)
    assert content(place / "a" / "b" / "file") == b"new"
    assert sorted(os.listdir(place / "a" / "b")) == ["file", "file-link"]


def test_missing_folders_are_made_and_named(place: Path) -> None:
    folder, made = make_folders(place / "a" / "x" / "y")
    with folder:
        assert folder.path == place / "a" / "x" / "y"
        assert made == [place / "a" / "x" / "y", place / "a" / "x"]
    folder, made = make_folders(place / "a" / "x")
    folder.close()
    assert made == []
    with pytest.raises(OSError) as error:
        make_folders(place / "link" / "new")
    assert error.value.errno == errno.ELOOP
    assert sorted(os.listdir(place / "a")) == ["b", "x"]


def test_handles_are_closed(place: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in ("a/b/file", "link/b/file", "gone/file", "a", "a/b/file/x"):
        try:
            content(place / path)
        except OSError:
            pass
    make_folders(place / "n1" / "n2")[0].close()
    with pytest.raises(OSError):
        make_folders(place / "a" / "b" / "file" / "n")
    assert len(os.listdir("/dev/fd")) == before
