"""One writer at a time over machines: heartbeats by the server's clock, tokens that fence who stood still."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.conversations import continued
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, said

from crushpy.core.messages import Usage
from crushpy.core.timeline_notes import TimelineNote
from crushpy.storage.records import SessionBusy, StorageError
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")
HERE = Path(__file__).parent
HOLD = """
import asyncio, sys
from pathlib import Path
from typing import Any
from crushpy.storage.store import Store
from support.stored import said

async def main():
    store = Store(Path(sys.argv[1]), sys.argv[2])
    await store.leases.acquire(sys.argv[3])
    print("mine", flush=True)
    for line in sys.stdin:
        try:
            await store.messages.add(sys.argv[3], said(line.strip()))
            print("stored", flush=True)
        except Exception as error:
            print(type(error).__name__, str(error).replace(chr(10), " "), flush=True)

asyncio.run(main())
"""


class Holder:
    """Another process that holds the lease of a session."""

    def __init__(self, place: Place, session: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *place.arguments, session],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
        assert self.said() == "mine"

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def both(server: Server, tmp_path: Path) -> Iterator[Place]:
    name = server.fresh()
    yield Place(tmp_path / "x.db", server.url(name))
    server.drop(name)


def silent(server: Server, place: Place, seconds: int) -> None:
    """As if the holder had been silent for so long, on a machine of its own."""
    server.execute(
        "UPDATE crushpy.lease SET place = 'elsewhere', host = 'laptop', "
        f"heartbeat = extract(epoch FROM clock_timestamp()) - {seconds}",
        place.url.rpartition("/")[2],
    )


async def opened(place: Place) -> tuple[Store, str]:
    store = place.store()
    info = a_session()
    await store.sessions.create(info, said("first"))
    return store, info.id


async def test_a_session_open_on_another_machine_is_refused_with_its_host_and_process(
    server: Server, both: Place
) -> None:
    store, session = await opened(both)
    holder = Holder(both, session)
    try:
        silent(server, both, 30)
        with pytest.raises(SessionBusy) as caught:
            await store.leases.acquire(session)
        assert f"process {holder.process.pid} on laptop" in caught.value.message
        silent(server, both, 50)
        assert await store.leases.acquire(session) is True, "silent for longer than a heartbeat takes"
    finally:
        holder.end()
        await store.close()


async def test_a_process_that_stood_still_and_lost_its_lease_cannot_write(
    server: Server, both: Place
) -> None:
    store, session = await opened(both)
    holder = Holder(both, session)
    try:
        assert holder.write("before") == "stored"
        holder.process.send_signal(signal.SIGSTOP)
        silent(server, both, 60)
        await store.leases.acquire(session)
        await store.messages.add(session, said("taken over"))
        await store.leases.release_all()  # the other process released it
        holder.process.send_signal(signal.SIGCONT)
        assert "StorageError" in (told := holder.write("late")) and "taken over" in told
        assert "StorageError" in holder.write("later still")
        texts = [message.text for message in await store.messages.load(session)]
        assert texts == ["first", "before", "taken over"]
    finally:
        holder.end()
        await store.close()


async def test_the_fence_holds_for_every_write_to_the_conversation(server: Server, both: Place) -> None:
    store, session = await opened(both)
    task = a_session(root_id=session, parent_id=session, kind="task")
    await store.sessions.create(task)
    await store.leases.acquire(session)
    for _ in range(5):
        await store.notes.load(session)  # its first heartbeat was sent by now
    silent(server, both, 60)
    other = both.store()
    await other.leases.acquire(session)
    writes = {
        "message": lambda: store.messages.add(session, said("x")),
        "task": lambda: store.messages.add(task.id, said("x")),
        "title": lambda: store.sessions.update(session, title="x"),
        "usage": lambda: store.sessions.add_usage(session, Usage(1)),
        "draft": lambda: store.messages.save_draft(session, said("x")),
        "boundary": lambda: _cross(store, session),
        "rename": lambda: store.sessions.rename_conversation(session, "x"),
    }
    for name, write in writes.items():
        with pytest.raises(StorageError, match="taken over"):
            await write()
            raise AssertionError(name)
    store.notes.record(session, TimelineNote("info", "x"))
    assert await store.notes.load(session) == []
    await other.messages.add(session, said("on"))
    await store.close()
    await other.close()


async def _cross(store: Store, session: str) -> None:
    await continued(store, await store.sessions.find(session))


async def test_a_lease_beats_on_a_timer_while_nothing_is_written(
    server: Server, both: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.database.HEARTBEAT_S", 0.02)
    store, session = await opened(both)
    await store.leases.acquire(session)
    database = both.url.rpartition("/")[2]
    server.execute("UPDATE crushpy.lease SET heartbeat = 0", database)
    import asyncio

    while server.execute("SELECT heartbeat = 0 FROM crushpy.lease", database) == [(True,)]:
        await asyncio.sleep(0.02)
    await store.leases.release_all()
    assert server.execute("SELECT count(*) FROM crushpy.lease", database) == [(0,)]
    await store.close()


async def test_two_stores_of_a_process_share_a_lease_and_a_dead_process_of_this_machine_is_seen_at_once(
    both: Place,
) -> None:
    store, session = await opened(both)
    holder = Holder(both, session)
    with pytest.raises(SessionBusy) as caught:
        await store.leases.acquire(session)
    assert caught.value.message.endswith(f"(process {holder.process.pid})")
    holder.end()
    assert await store.leases.acquire(session) is True
    other = both.store()
    assert await other.leases.acquire(session) is False
    await other.close()
    await store.close()


async def test_a_write_asks_once_whether_the_lease_is_ours_however_many_compactions_there_were(
    server: Server, both: Place
) -> None:
    store, session = await opened(both)
    await store.leases.acquire(session)
    info = await store.sessions.find(session)
    for _ in range(4):
        info = await continued(store, info)
    asked: list[str] = []

    def hook() -> None:
        database: Any = store.thread.database
        usual = database.execute

        def counted(statement: Any, **values: Any) -> Any:
            asked.append(statement.postgres)
            return usual(statement, **values)

        database.execute = counted

    await store.thread.run(hook)
    await store.messages.add(info.id, said("on"))
    assert sum("UPDATE lease SET heartbeat" in statement for statement in asked) == 1
    await store.close()
