"""Killed at any statement of a boundary, or of undoing one: all of it is on the server, or nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from boundary_killer import CALL, PARENT, cross
from support.postgres_server import Server
from support.stored import a_session, replied, said

from crushpy.core.messages import Message
from crushpy.storage.copying import TABLES, Transfer
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")
HERE = Path(__file__).parent
STEP = 3


async def digests(server: Server, name: str) -> tuple[dict[str, str], dict[str, int]]:
    store = Store(Path("/nonexistent"), server.url(name))
    found = {table: await Transfer(store.thread).load_digests(table) for table in TABLES}
    assert await store.check() == []
    await store.close()
    return {
        f"{table} of {session}": rows[1] for table, all in found.items() for session, rows in all.items()
    }, {table: sum(rows[0] for rows in all.values()) for table, all in found.items()}


@pytest.mark.parametrize("deed", ["cross", "undo"])
async def test_a_boundary_is_whole_or_not_there(server: Server, deed: str) -> None:
    base = server.fresh()
    store = Store(Path("/nonexistent"), server.url(base))
    await store.sessions.create(a_session(id=PARENT), Message("m1", "user", said("one").parts))
    reply = replied("two", CALL)
    await store.messages.add(PARENT, Message("m2", "assistant", reply.parts))
    await store.calls.begin(PARENT, "m2", CALL)
    if deed == "undo":
        await cross(store)
    await store.close()
    before, _ = await digests(server, base)
    address = server.url("x").rpartition("/")[0]
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "server_killer.py"),
            address,
            base,
            deed,
            str(STEP),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}"},
    )
    assert done.returncode == 0, done.stderr
    *killed, whole = (f"{base}_{number}" for number in range(1, int(done.stdout) + 2))
    assert len(killed) >= 3
    _, counts = await digests(server, whole)
    for name in killed:
        hashes, here = await digests(server, name)
        assert hashes == before or here == counts, name
        server.drop(name)
    server.drop(whole)
    server.drop(base)
