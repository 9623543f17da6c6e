"""Old databases are brought up to date, newer ones refused, foreign ones left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.conversations import continued
from support.stored import a_session, said

from crushpy.storage.records import StorageError
from crushpy.storage.sqlite import migrations
from crushpy.storage.store import Store

CONVERSATIONS = next(step for step in migrations.STEPS if "CREATE TABLE conversation" in step)


def ask(file: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def made(file: Path, text: str = "kept") -> str:
    """A database with one session in it."""
    store = Store(file)
    info = a_session()
    await store.sessions.create(info, said(text))
    await store.close()
    return info.id


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """All that a schema says: columns, keys and indexes of each table."""
    names = (row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    tables = [
        name for name in names if not name.startswith(("message_words", "message_parts"))
    ]  # no tables of SQLModel's
    found: dict[str, object] = {}
    for table in tables:
        indexes = set()
        for _, name, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})"):
            columns = tuple(row[2] for row in connection.execute(f"PRAGMA index_info({name})"))
            indexes.add((name if origin == "c" else origin, unique, partial, columns))
        found[table] = (
            connection.execute(f"PRAGMA table_info({table})").fetchall(),
            {row[2:] for row in connection.execute(f"PRAGMA foreign_key_list({table})")},
            indexes,
        )
    return found


async def test_the_steps_lead_to_the_tables_that_sqlmodel_knows(file: Path) -> None:
    from sqlalchemy import create_engine
    from sqlmodel import SQLModel

    import crushpy.storage.tables as _  # noqa: F401  (fills the metadata)

    await made(file)
    fresh = file.with_name("fresh.db")
    engine = create_engine(f"sqlite:///{fresh}")
    SQLModel.metadata.create_all(engine)
    engine.dispose()
    with closing(sqlite3.connect(file)) as ours, closing(sqlite3.connect(fresh)) as theirs:
        assert set(shape(ours)) == {
            "session",
            "message",
            "tool_run",
            "boundary",
            "task_result",
            "cut",
            "lease",
            "ledger",
            "import_record",
            "pin",
            "draft",
            "task_list",
            "listed_task",
            "conversation",
            "message_fact",
            "index_queue",
            "chore",
            "file_change",
            "audit",
            "audit_end",
            "mark",
            "system_prompt",
        }
        assert shape(ours) == shape(theirs)


async def test_each_step_is_preceded_by_a_backup(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await made(file)
    released = list(migrations.STEPS)
    later = ["CREATE TABLE one (x)", "CREATE TABLE two (x); INSERT INTO two VALUES (1)"]
    monkeypatch.setattr(migrations, "STEPS", released + later)
    version = len(released)

    store = Store(file)
    assert [message.text for message in await store.messages.load(session)] == ["kept"]
    await store.close()

    assert ask(file, "PRAGMA user_version") == [(version + 2,)]
    assert ask(file, "SELECT x FROM two") == [(1,)]
    first, second = (file.with_name(f"crushpy.db.bak-{number}") for number in (version, version + 1))
    assert ask(first, "PRAGMA user_version") == [(version,)]
    assert ask(second, "PRAGMA user_version") == [(version + 1,)]
    for backup in (first, second):
        assert ask(backup, "SELECT id FROM session") == [(session,)]
        assert backup.stat().st_mode & 0o077 == 0
    assert ask(second, "SELECT count(*) FROM sqlite_master WHERE name IN ('one', 'two')") == [(1,)]


async def test_an_earlier_backup_is_not_overwritten(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(file)
    version = len(migrations.STEPS)
    earlier = file.with_name(f"crushpy.db.bak-{version}")
    earlier.write_text("precious")
    monkeypatch.setattr(migrations, "STEPS", [*migrations.STEPS, "CREATE TABLE one (x)"])
    await made(file)
    assert earlier.read_text() == "precious"
    assert len(list(file.parent.glob(f"crushpy.db.bak-{version}*"))) == 2


async def test_a_new_database_needs_no_backup(file: Path) -> None:
    await made(file)
    assert [path.name for path in file.parent.iterdir()] == ["crushpy.db"]


async def test_a_step_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await made(file)
    released = list(migrations.STEPS)
    monkeypatch.setattr(
        migrations, "STEPS", [*released, "CREATE TABLE one (x); INSERT INTO nowhere VALUES (1)"]
    )
    store = Store(file)
    with pytest.raises(StorageError, match="no such table: nowhere"):
        await store.sessions.list_tips()
    await store.close()
    assert ask(file, "PRAGMA user_version") == [(len(released),)]
    assert ask(file, "SELECT count(*) FROM sqlite_master WHERE name = 'one'") == [(0,)]
    monkeypatch.setattr(migrations, "STEPS", released)
    store = Store(file)
    assert len(await store.messages.load(session)) == 1
    await store.close()


async def test_a_newer_database_is_refused_and_left_as_it_is(file: Path) -> None:
    await made(file)
    change(file, "PRAGMA user_version = 77")
    before = file.read_bytes()
    store = Store(file)
    with pytest.raises(StorageError) as caught:
        await store.sessions.create(a_session())
    await store.close()
    known = len(migrations.STEPS)
    assert f"{file} has version 77, but this crushpy knows versions up to {known}" in caught.value.message
    assert "update this one" in caught.value.hint
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["crushpy.db"]


@pytest.mark.parametrize("version", [0, 1, 99])
async def test_another_programs_database_is_refused_and_left_as_it_is(file: Path, version: int) -> None:
    file.parent.mkdir()
    change(file, "CREATE TABLE recipes (name)", f"PRAGMA user_version = {version}")
    before = file.read_bytes()
    store = Store(file)
    with pytest.raises(StorageError, match="belongs to another program"):
        await store.sessions.list_tips()
    await store.close()
    assert file.read_bytes() == before


async def test_the_rows_of_old_conversations_are_made_as_new_ones_are(file: Path) -> None:
    store = Store(file)
    for number in range(3):
        root = a_session(f"/work/{number}")
        await store.sessions.create(root, said())
        tip = await continued(store, root, "Go on.", "yes")
        if number:
            await store.sessions.create(
                a_session(root_id=root.id, parent_id=tip.id, kind="task"), said("task")
            )
            await store.sessions.rename_conversation(root.id, f"title {number}")
        if number == 2:
            await store.sessions.update(tip.id, end_reason="auto")
    rows = await store.sessions.list_conversations()
    open_ones = [await store.sessions.find_latest(f"/work/{number}") for number in range(3)]
    await store.close()
    change(file, "DROP TABLE conversation", *CONVERSATIONS.split(";"))
    store = Store(file)
    assert await store.sessions.list_conversations() == rows
    assert [await store.sessions.find_latest(f"/work/{number}") for number in range(3)] == open_ones
    await store.close()
