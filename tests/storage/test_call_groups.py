"""What calls of one moment store is committed together: nothing is lost, mixed up or spoilt by another."""

import asyncio
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.stored import a_session, answered, replied, said

from crushpy.core.messages import ToolCall
from crushpy.storage.records import AuditEntry, CallStart, StorageError
from crushpy.storage.store import Store

HERE = Path(__file__).parent
MANY = [ToolCall(f"call {number}", "view", {"file_path": str(number)}) for number in range(150)]


def decided(session: str, call: ToolCall) -> AuditEntry:
    return AuditEntry("decision", {"tool": call.name}, session, call.id)


async def test_calls_side_by_side_are_stored_in_the_order_of_handing_over(
    store: Store,
) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    reply = replied("All of these.", *MANY)
    await store.messages.add(info.id, reply)

    await asyncio.gather(*(store.audit.append(info.id, [decided(info.id, call)]) for call in MANY))
    await asyncio.gather(*(store.calls.begin(info.id, reply.id, call) for call in MANY))
    assert await store.calls.list_open(info.id) == {call.id for call in MANY}
    results = [answered(call, call.id) for call in reversed(MANY)]
    await asyncio.gather(*(store.calls.finish(info.id, result) for result in results))

    assert (await store.messages.load(info.id))[2:] == results
    assert await store.calls.list_open(info.id) == set()
    assert (await store.sessions.find(info.id)).message_count == 2 + len(MANY)
    [row] = await store.sessions.list_conversations()
    assert row.messages == 2 + len(MANY)
    recorded = [(record.number, record.call_id) for record in await store.audit.load(info.id)]
    assert recorded == [(number, call.id) for number, call in enumerate(MANY, 1)]
    assert await store.search.find("149", within=info.id)


async def test_a_call_that_changes_nothing_is_stored_in_one_go(store: Store) -> None:
    info, gone = a_session(), a_session()
    await store.sessions.create(info, said())
    reply = replied("All of these.", *MANY)
    await store.messages.add(info.id, reply)
    results = [answered(call, call.id) for call in MANY]

    def begun(call: ToolCall) -> CallStart:
        return CallStart(reply.id, call, 1.0, info.id, decided(info.id, call))

    pairs = list(zip(MANY, results, strict=True))
    await asyncio.gather(*(store.calls.finish(info.id, result, begun(call)) for call, result in pairs))
    assert (await store.messages.load(info.id))[2:] == results
    assert await store.calls.list_open(info.id) == set()
    recorded = [(record.number, record.call_id) for record in await store.audit.load(info.id)]
    assert recorded == [(number, call.id) for number, call in enumerate(MANY, 1)]

    with pytest.raises(StorageError):  # all of it or nothing
        await store.calls.finish(gone.id, answered(MANY[0]), begun(MANY[0]))
    assert len(await store.audit.load(info.id)) == len(MANY)


async def test_calls_that_arrive_while_the_thread_is_busy_are_committed_together(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    may_go_on = threading.Event()
    runs: list[str] = []

    def fail() -> None:
        raise StorageError("this one fails")

    busy = store.thread.submit(lambda: may_go_on.wait(60))
    writes = [
        asyncio.ensure_future(store.thread.write_together(info.id, lambda: runs.append("made"))),
        asyncio.ensure_future(store.thread.write_together(info.id, fail)),
    ]
    await asyncio.sleep(0)
    may_go_on.set()
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert busy.result()
    assert done[0] is None
    assert isinstance(done[1], StorageError)
    assert runs == ["made", "made"], "once in the transaction that failed, and once alone"


async def test_later_read_sees_earlier_writes(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    begun = [asyncio.ensure_future(store.calls.begin(info.id, "m", call)) for call in MANY[:3]]
    await asyncio.sleep(0)  # they have been handed over, and nobody waits for them
    assert await store.calls.list_open(info.id) == {call.id for call in MANY[:3]}
    await asyncio.gather(*begun)


async def test_a_write_goes_through_where_whoever_waits_is_cancelled(store: Store, file: Path) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    waiting = asyncio.ensure_future(store.calls.begin(info.id, "m", MANY[0]))
    await asyncio.sleep(0)
    waiting.cancel()
    await store.close()
    again = Store(file)
    assert await again.calls.list_open(info.id) == {MANY[0].id}
    await again.close()


async def test_a_write_that_cannot_be_made_spoils_no_other_of_its_moment(store: Store) -> None:
    info, gone = a_session(), a_session()
    for created in (info, gone):
        await store.sessions.create(created, said())
    await store.sessions.delete_conversation(gone.id)
    twice = answered(MANY[0])
    await store.calls.finish(info.id, twice)
    results = [answered(call) for call in MANY[1:4]]
    made = await asyncio.gather(
        store.calls.finish(info.id, results[0]),
        store.calls.finish(gone.id, answered(MANY[9])),
        store.calls.finish(info.id, results[1]),
        store.calls.finish(info.id, twice),  # an id that is there already
        store.calls.finish(info.id, results[2]),
        return_exceptions=True,
    )
    assert [made[0], made[2], made[4]] == [None] * 3
    assert isinstance(made[1], StorageError)
    assert isinstance(made[3], Exception)
    assert (await store.messages.load(info.id))[1:] == [twice, *results]
    assert (await store.sessions.find(info.id)).message_count == 5


async def test_a_closed_store_takes_no_calls(file: Path) -> None:
    store = Store(file)
    info = a_session()
    await store.sessions.create(info)
    await store.close()
    with pytest.raises(RuntimeError):
        await store.calls.begin(info.id, "m", MANY[0])


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_acknowledged_calls_survive_a_kill(file: Path, seed: int) -> None:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "call_writer.py"), str(file), "session"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline() for _ in range(random.Random(seed).randrange(1, 500))]
    process.kill()
    lines += process.stdout.read().splitlines(keepends=True)
    assert process.stderr.read() == ""
    process.wait(60)
    told: dict[str, set[str]] = {"decided": set(), "begun": set(), "finished": set()}
    for line in lines:
        if line.endswith("\n"):
            told[line.split()[0]].add(line.split()[1])

    store = Store(file)
    assert await store.check() == []
    stored = await store.messages.load("session")
    results = [message.result for message in stored if message.result]
    ended = {result.call_id for result in results}
    still_open = await store.calls.list_open("session")
    assert told["finished"] <= ended
    assert told["begun"] <= ended | still_open
    assert not ended & still_open
    assert len(ended) == len(results)
    assert all(result.text == result.call_id * 50 for result in results)
    assert (await store.sessions.find("session")).message_count == len(stored)
    records = await store.audit.load("session")
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert told["decided"] | ended | still_open <= {record.call_id for record in records}
    await store.close()
