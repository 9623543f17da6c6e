"""The connection to the server is lost: a job waits and is done again, never twice, and nothing is lost."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import support.foreign_files as foreign
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, replied, said
from support.tcp_proxy import Proxy

from crushpy.core.messages import Message
from crushpy.engine.session.importing import ImportOutcome, SessionImporter
from crushpy.importers.claude import CLAUDE_CODE
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")
HERE = Path(__file__).parent


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    name = server.fresh()
    yield name
    server.drop(name)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
async def far(server: Server, database: str, proxy: Proxy, tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose connection goes through the proxy."""
    store = Store(tmp_path / "x.db", server.url(database, port=proxy.port))
    yield store
    await store.close()


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_a_write_waits_for_a_server_that_is_gone_and_says_so_once(far: Store, proxy: Proxy) -> None:
    heard: list[str] = []
    far.listen(heard.append)
    info = a_session()
    await far.sessions.create(info, said("one"))
    proxy.cut()
    writes = [asyncio.create_task(far.messages.add(info.id, said(word))) for word in ("two", "three")]
    while not heard:
        await asyncio.sleep(0.01)
    assert not any(write.done() for write in writes)
    proxy.mend()
    await asyncio.gather(*writes)
    assert texts(await far.messages.load(info.id)) == ["one", "two", "three"]
    waiting, again = heard
    assert "cannot be reached" in waiting and "up to a minute" in waiting
    assert "can be reached again" in again
    assert (await far.sessions.find(info.id)).message_count == 3


@pytest.mark.parametrize("word", [b"COMMIT", b"INSERT INTO message", b"FOR NO KEY UPDATE"])
async def test_a_write_whose_answer_was_lost_is_there_once(far: Store, proxy: Proxy, word: bytes) -> None:
    info = a_session()
    await far.sessions.create(info, said("one"))
    for number in range(3):
        proxy.cut_after(word)
        await far.messages.add(info.id, replied(f"reply {number}"))
        assert proxy.cuts == number + 1
    assert texts(await far.messages.load(info.id)) == ["one", "reply 0", "reply 1", "reply 2"]
    assert (await far.sessions.find(info.id)).message_count == 4


async def test_a_boundary_whose_answer_was_lost_is_made_once_and_keeps_its_lease(
    far: Store, proxy: Proxy
) -> None:
    from support.conversations import continued

    info = a_session()
    await far.sessions.create(info, said("one"))
    await far.leases.acquire(info.id)
    for word in (b"COMMIT", b"INSERT INTO boundary"):
        proxy.cut_after(word)
        info = await continued(far, info)
        await far.messages.add(info.id, said("on"))
        assert await far.leases.acquire(info.id) is False
    assert len(await far.boundaries.load_conversation(info.root_id)) == 2


async def test_reading_goes_on_after_the_server_ended_the_connection(
    far: Store, server: Server, database: str
) -> None:
    info = a_session()
    await far.sessions.create(info, said("one"))
    ended = server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    )
    assert ended
    assert texts(await far.messages.load(info.id)) == ["one"]
    await far.messages.add(info.id, said("two"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_acknowledged_writes_survive_a_server_restart(
    far: Store, server: Server, how: signal.Signals
) -> None:
    info = a_session()
    await far.sessions.create(info, said("first"))
    acknowledged = ["first"]

    async def write_on() -> None:
        for number in range(60):
            await far.messages.add(info.id, said(f"message {number}"))
            acknowledged.append(f"message {number}")

    writing = asyncio.create_task(write_on())
    while len(acknowledged) < 10:
        await asyncio.sleep(0)
    await asyncio.to_thread(server.stop, how)
    await asyncio.to_thread(server.start)
    await writing
    assert texts(await far.messages.load(info.id)) == acknowledged
    assert len(acknowledged) == 61


async def test_a_server_that_stays_away_is_an_error_and_the_store_can_be_used_later(
    far: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 0.1)
    info = a_session()
    await far.sessions.create(info, said("one"))
    proxy.cut()
    with pytest.raises(StorageError) as caught:
        await far.messages.add(info.id, said("two"))
    assert "What was acknowledged before is stored" in caught.value.hint
    monkeypatch.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 10_000.0)
    with pytest.raises(StorageError):  # at once: a turn that ends has more to store
        await far.sessions.update(info.id, end_reason="error")
    proxy.mend()
    await far.messages.add(info.id, said("three"))
    assert texts(await far.messages.load(info.id)) == ["one", "three"]


async def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path, proxy: Proxy) -> None:
    proxy.close()
    store = Store(tmp_path / "x.db", f"postgresql://me:hunter2@127.0.0.1:{proxy.port}/x")
    with pytest.raises(StorageError) as caught:
        await store.sessions.list_tips()
    assert f"postgresql://me@127.0.0.1:{proxy.port}/x" in caught.value.message
    assert "hunter2" not in str(caught.value)
    assert "crushpy doctor" in caught.value.hint
    await store.close()


