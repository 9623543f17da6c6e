"""`crushpy storage copy` with what is no database, or the same one: told in words, and nothing is touched."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.command import Cli
from support.stored import a_session, said

from crushpy.storage.store import Store

NO_DATABASE = b"\x89PNG not a database\n" * 500


@pytest.fixture
def file(home: Path) -> Path:
    """A database with one conversation."""

    async def write() -> None:
        store = Store(home / "crushpy.db")
        await store.sessions.create(a_session(), said("hello"))
        await store.close()

    asyncio.run(write())
    return home / "crushpy.db"


@pytest.mark.parametrize("place", ["FROM", "TO"])
def test_storage_copy_refuses_a_file_that_is_not_a_database(
    cli: Cli, file: Path, tmp_path: Path, place: str
) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(NO_DATABASE)
    picture.chmod(0o644)
    before = sorted(path.name for path in tmp_path.iterdir())
    both = (str(picture), str(file)) if place == "FROM" else (str(file), str(picture))
    done = cli("storage", "copy", *both)
    assert done.returncode == 1 and "file is not a database" in done.stderr, done.stderr
    assert "It was not changed." in done.stderr and "Traceback" not in done.stderr
    assert picture.read_bytes() == NO_DATABASE and picture.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_database_of_another_program_is_refused(cli: Cli, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE session (id TEXT)")
        connection.commit()
    before = other.read_bytes()
    for both in ((str(other), str(file)), (str(file), str(other))):
        done = cli("storage", "copy", *both)
        assert done.returncode and str(other) in done.stderr and "Traceback" not in done.stderr
        assert other.read_bytes() == before


def test_storage_copy_refuses_the_same_database_under_another_name(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)
    for name in (str(link), str(file.parent / ".." / file.parent.name / file.name), f"sqlite:///{file}"):
        done = cli("storage", "copy", str(file), name)
        assert done.returncode == 2 and "source and target are the same database" in done.stderr, done.stdout
