"""What is peculiar to a server: its schema, its rights, its languages, and text it does not know."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Cli
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, replied, said

from crushpy.core.errors import UsageError
from crushpy.core.messages import Message, Pin, Text, Usage
from crushpy.storage.generated.ddl import VERSION
from crushpy.storage.location import ServerAddress
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from crushpy.undo.states import FileState, RecordedChange

pytestmark = pytest.mark.xdist_group("postgres")
HERE = Path(__file__).parent


@pytest.fixture
def empty(server: Server, tmp_path: Path) -> Iterator[Place]:
    """A database in which nothing was made yet."""
    name = server.fresh(empty=True)
    yield Place(tmp_path / "x.db", server.url(name))
    server.drop(name)


def name_of(place: Place) -> str:
    return place.url.rpartition("/")[2]


def test_several_first_starts_at_once_make_the_tables_once(server: Server, empty: Place) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from crushpy.storage.store import Store; from support.stored import a_session, said\n"
        "async def main():\n"
        "    store = Store(Path(sys.argv[1]), sys.argv[2])\n"
        "    print('ready', flush=True); sys.stdin.readline()\n"
        "    await store.sessions.create(a_session(), said()); await store.close()\n"
        "asyncio.run(main())"
    )
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", code, *empty.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
        for _ in range(4)
    ]
    for process in openers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert [process.communicate("go\n", timeout=60)[1] for process in openers] == [""] * 4
    assert server.execute("SELECT count(*) FROM crushpy.session", name_of(empty)) == [(4,)]
    assert server.execute("SELECT version FROM crushpy.schema_version", name_of(empty)) == [(VERSION,)]
    assert server.execute("SELECT count(*) FROM crushpy.writer", name_of(empty)) == [(0,)]


async def refused(place: Place) -> StorageError:
    store = place.store()
    with pytest.raises(StorageError) as caught:
        await store.sessions.list_tips()
    await store.close()
    return caught.value


async def test_a_newer_schema_is_refused_and_left_as_it_is(server: Server, empty: Place) -> None:
    store = empty.store()
    await store.sessions.list_tips()
    await store.close()
    server.execute("UPDATE crushpy.schema_version SET version = 99", name_of(empty))
    error = await refused(empty)
    assert "version 99" in error.message and "Nothing was changed" in error.hint


async def test_a_schema_of_another_program_is_refused(server: Server, empty: Place) -> None:
    server.execute("CREATE SCHEMA crushpy CREATE TABLE theirs (x int)", name_of(empty))
    error = await refused(empty)
    assert "belongs to another program" in error.message


async def test_a_database_that_is_not_unicode_is_refused(server: Server, tmp_path: Path) -> None:
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    error = await refused(Place(tmp_path / "x.db", server.url("latin")))
    assert "LATIN1" in error.message and "createdb --encoding=UTF8" in error.hint
    server.drop("latin")


async def test_a_role_without_rights_is_told_and_one_without_the_extension_still_finds_parts(
    server: Server, tmp_path: Path
) -> None:
    server.execute("CREATE ROLE guest LOGIN")
    name = server.fresh(empty=True)
    place = Place(tmp_path / "x.db", server.url(name, user="guest"))
    error = await refused(place)
    assert "permission denied" in error.message and "docs/storage.md" in error.hint
    server.execute("CREATE SCHEMA crushpy AUTHORIZATION guest", name)
    store = place.store()
    info = a_session()
    await store.sessions.create(info, said("an unforgettable walrus"))
    assert [hit.snippet for hit in await store.search.find("forgettab")] == ["an unforgettable walrus"]
    await store.close()
    assert server.execute("SELECT to_regclass('crushpy.message_by_parts')", name) == [(None,)]
    server.execute("CREATE EXTENSION pg_trgm SCHEMA public", name)
    again = place.store()
    assert len(await again.search.find("forgettab")) == 1
    await again.close()
    assert server.execute("SELECT to_regclass('crushpy.message_by_parts') IS NULL", name) == [(False,)]
    server.drop(name)


async def test_ids_are_ordered_by_bytes_whatever_language_the_database_has(
    server: Server, tmp_path: Path
) -> None:
    server.execute(
        "CREATE DATABASE swedish TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'sv' LOCALE 'C'"
    )
    store = Store(tmp_path / "x.db", server.url("swedish"))
    for name in ("ab", "a-b1", "abc", "a_c", "a0"):
        await store.sessions.create(a_session(id=name), said())
    assert (await store.sessions.find("a-")).id == "a-b1"
    assert (await store.sessions.find("a_")).id == "a_c"
    assert (await store.sessions.find("ab")).id == "ab"
    with pytest.raises(UsageError, match="several"):
        await store.sessions.find("a")
    await store.close()
    server.drop("swedish")


@pytest.mark.parametrize(
    "odd", ["\0", "a\0b\0", "\U0010fff0", "\U0010fff00\0m", "\U0010fff0m", "\\0 \\u0000"], ids=range(6)
)
async def test_text_with_nul_comes_back_exactly(empty: Place, odd: str) -> None:
    store = empty.store()
    info = a_session(title=f"t{odd}", system=odd)
    await store.sessions.create(info, Message("m1", "user", (Text(odd),), 1.0))
    await store.pins.add(info.id, Pin(0, "text", odd))
    found = await store.sessions.find(info.id)
    assert (found.title, found.system) == (f"t{odd}", odd)
    assert (await store.messages.load(info.id))[0].text == odd
    assert (await store.pins.load(info.id))[0].text == odd
    assert len(await store.search.find(f"t{odd}" if odd.strip("\0") else "nothing")) in (0, 1)
    await store.close()


async def test_a_message_with_more_words_than_one_row_takes_is_found_by_each(empty: Place) -> None:
    store = empty.store()
    info = a_session()
    words = [f"word{number:07}xyz" for number in range(66_000)]
    await store.sessions.create(info, said(" ".join(words)))
    for wanted in (words[0], words[33_000], words[-1]):
        assert len(await store.search.find(wanted, within=info.id)) == 1
    await store.close()


async def test_numbers_larger_than_an_integer_are_stored(empty: Place) -> None:
    store = empty.store()
    info = a_session()
    await store.sessions.create(info, said())
    await store.messages.add(info.id, replied("x", usage=Usage(3_000_000_000, 1, 2, 3, 0.1)))
    await store.messages.add(info.id, replied("x", usage=Usage(3_000_000_000, 1, 2, 3, 0.1)))
    found = await store.sessions.find(info.id)
    assert found.usage == Usage(6_000_000_000, 2, 4, 6, 0.2)
    sums = await store.usage.sum_since(0.0)
    assert sum(total.usage.input_tokens for total in sums) == 6_000_000_000
    await store.close()


async def test_changes_of_files_are_numbered_in_the_order_in_which_they_are_committed(
    server: Server, empty: Place
) -> None:
    store = empty.store()
    info = a_session()
    await store.sessions.create(info, said())
    missing = FileState("missing")
    change = RecordedChange(
        "/work/a", missing, FileState("folder"), 0, info.id, info.id, 0, "c", "write", "b", "", "m", "h", 1.0
    )
    import psycopg

    with psycopg.connect(empty.url) as other:  # another machine is about to commit one
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended('crushpy file_change', 0))")
        adding = asyncio.create_task(store.file_changes.add([change]))
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while server.execute(waits) == [(0,)]:
            await asyncio.sleep(0.01)
        assert not adding.done()
    await adding
    assert await store.file_changes.get_last_number() == 1
    await store.close()


async def test_a_search_does_not_wait_for_others_that_write(empty: Place) -> None:
    import psycopg

    store = empty.store()
    info = a_session()
    await store.sessions.create(info, said("a zebra"))
    while await store.run_maintenance():
        pass
    await store.messages.add(info.id, said("a late zebra"))
    with psycopg.connect(empty.url) as other:
        other.execute("LOCK TABLE crushpy.message, crushpy.index_queue IN EXCLUSIVE MODE")
        assert "a zebra" in [hit.snippet for hit in await store.search.find("zebra")]
        assert len(await store.search.find("zebra", within=info.id)) == 2
    await store.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:hunter2@db:5433/x", "postgresql://me@db:5433/x"),
        ("postgresql+psycopg://me:hunter2@/x?host=/run&password=hunter2", "postgresql://me@/x?host=%2Frun"),
        ("postgresql://db/x?sslmode=require", "postgresql://db/x?sslmode=require"),
        ("postgresql://me:hu%6eter2@db/x", "postgresql://me@db/x"),
        ("postgresql:///x?host=/run", "postgresql:///x?host=%2Frun"),
        ("postgresql://", "postgresql://"),
    ],
    ids=["plain", "option", "none", "escaped", "socket", "all by default"],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = ServerAddress(url)
    assert address.shown == shown
    if "hunter2" in url or "hu%6e" in url:
        assert "hunter2" not in address.without_secrets("it says hunter2, password=hunter2")


def test_a_server_is_reached_by_its_socket(server: Server, empty: Place, cli: Cli) -> None:
    url = f"postgresql:///{name_of(empty)}?host={server.folder}&port={server.port}&user=owner"
    done = cli("sessions", "list", "--all", env={"CRUSHPY_DATABASE_URL": url})
    assert done.returncode == 0, done.stderr


def test_invalid_database_url_is_reported_without_showing_it(cli: Cli) -> None:
    for command in (("sessions", "list"), ("doctor",), ("run", "hello")):
        done = cli(*command, env={"CRUSHPY_DATABASE_URL": "postgresql://me:hunter2@[db/x"})
        told = done.stdout + done.stderr
        assert done.returncode and "database_url is not an address" in told
        assert "hunter2" not in told and "Traceback" not in told, told


def test_psycopg_is_imported_only_for_a_server(tmp_path: Path) -> None:
    code = (
        "import sys, asyncio; from pathlib import Path; from crushpy.storage.store import Store\n"
        f"store = Store(Path({str(tmp_path / 'x.db')!r}))\n"
        "asyncio.run(store.sessions.list_tips())\n"
        "print([name for name in sys.modules if 'psycopg' in name or 'storage.postgres' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
