"""Which projects are trusted, and what no mistake can make trusted."""

import json
import os
import stat
from pathlib import Path

import pytest

from crushpy.core.errors import SettingsError, UsageError
from crushpy.core.paths import Paths
from crushpy.permissions.trust import add_trusted, is_trusted, remove_trusted, trusted


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths(str(home))


def test_a_project_is_trusted_until_it_is_not(paths: Paths, workspace: Path) -> None:
    assert not is_trusted(paths, workspace)
    add_trusted(paths, workspace)
    assert is_trusted(paths, workspace)
    assert trusted(paths) == [workspace]
    assert remove_trusted(paths, workspace)
    assert not remove_trusted(paths, workspace)
    assert trusted(paths) == []


def test_trust_holds_for_this_folder_only(paths: Paths, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    add_trusted(paths, workspace)
    assert not is_trusted(paths, workspace / "sub")
    assert not is_trusted(paths, workspace.parent)


def test_trust_follows_links_to_the_real_folder(paths: Paths, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace)
    add_trusted(paths, tmp_path / "link")
    assert trusted(paths) == [workspace]
    assert is_trusted(paths, workspace)
    (tmp_path / "link").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert not is_trusted(paths, tmp_path / "link")


def test_the_disk_the_home_folder_and_what_holds_it_are_refused(paths: Paths) -> None:
    for folder in (Path("/"), Path.home(), Path.home().parent):
        with pytest.raises(UsageError, match="more than one project"):
            add_trusted(paths, folder)
    assert trusted(paths) == []


def test_trust_refuses_what_is_not_a_folder(paths: Paths, workspace: Path) -> None:
    (workspace / "file").touch()
    for path in (workspace / "file", workspace / "missing"):
        with pytest.raises(UsageError, match="not a folder"):
            add_trusted(paths, path)


def test_the_list_is_private_and_replaced_in_one_step(paths: Paths, workspace: Path) -> None:
    add_trusted(paths, workspace)
    file = paths.consents
    before = file.stat().st_ino
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    (workspace / "sub").mkdir()
    add_trusted(paths, workspace / "sub")
    assert file.stat().st_ino != before
    assert sorted(os.listdir(file.parent)) == ["consents.json", "consents.lock"]
    stored = [each["where"] for each in json.loads(file.read_text())]
    assert stored == [str(workspace), str(workspace / "sub")]


@pytest.mark.parametrize("text", ["", "{", "{}", "null", "[3]", '[{"kind": "project"}]', "\xff"])
def test_a_broken_list_trusts_nothing_and_is_not_overwritten(
    text: str, paths: Paths, workspace: Path
) -> None:
    add_trusted(paths, workspace)
    paths.consents.write_bytes(text.encode("latin-1"))
    assert not is_trusted(paths, workspace)
    for use in (
        lambda: trusted(paths),
        lambda: add_trusted(paths, workspace),
        lambda: remove_trusted(paths, workspace),
    ):
        with pytest.raises(SettingsError, match=str(paths.consents)):
            use()
    assert paths.consents.read_bytes() == text.encode("latin-1")
