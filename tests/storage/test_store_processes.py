"""Several processes on one database, and processes that die in the middle of it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.places import Place
from support.stored import a_session

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
WRITERS = 8
WRITES = 40
"""So few that nobody waits longer for the others than a write waits for the lock, on a slow disk too."""
ROUNDS = 6


def writer(place: Place, session: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(HERE / "writer.py"), *place.arguments, session, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )


async def test_eight_processes_write_at_once_and_nothing_is_lost(place: Place) -> None:
    store = place.store()
    shared, own = a_session(), [a_session() for _ in range(WRITERS // 2)]
    for info in (shared, *own):
        await store.sessions.create(info)
    # Half of them each to a session of their own, half all to the same one.
    writers = [writer(place, info.id, WRITES) for info in own]
    writers += [writer(place, shared.id, WRITES) for _ in range(WRITERS - len(own))]
    ends = [process.communicate(timeout=100) for process in writers]
    failed = [err for process, (_, err) in zip(writers, ends, strict=True) if process.returncode or err]
    assert not failed, failed[0][-1_000:]

    for info in own:
        texts = [message.text for message in await store.messages.load(info.id)]
        assert texts == [f"{info.id} {number}" for number in range(WRITES)]
    texts = [message.text for message in await store.messages.load(shared.id)]
    expected = [f"{shared.id} {number}" for number in range(WRITES) for _ in range(WRITERS - len(own))]
    assert sorted(texts) == sorted(expected)
    assert (await store.sessions.find(shared.id)).message_count == len(expected)
    assert await store.check() == []
    await store.close()


def test_eight_processes_open_a_new_database_at_once(place: Place) -> None:
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
            [sys.executable, "-c", code, *place.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
        for _ in range(WRITERS)
    ]
    for process in openers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in openers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=100)[1] for process in openers]
    assert ends == [""] * WRITERS
    assert [process.returncode for process in openers] == [0] * WRITERS


async def test_acknowledged_writes_survive_a_killed_process(place: Place) -> None:
    chance = random.Random(20)
    for round_ in range(2 if place.url else ROUNDS):  # each takes a while on a server
        session = f"session{round_}"
        process = writer(place, session, 0)
        assert process.stdout is not None
        said_so = [process.stdout.readline().split() for _ in range(chance.randrange(1, 300))]
        process.kill()
        rest = process.stdout.read()  # not communicate(): it would pass over what readline() has buffered
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.wait(60)
        said_so += [line.split() for line in rest.splitlines(keepends=True) if line.endswith("\n")]

        store = place.store()
        assert await store.check() == []
        stored = await store.messages.load(session)
        acknowledged = [words[1] for words in said_so if words[0] == "message"]
        # The first message went in with the session; after the last acknowledged one at most one more.
        assert [message.id for message in stored][1 : len(acknowledged) + 1] == acknowledged
        assert len(stored) - 1 - len(acknowledged) in (0, 1)
        assert (await store.sessions.find(session)).message_count == len(stored)

        begun = {f"call {words[1]}" for words in said_so if words[0] == "begun"}
        answered = {message.result.call_id for message in stored if message.result}
        still_open = await store.calls.list_open(session)
        assert begun <= answered | still_open
        assert not answered & still_open
        assert store.warnings == []
        await store.close()
