"""The schema comes from tables.py; old databases are upgraded or copied, newer and foreign ones refused."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, said

from crushpy.storage.generated import ddl
from crushpy.storage.records import AuditEntry, StorageError
from crushpy.storage.sqlite_file import APPLICATION_ID
from crushpy.storage.store import Store

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / "crushpy" / "storage" / "migrations"
VERSION = ddl.VERSION
REVISION = f'''
import os
from pathlib import Path
from alembic import op
import sqlalchemy as sa

revision = "{VERSION + 1}"
down_revision = "{VERSION}"

def upgrade() -> None:
    op.add_column("session", sa.Column("note", sa.Text()))
    op.execute("UPDATE session SET note = 'upgraded'")
'''
"""A revision as a contributor would write it."""


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
    """All that a schema says: columns, keys, indexes and triggers."""
    names = [
        row[0]
        for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not row[0].startswith("sqlite_")
    ]
    found: dict[str, object] = {
        "triggers": set(connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
    }
    for table in names:
        indexes = set()
        for _, name, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})"):
            columns = tuple(row[2] for row in connection.execute(f"PRAGMA index_info({name})"))
            indexes.add((name if origin == "c" else origin, unique, partial, columns))
        found[table] = (
            {row[1:] for row in connection.execute(f"PRAGMA table_info({table})")},
            {row[2:] for row in connection.execute(f"PRAGMA foreign_key_list({table})")},
            indexes,
        )
    return found


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The revisions of a crushpy that is one version newer."""
    import crushpy.storage.migrations.upgrade as upgrade

    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    (folder / "versions" / f"v{VERSION + 1}_note.py").write_text(REVISION)
    monkeypatch.setattr(upgrade, "FOLDER", folder)
    monkeypatch.setattr(upgrade, "VERSION", VERSION + 1)
    monkeypatch.setattr("crushpy.storage.sqlite_file.VERSION", VERSION + 1)
    monkeypatch.setattr("crushpy.storage.schema_version.VERSION", VERSION + 1)
    monkeypatch.setattr("crushpy.storage.postgres_database.VERSION", VERSION + 1)
    return folder / "versions" / f"v{VERSION + 1}_note.py"


# --- generated files


