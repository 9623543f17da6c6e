"""Broken files, full disks and folders that cannot be used: said plainly, nothing lost."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.stored import a_session, said

from crushpy.storage.records import DatabaseLost, StorageError
from crushpy.storage.store import Store


async def filled(file: Path) -> str:
    """A database of some pages; the id of its only session."""
    store = Store(file)
    info = a_session()
    await store.sessions.create(info, said("x" * 50_000))
    await store.close()
    return info.id


def only_aside(file: Path) -> Path:
    (aside,) = (path for path in file.parent.glob("crushpy.db.corrupt-*") if path.suffix != ".lock")
    return aside


async def test_a_file_that_is_no_database_is_set_aside_and_a_new_one_made(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"this is not a database at all, " * 500)
    before = file.read_bytes()
    store = Store(file)
    info = a_session()
    await store.sessions.create(info, said())
    assert len(await store.messages.load(info.id)) == 1
    aside = only_aside(file)
    assert aside.read_bytes() == before
    (warning,) = store.warnings
    assert str(file) in warning
    assert aside.name in warning
    await store.close()

    again = Store(file)
    assert len(await again.sessions.list_tips()) == 1
    assert again.warnings == []
    await again.close()


async def test_a_damaged_schema_is_set_aside_with_its_side_files(file: Path) -> None:
    await filled(file)
    content = bytearray(file.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)
    file.write_bytes(content)
    wal = file.with_name("crushpy.db-wal")
    wal.write_bytes(b"left over")
    store = Store(file)
    assert len(await store.sessions.list_tips()) == 1
    aside = next(path for path in file.parent.glob("crushpy.db.corrupt-*") if not path.name.endswith("-wal"))
    assert aside.read_bytes() == bytes(content)
    assert len(store.warnings) == 1
    await store.close()


def damage(file: Path, table: str) -> bytes:
    """Overwrites the first page of a table; the whole content after that."""
    with closing(sqlite3.connect(file)) as connection:
        statement = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(statement, (table,)).fetchone()
    content = bytearray(file.read_bytes())
    content[root * 4096 - 4096 : root * 4096] = b"\xff" * 4096
    file.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("table", ["message", "session", "boundary"])
async def test_a_file_damaged_deep_inside_is_set_aside_too(file: Path, table: str) -> None:
    await filled(file)
    content = damage(file, table)
    store = Store(file)
    assert len(await store.sessions.list_tips()) == (table != "message")
    assert only_aside(file).read_bytes() == content
    (warning,) = store.warnings
    assert only_aside(file).name in warning
    await store.close()


async def test_a_file_cut_short_is_set_aside(file: Path) -> None:
    await filled(file)
    file.write_bytes(file.read_bytes()[: 4096 * 5 + 7])
    store = Store(file)
    assert await store.sessions.list_tips() == []
    assert only_aside(file).exists()
    await store.close()


async def test_damage_met_while_it_is_open_is_an_error_and_the_next_start_sets_the_file_aside(
    file: Path,
) -> None:
    session = await filled(file)
    store = Store(file)
    await store.sessions.list_tips()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(file, "message")
    with pytest.raises(StorageError) as caught:
        await store.messages.load(session)
    assert f"{file}: database disk image is malformed" in caught.value.message
    assert "what can be read" in caught.value.hint
    assert await store.check() != []
    await store.close()
    assert not list(file.parent.glob("crushpy.db.corrupt-*"))
    again = Store(file)
    assert await again.sessions.list_tips() == []
    assert only_aside(file).exists()
    await again.close()
    assert not file.with_name("crushpy.db.damaged").exists()


async def test_damage_done_during_a_write_is_not_taken_for_that_write(file: Path) -> None:
    await filled(file)
    store = Store(file)
    await store.sessions.list_tips()

    def write() -> None:
        with store.thread.database.transaction():
            damage(file, "message")

    await store.thread.run(write)
    with pytest.raises(DatabaseLost, match="was overwritten or damaged"):
        await store.verify()
    await store.close()


async def test_two_stores_that_meet_a_broken_file_set_it_aside_once(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"garbage" * 1000)
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from crushpy.storage.store import Store; from support.stored import a_session, said\n"
        "async def main():\n"
        "    store = Store(Path(sys.argv[1]))\n"
        "    await store.sessions.create(a_session(), said()); await store.close()\n"
        "asyncio.run(main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    workers = [subprocess.Popen([sys.executable, "-c", code, str(file)], env=environment) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert only_aside(file).read_bytes() == b"garbage" * 1000
    store = Store(file)
    assert len(await store.sessions.list_tips()) == 4
    await store.close()


async def test_an_empty_file_is_a_new_database(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    store = Store(file)
    assert await store.sessions.list_tips() == []
    assert store.warnings == []
    await store.close()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    store = Store(tmp_path / "taken" / "crushpy.db")
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            await store.sessions.list_tips()
        assert str(tmp_path / "taken" / "crushpy.db") in caught.value.message
        assert "CRUSHPY_HOME" in caught.value.hint
    (tmp_path / "taken").unlink()
    assert await store.sessions.list_tips() == []  # mended meanwhile
    await store.close()


async def test_a_folder_in_the_place_of_the_file_is_named(file: Path) -> None:
    file.mkdir(parents=True)
    store = Store(file)
    with pytest.raises(StorageError, match=f"cannot use the database {file}"):
        await store.sessions.list_tips()
    await store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
async def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    store = Store(folder / "crushpy.db")
    with pytest.raises(StorageError, match=str(folder)) as caught:
        await store.sessions.list_tips()
    assert "writable" in caught.value.hint or "permissions" in caught.value.hint
    await store.close()


FILL_THE_DISK = """
import asyncio, resource, sys
from pathlib import Path
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from support.stored import a_session, said

async def main():
    file = Path(sys.argv[1])
    store = Store(file)
    info = a_session()
    await store.sessions.create(info, said("first"))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this: to SQLite that is a disk which takes no more.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
    stored = 1
    try:
        while True:
            await store.messages.add(info.id, said("x" * 20_000))
            stored += 1
    except StorageError as error:
        print(error.message)
        print(error.hint)
    assert len(await store.messages.load(info.id)) == stored
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    await store.messages.add(info.id, said("after"))
    assert len(await store.messages.load(info.id)) == stored + 1
    assert await store.check() == []
    await store.close()
    print("survived")

asyncio.run(main())
"""


def test_a_disk_that_takes_no_more_is_an_error_and_nothing_stored_is_lost(file: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    message, hint, end = done.stdout.splitlines()
    assert message.startswith(f"cannot use the database {file}: ")
    assert "disk is full" in hint
    assert end == "survived"
    assert done.stderr == ""


async def test_a_write_that_waits_too_long_says_who_is_in_the_way(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(file)
    monkeypatch.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 0.05)
    store = Store(file)
    await store.sessions.list_tips()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(await store.sessions.list_tips()) == 1  # reading goes on
        with pytest.raises(StorageError) as caught:
            await store.sessions.create(a_session())
        assert "locked" in caught.value.message
        assert "Another program" in caught.value.hint
        monkeypatch.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 10_000.0)
        with pytest.raises(StorageError, match="locked"):  # soon: a turn that ends has more to store
            await store.sessions.create(a_session())
        other.execute("ROLLBACK")
    await store.sessions.create(a_session())
    await store.close()
