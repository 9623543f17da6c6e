"""Everything is copied from one kind of database to the other and back, and proved to be equal."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conversations import continued
from places import Place
from postgres_server import Server
from stored import a_session, answered, replied, said

from crushpy.errors import UsageError
from crushpy.marks import Mark
from crushpy.messages import Cut, Pin, ToolCall, Usage
from crushpy.storage.audit_records import AuditEntry, find_fault
from crushpy.storage.copying import copy_storage
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")
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
    await store.create_session(info, said("about a walrus\0"))
    for number in range(2):
        reply = replied(f"reply {number}", CALL, usage=Usage(5, 1, 0, 0, 0.1 + 0.2))
        await store.add_message(info.id, reply)
        await store.begin_call(info.id, reply.id, CALL)
        await store.finish_call(info.id, answered(CALL))
        await store.add_cuts(info.id, (Cut(reply.id),))
        info = await continued(store, info)
    await store.add_pin(info.root_id, Pin(0, "text", "pinned"), ())
    store.keep_mark(info.id, Mark("info", "marked"))
    await store.add_audit(info.root_id, [AuditEntry("decision", {"x": 1}, info.id, "call")])
    gone = a_session()
    await store.create_session(gone, said("secret"))
    await store.delete_conversation(gone.id)
    return info.id


async def test_all_that_is_stored_goes_to_a_server_and_back(
    remote: Place, file: Path, tmp_path: Path
) -> None:
    source, server, back = Store(file), remote.store(), Store(tmp_path / "back" / "crushpy.db")
    tip = await filled(source)
    outputs = tmp_path / "outputs"
    root = (await source.session(tip)).root_id
    (outputs / root).mkdir(parents=True)
    (outputs / root / "output-abc.txt").write_bytes(b"whole \xff\0" * 200_000)
    report = await copy_storage(source, server, outputs, quiet)
    assert report.rows["message"] == report.rows["message"] > 0
    assert report.outputs == 1
    assert await server.output(root, "output-abc.txt") == b"whole \xff\0" * 200_000

    elsewhere = tmp_path / "elsewhere"
    report = await copy_storage(server, back, elsewhere, quiet)
    assert (elsewhere / root / "output-abc.txt").read_bytes() == b"whole \xff\0" * 200_000
    assert (elsewhere / root / "output-abc.txt").stat().st_mode & 0o077 == 0
    for store in (server, back):
        assert await store.lineage_messages(tip) == await source.lineage_messages(tip)
        assert await store.conversation_rows() == await source.conversation_rows()
        assert await store.pins(root) == await source.pins(root)
        assert await store.marks(tip) == await source.marks(tip)
        assert await store.carried(tip) == await source.carried(tip)
        assert [one.parent_id for one in await store.lineage(tip)] == [
            one.parent_id for one in await source.lineage(tip)
        ]
        assert find_fault(await store.audit_chain(root)) is None
        assert [hit.message_id for hit in await store.search("walrus", within=tip)] != []
        await store.add_message(tip, said("it goes on"))
        assert (await store.messages(tip))[-1].text == "it goes on"
        assert await store.check() == []
    for store in (source, server, back):
        await store.close()


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
    await target.create_session(own, said("mine"))
    with pytest.raises(UsageError, match="holds 1 sessions"):
        await copy_storage(source, target, tmp_path, quiet)
    assert [row.id for row in await target.conversation_rows()] == [own.id]
    await source.close()
    await target.close()


async def test_a_copy_that_differs_is_told(remote: Place, file: Path, tmp_path: Path) -> None:
    source, target = Store(file), remote.store()
    await filled(source)
    await copy_storage(source, target, tmp_path, quiet)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE message SET parts = replace(parts, 'walrus', 'warlus')")
    with pytest.raises(StorageError, match="differs in message"):
        await copy_storage(source, target, tmp_path, quiet)
    await source.close()
    await target.close()