@pytest.mark.slow
def test_the_generated_files_are_current() -> None:
    done = subprocess.run(
        [ROOT / "bin" / "compile-sql", "--check"], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_stale_file_is_named_and_not_written(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "crushpy", checkout / "crushpy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "bin", checkout / "bin")
    stale = checkout / "crushpy" / "storage" / "generated" / "rows.py"
    stale.write_text("# stale\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [checkout / "bin" / "compile-sql", "--check"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 1 and str(stale) in done.stdout and "statements.py" not in done.stdout
    assert stale.read_text() == "# stale\n"


async def test_the_revisions_lead_to_the_schema_of_the_tables(file: Path) -> None:
    from sqlalchemy import create_engine

    from crushpy.storage.migrations.upgrade import run_revisions

    await made(file)
    revised = file.with_name("revised.db")
    engine = create_engine(f"sqlite:///{revised}")
    with engine.begin() as connection:
        run_revisions(connection, 0)
    engine.dispose()
    with closing(sqlite3.connect(file)) as ours, closing(sqlite3.connect(revised)) as theirs:
        assert shape(theirs) == shape(ours), "add a revision to storage/migrations/versions"


@pytest.mark.xdist_group("postgres")
async def test_the_revisions_lead_to_the_schema_of_the_tables_on_a_server(
    server: Server, tmp_path: Path
) -> None:
    from sqlalchemy import create_engine

    from crushpy.storage.migrations.upgrade import run_revisions

    columns = (
        "SELECT table_name, column_name, is_nullable, data_type, collation_name, column_default "
        "FROM information_schema.columns WHERE table_schema = 'crushpy' AND table_name <> 'schema_version'"
    )
    created, revised = server.fresh(empty=True), server.fresh(empty=True)
    store = Store(tmp_path / "x.db", server.url(created))
    await store.sessions.list_tips()
    await store.close()
    engine = create_engine(server.url(revised).replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA crushpy")
        connection.exec_driver_sql("SET LOCAL search_path = crushpy, public")
        run_revisions(connection, 0)
    engine.dispose()
    assert set(server.execute(columns, revised)) == set(server.execute(columns, created))
    server.drop(created)
    server.drop(revised)


def test_creating_a_database_imports_neither_sqlmodel_nor_alembic(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from crushpy.storage.store import Store\n"
        f"asyncio.run(Store(Path({str(tmp_path / 'x.db')!r})).sessions.list_tips())\n"
        "heavy = ('sqlmodel', 'sqlalchemy', 'alembic', 'pydantic', 'crushpy.storage.tables')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# --- upgrades


@pytest.mark.slow
async def test_an_upgrade_keeps_a_copy_beside_the_file(file: Path, request: pytest.FixtureRequest) -> None:
    session = await made(file)
    request.getfixturevalue("next_version")
    first = file.with_name(f"crushpy.db.bak-{VERSION}")
    store = Store(file)
    assert [message.text for message in await store.messages.load(session)] == ["kept"]
    await store.close()
    assert ask(file, "PRAGMA user_version") == [(VERSION + 1,)]
    assert ask(file, "SELECT note FROM session") == [("upgraded",)]
    assert ask(first, "PRAGMA user_version") == [(VERSION,)]
    assert ask(first, "SELECT id FROM session") == [(session,)]
    assert first.stat().st_mode & 0o077 == 0


async def test_an_earlier_copy_is_not_overwritten(file: Path, request: pytest.FixtureRequest) -> None:
    await made(file)
    earlier = file.with_name(f"crushpy.db.bak-{VERSION}")
    earlier.write_text("precious")
    request.getfixturevalue("next_version")
    await made(file)
    assert earlier.read_text() == "precious"
    assert len(list(file.parent.glob(f"crushpy.db.bak-{VERSION}*"))) == 2


async def test_a_new_database_needs_no_copy(file: Path) -> None:
    await made(file)
    assert [path.name for path in file.parent.iterdir()] == ["crushpy.db"]


async def test_a_revision_that_fails_changes_nothing(file: Path, request: pytest.FixtureRequest) -> None:
    session = await made(file)
    revision: Path = request.getfixturevalue("next_version")
    revision.write_text(REVISION + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    store = Store(file)
    with pytest.raises(StorageError, match="no such table: nowhere"):
        await store.sessions.list_tips()
    await store.close()
    assert ask(file, "PRAGMA user_version") == [(VERSION,)]
    assert "note" not in {row[1] for row in ask(file, "PRAGMA table_info(session)")}
    assert ask(file, "SELECT id FROM session") == [(session,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_process_killed_in_an_upgrade_leaves_the_old_version(
    file: Path, request: pytest.FixtureRequest
) -> None:
    session = await made(file)
    revision: Path = request.getfixturevalue("next_version")
    revision.write_text(REVISION + "    os.kill(os.getpid(), 9)\n")
    child = os.fork()
    if child == 0:
        from crushpy.storage.migrations.upgrade import upgrade_file

        upgrade_file(file)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert ask(file, "PRAGMA user_version") == [(VERSION,)]
    revision.write_text(REVISION)
    store = Store(file)
    assert [message.text for message in await store.messages.load(session)] == ["kept"]
    await store.close()
    assert ask(file, "PRAGMA user_version") == [(VERSION + 1,)]


async def test_two_processes_upgrade_once(file: Path, request: pytest.FixtureRequest) -> None:
    await made(file)
    request.getfixturevalue("next_version")
    stores = [Store(file) for _ in range(2)]
    await asyncio.gather(*(store.sessions.list_tips() for store in stores))
    for store in stores:
        await store.close()
    assert len(list(file.parent.glob("crushpy.db.bak-*"))) == 1


def make_version(file: Path, version: int, *statements: str) -> None:
    """A database as the revisions up to `version` make it, changed by these statements."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory
    from sqlalchemy import create_engine

    file.parent.mkdir()
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        revisions = ScriptDirectory(str(MIGRATIONS)).iterate_revisions(str(version), "base")
        for revision in reversed(list(revisions)):
            revision.module.upgrade()
        for statement in (*statements, f"PRAGMA user_version = {version}"):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    engine.dispose()


async def test_an_audit_with_hashes_keeps_its_records(file: Path) -> None:
    make_version(
        file,
        21,
        "INSERT INTO audit VALUES ('root', 1, 'decision', 2.0, 's', 'c', '{}', 'a', 'b')",
        "INSERT INTO audit_end VALUES ('root', 1, 'b')",
    )
    store = Store(file)
    await store.audit.append("root", [AuditEntry("decision", {}, "s", "d")])
    recorded = [(record.number, record.call_id) for record in await store.audit.load("root")]
    assert recorded == [(1, "c"), (2, "d")]
    await store.close()


@pytest.mark.xdist_group("postgres")
async def test_a_server_is_upgraded_in_one_transaction(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = server.fresh(empty=True)
    place = Place(tmp_path / "x.db", server.url(name))
    store = place.store()
    await store.sessions.create(a_session(), said())
    await store.close()
    request.getfixturevalue("next_version")
    store = place.store()
    assert len(await store.sessions.list_tips()) == 1
    await store.close()
    assert server.execute("SELECT note FROM crushpy.session", name) == [("upgraded",)]
    assert server.execute("SELECT version FROM crushpy.schema_version", name) == [(VERSION + 1,)]
    server.drop(name)


async def test_version_22_is_upgraded_to_the_present_names(file: Path) -> None:
    make_version(
        file,
        22,
        "INSERT INTO message_override VALUES ('s', 'm1', 10, 5, 'cut', '')",
        "INSERT INTO message_override VALUES ('s', 'm2', 10, 5, 'drop', '')",
    )
    store = Store(file)
    assert await store.sessions.list_tips() == []
    await store.close()
    with closing(sqlite3.connect(file)) as db:
        kinds = db.execute("SELECT kind FROM message_override ORDER BY message_id").fetchall()
        columns = {row[1] for row in db.execute("PRAGMA table_info(boundary)")}
    assert kinds == [("shorten",), ("drop",)]
    assert {"template", "facts"} <= columns and not {"template_name", "coverage"} & columns


# --- databases that are not opened


async def refused(file: Path) -> StorageError:
    before = file.read_bytes()
    store = Store(file)
    with pytest.raises(StorageError) as caught:
        await store.sessions.create(a_session())
    await store.close()
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["crushpy.db"]
    return caught.value


async def test_a_newer_database_is_refused_and_left_as_it_is(file: Path) -> None:
    await made(file)
    change(file, "PRAGMA user_version = 77")
    error = await refused(file)
    assert f"{file} has version 77, but this crushpy supports versions up to {VERSION}" in error.message
    assert "update this one" in error.hint


async def test_a_database_older_than_19_is_named_and_left_as_it_is(file: Path) -> None:
    await made(file)
    change(file, "PRAGMA user_version = 18")
    error = await refused(file)
    assert f"{file} has version 18" in error.message and "version 19 and later" in error.hint


@pytest.mark.parametrize("version", [0, 1, 99])
async def test_foreign_database_is_refused_and_unchanged(file: Path, version: int) -> None:
    file.parent.mkdir()
    change(file, "CREATE TABLE recipes (name)", f"PRAGMA user_version = {version}")
    assert "belongs to another program" in (await refused(file)).message