class Importing:
    """Reads Claude Code's sessions of a folder through a connection that is lost on the way."""

    def __init__(self, folder: Path, far: Store) -> None:
        self.folder = folder
        self.store = far

    async def __call__(self) -> list[ImportOutcome]:
        importer = SessionImporter(self.store, compaction="auto")
        source = CLAUDE_CODE
        return [outcome async for outcome in importer.run(source, source.sessions(self.folder))]


@pytest.mark.parametrize(
    "word",
    [b"INSERT INTO session", b"INSERT INTO message", b"INSERT INTO boundary", b"import_record", b"COMMIT"],
    ids=["session", "message", "boundary", "record", "commit"],
)
@pytest.mark.parametrize("times", [1, 3])
async def test_an_import_whose_connection_is_lost_is_begun_again_and_nothing_is_there_twice(
    far: Store, proxy: Proxy, tmp_path: Path, word: bytes, times: int
) -> None:
    file = foreign.write_claude(tmp_path / "user")
    bring = Importing(file.parent, far)
    proxy.cut_after(word, times)
    (first,) = await bring()
    assert proxy.cuts >= 1
    assert (first.status, first.boundaries) == ("imported", 1)
    lineage = await far.messages.load_lineage(first.tip)
    assert len(lineage) == first.messages + first.boundaries
    assert len(await far.sessions.list_conversations()) == 1

    file.write_text(file.read_text().removesuffix('{"type":"user","uu'))
    foreign.append_lines(
        file,
        foreign.claude_said("n1", "a4", 40, "and on"),
        foreign.claude_reply("n2", "n1", 41, foreign.words("It goes on.")),
    )
    proxy.cut_after(word, times)
    (more,) = await bring()
    assert (more.status, more.messages) == ("updated", first.messages + 2)
    proxy.cut_after(b"")
    after = await far.messages.load_lineage(more.tip)
    assert texts(after[: len(lineage)]) == texts(lineage)
    assert texts(after[len(lineage) :]) == ["and on", "It goes on."]
    assert [row.root_id for row in await far.sessions.list_conversations()] == [more.id]
    assert [outcome.status for outcome in await bring()] == ["unchanged"]
    assert await far.check() == []


async def test_an_import_into_a_server_that_stays_away_left_nothing_and_can_be_done_later(
    far: Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = Importing(foreign.write_claude(tmp_path / "user").parent, far)
    assert await far.sessions.list_conversations() == []
    with monkeypatch.context() as impatient:
        impatient.setattr("crushpy.storage.database.WAIT_TIMEOUT_S", 0.1)
        proxy.cut_after(b"INSERT INTO boundary", stay=True)
        with pytest.raises(StorageError):
            await bring()
    proxy.mend()
    assert await far.sessions.list_conversations() == []
    assert [outcome.status for outcome in await bring()] == ["imported"]


async def test_a_process_killed_while_it_writes_leaves_a_session_that_goes_on_elsewhere(
    server: Server, database: str, tmp_path: Path
) -> None:
    place = Place(tmp_path / "x.db", server.url(database))
    process = subprocess.Popen(
        [sys.executable, str(HERE / "writer.py"), *place.arguments, "session", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(HERE.parent), "PATH": ""},
    )
    assert process.stdout is not None
    for _ in range(25):
        process.stdout.readline()
    process.kill()
    process.wait(30)
    store = place.store()
    assert await store.leases.acquire("session") is True
    before = len(await store.messages.load("session"))
    await store.messages.add("session", said("on"))
    assert len(await store.messages.load("session")) == before + 1
    await store.close()
