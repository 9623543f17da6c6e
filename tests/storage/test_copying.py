"""Everything is copied from one kind of database to the other and back, and proved to be equal."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.conversations import continued
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, answered, replied, said
from support.tcp_proxy import Proxy

from crushpy.core.errors import UsageError
from crushpy.core.messages import MessageOverride, Pin, Text, ToolCall, Usage
from crushpy.core.timeline_notes import TimelineNote
from crushpy.storage.copying import Transfer, copy_storage
from crushpy.storage.records import AuditEntry, StorageError
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")
HERE = Path(__file__).parent
CALL = ToolCall("call", "bash", {"command": "ls"})


@pytest.fixture
def remote(server: Server, tmp_path: Path) -> Iterator[Place]:
    name = server.fresh()
    yield Place(tmp_path / "none.db", server.url(name))
    server.drop(name)


def quiet(table: str, done: int, whole: int) -> None:
    pass


async def filled(store: Store) -> str:
    """Some of everything; the tip of a conversation of three sessions."""
    info = a_session(system="Be \0 brief", title="walrus \U0010fff0")
    await store.sessions.create(info, said("about a walrus\0"), Text("a fact \0"))
    for number in range(2):
        reply = replied(f"reply {number}", CALL, usage=Usage(5, 1, 0, 0, 0.1 + 0.2))
        await store.messages.add(info.id, reply)
        await store.calls.begin(info.id, reply.id, CALL)
        await store.calls.finish(info.id, answered(CALL))
        await store.boundaries.add_overrides(info.id, (MessageOverride(reply.id),))
        info = await continued(store, info)
    await store.pins.add(info.root_id, Pin(0, "text", "pinned"))
    store.notes.record(info.id, TimelineNote("info", "marked"))
    await store.audit.append(info.root_id, [AuditEntry("decision", {"x": 1}, info.id, "call")])
    gone = a_session()
    await store.sessions.create(gone, said("secret"))
    await store.sessions.delete_conversation(gone.id)
    return info.id


async def test_copying_to_a_server_and_back_keeps_everything(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, server, back = Store(file), remote.store(), Store(tmp_path / "back" / "crushpy.db")
    tip = await filled(source)
    outputs = tmp_path / "outputs"
    root = (await source.sessions.find(tip)).root_id
    (outputs / root).mkdir(parents=True)
    (outputs / root / "output-abc.txt").write_bytes(b"whole \xff\0" * 200_000)
    report = await copy_storage(source, server, outputs, quiet)
    assert report.rows["message"] > report.rows["message_fact"] > 0
    assert report.outputs == 1
    assert await server.outputs.load(root, "output-abc.txt") == b"whole \xff\0" * 200_000

    elsewhere = tmp_path / "elsewhere"
    report = await copy_storage(server, back, elsewhere, quiet)
    assert (elsewhere / root / "output-abc.txt").read_bytes() == b"whole \xff\0" * 200_000
    assert (elsewhere / root / "output-abc.txt").stat().st_mode & 0o077 == 0
    for store in (server, back):
        assert await store.messages.load_lineage(tip) == await source.messages.load_lineage(tip)
        assert await store.sessions.list_conversations() == await source.sessions.list_conversations()
        assert await store.pins.load(root) == await source.pins.load(root)
        facts = await store.messages.load_facts(root)
        assert facts == await source.messages.load_facts(root) and "a fact" in str(facts[0])
        assert await store.notes.load(tip) == await source.notes.load(tip)
        assert await store.boundaries.load_carried(tip) == await source.boundaries.load_carried(tip)
        assert [session.parent_id for session in await store.sessions.load_lineage(tip)] == [
            session.parent_id for session in await source.sessions.load_lineage(tip)
        ]
        assert await store.audit.load(root) == await source.audit.load(root) != []
        assert [hit.message_id for hit in await store.search.find("walrus", within=tip)] != []
        await store.messages.add(tip, said("it goes on"))
        assert (await store.messages.load(tip))[-1].text == "it goes on"
        assert await store.check() == []
    for store in (source, server, back):
        await store.close()


@pytest.mark.parametrize("way", ["to a server", "to a file"])
async def test_a_copy_killed_at_any_moment_cannot_be_used_until_it_was_finished(
    server: Server, tmp_path: Path, way: str
) -> None:
    base = server.fresh()
    file, folder = tmp_path / "source.db", tmp_path / "copies"
    folder.mkdir()
    source = str(file) if way == "to a server" else server.url(base)
    store = opened(source)
    tip = await filled(store)
    wanted = await store.messages.load_lineage(tip)
    await store.close()
    most = 5
    for number in range(1, most) if way == "to a server" else ():
        server.execute(f"CREATE DATABASE {base}_{number} TEMPLATE {server.fresh()}")
    target = server.url(f"{base}_{{}}") if way == "to a server" else str(folder / "copy{}.db")
    done = subprocess.run(
        [sys.executable, str(HERE / "copy_killer.py"), source, target, "14"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}"},
    )
    assert done.returncode == 0, done.stderr
    assert 3 <= int(done.stdout) < most
    for number in range(1, int(done.stdout) + 1):
        half = opened(target.format(number))
        with pytest.raises(StorageError, match=f"is an unfinished copy of {re.escape(source)}") as caught:
            await half.sessions.list_conversations()
        assert "crushpy storage copy" in caught.value.hint
        await half.close()
        old, new = opened(source), opened(target.format(number))
        await copy_storage(old, new, tmp_path, quiet)
        await new.close()
        whole = opened(target.format(number))
        assert await whole.messages.load_lineage(tip) == wanted
        assert await whole.sessions.list_conversations() == await old.sessions.list_conversations()
        await whole.close()
        await old.close()


def opened(name: str) -> Store:
    return Store(Path("/nonexistent"), name) if "://" in name else Store(Path(name))


@pytest.mark.parametrize("way", ["to a server", "to a file"])
async def test_a_server_that_is_gone_in_a_copy_is_waited_for_and_where_it_stays_away_the_copy_goes_on_later(
    server: Server, remote: Place, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    proxy = Proxy(server.port)
    far = Store(tmp_path / "x.db", server.url(remote.url.rpartition("/")[2], port=proxy.port))
    source, target = (Store(file), far) if way == "to a server" else (far, Store(file))
    await filled(source)

    def cut_for_a_moment(table: str, done: int, whole: int) -> None:
        proxy.cut()
        proxy.mend()

    def cut(table: str, done: int, whole: int) -> None:
        if table == "message":
            proxy.cut()

    with monkeypatch.context() as impatient:
        impatient.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 0.1)
        with pytest.raises(StorageError) as caught:
            await copy_storage(source, target, tmp_path, cut)
    assert f"postgresql://owner@127.0.0.1:{proxy.port}" in caught.value.message
    assert "unfinished" in caught.value.hint and "run the same command to continue" in caught.value.hint
    proxy.mend()
    report = await copy_storage(source, target, tmp_path, cut_for_a_moment)
    assert report.added > 0
    assert await Transfer(target.thread).find_unfinished_copy() is None
    await source.close()
    await target.close()
    proxy.close()


async def test_a_copy_that_was_interrupted_takes_what_changed_since_then(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, target = Store(file), remote.store()
    tip = await filled(source)

    def interrupt(table: str, done: int, whole: int) -> None:
        if table == "message":
            raise KeyError(table)

    with pytest.raises(KeyError):
        await copy_storage(source, target, tmp_path, interrupt)
    await source.messages.add(tip, said("meanwhile"))
    await source.sessions.update(tip, title="another")
    await copy_storage(source, target, tmp_path, quiet)
    assert await target.messages.load_lineage(tip) == await source.messages.load_lineage(tip)
    assert (await target.sessions.find(tip)).title == "another"
    assert (
        (await target.sessions.find(tip)).parent_id == (await source.sessions.find(tip)).parent_id is not None
    )
    await source.close()
    await target.close()


async def test_a_session_that_went_on_since_it_was_copied_is_not_written_over(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, target = Store(file), remote.store()
    tip = await filled(source)
    await copy_storage(source, target, tmp_path, quiet)
    await target.messages.add(tip, said("mine"))
    await source.sessions.create(a_session(), said("another one"))
    before = await target.messages.load_lineage(tip)
    with pytest.raises(UsageError, match=rf"has 1 session continued there .*: {tip}") as caught:
        await copy_storage(source, target, tmp_path, quiet)
    assert "Nothing was written" in caught.value.hint
    assert await target.messages.load_lineage(tip) == before
    assert len(await target.sessions.list_conversations()) == 1
    await source.close()
    await target.close()


async def test_an_interrupted_copy_goes_on_and_one_that_is_whole_adds_nothing(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, target = Store(file), remote.store()
    await filled(source)

    class Interrupt(Exception):
        pass

    def interrupt(table: str, done: int, whole: int) -> None:
        if table == "message":
            raise Interrupt

    with pytest.raises(Interrupt):
        await copy_storage(source, target, tmp_path, interrupt)
    first = await copy_storage(source, target, tmp_path, quiet)
    again = await copy_storage(source, target, tmp_path, quiet)
    assert first.added > 0 == again.added
    assert first.rows == again.rows
    await source.close()
    await target.close()


async def test_a_target_with_conversations_of_its_own_is_refused_and_left_alone(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, target = Store(file), remote.store()
    await filled(source)
    own = a_session()
    await target.sessions.create(own, said("mine"))
    with pytest.raises(UsageError, match=f"holds 1 session that .* does not have: {own.id}"):
        await copy_storage(source, target, tmp_path, quiet)
    assert [row.id for row in await target.sessions.list_conversations()] == [own.id]
    await source.close()
    await target.close()


async def test_a_copy_that_differs_names_the_session(remote: Place, file: Path, tmp_path: Path) -> None:
    source, target = Store(file), remote.store()
    tip = await filled(source)
    root = (await source.sessions.find(tip)).root_id

    def write_meanwhile(table: str, done: int, whole: int) -> None:
        if table == "message":
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("UPDATE message SET parts = replace(parts, 'walrus', 'warlus')")

    with pytest.raises(StorageError, match=rf"differs in message of session {root}: \d rows there"):
        await copy_storage(source, target, tmp_path, write_meanwhile)
    await copy_storage(source, target, tmp_path, quiet)
    assert "warlus" in (await target.messages.load_lineage(tip))[0].text
    await source.close()
    await target.close()
