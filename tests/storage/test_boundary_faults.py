"""Boundaries when things go wrong: killed half-way, two writers, circles of parents, undone twice."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from boundary_killer import CALL, CHILD, DEEDS, PARENT, cross, pin
from support.killing import killed_at_every
from support.stored import a_session, replied, said

from crushpy.core.boundary import StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Text
from crushpy.storage.records import SessionBusy, SessionInfo, StorageError
from crushpy.storage.statement import Statement
from crushpy.storage.store import Store

HERE = Path(__file__).parent
CLOCKS = ("updated_at", "ended_at", "heartbeat", "undone_at", "created_at", "started_at")
"""Columns that say when: only whether they are set is compared."""


def state(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything stored, but for the exact times."""
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return {
            table: [
                {key: row[key] is not None if key in CLOCKS else row[key] for key in row.keys()}  # noqa: SIM118
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
            ]
            for table in ("session", "message", "tool_run", "boundary", "message_override", "pin", "lease")
        }


async def prepared(file: Path, *, crossed: bool, pinned: bool) -> None:
    """A session with two messages and an open call of new_session; and where wanted, its child or a pin."""
    store = Store(file)
    await store.sessions.create(a_session(id=PARENT), Message("m1", "user", (Text("hello"),), 1.0))
    await store.leases.acquire(PARENT)
    await store.messages.add(PARENT, Message("m2", "assistant", (Text("I shall."), CALL), 2.0))
    await store.calls.begin(PARENT, "m2", CALL)
    if pinned:
        await pin(store)
    if crossed:
        await cross(store)
        await store.messages.add(CHILD, said("and on"))
    await store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("what", "how", "step"),
    [
        ("cross", "statements", 1),
        ("undo", "statements", 1),
        ("cross", "instructions", 97),
        ("undo", "instructions", 43),
        ("pin", "instructions", 5),
        ("unpin", "instructions", 5),
        ("edit", "instructions", 11),
        ("fork", "instructions", 23),
    ],
)
async def test_a_process_killed_at_any_moment_leaves_the_old_state_or_the_new_one(
    file: Path, what: str, how: str, step: int
) -> None:
    await prepared(file, crossed=what == "undo", pinned=what == "unpin")
    old = state(file)
    copies, whole = killed_at_every(HERE / "boundary_killer.py", file, what, how, str(step))
    new = state(whole)
    assert old != new
    assert len(copies) >= 7
    found = [state(copy) for copy in copies]
    assert all(entry in (old, new) for entry in found)
    # Once it is new it stays new: nothing comes after the moment of truth.
    assert [entry == new for entry in found] == sorted(entry == new for entry in found)
    assert found[0] == old
    for copy in copies[:: max(1, len(copies) // 4)]:
        store = Store(copy)  # and crushpy itself can go on with it
        tip = await store.sessions.find_tip(PARENT)
        await store.leases.acquire(tip.id)
        await store.messages.add(tip.id, said("goes on"))
        assert await store.check() == [] and store.warnings == []
        await store.close()


# --- circles -----------------------------------------------------------------------------------------------


async def chain(store: Store, length: int, **fields: Any) -> list[SessionInfo]:
    """A root and the sessions that continue it, one message each beside the seeds."""
    sessions = [a_session(**fields)]
    await store.sessions.create(sessions[0], said("message 0"))
    for number in range(1, length):
        sessions.append(await continued(store, sessions[-1]))
        await store.messages.add(sessions[-1].id, said(f"message {number}"))
    return sessions


async def synchronous(store: Store) -> str:
    """How the last transaction reached the disk: SQLite syncs its log at the end of a FULL one only."""
    level = Statement[Any]("PRAGMA synchronous")
    found = await store.thread.run(lambda: store.thread.database.execute(level).scalar())
    return {1: "NORMAL", 2: "FULL"}[found]


@pytest.mark.parametrize("deed", DEEDS)
async def test_a_boundary_is_synced_to_the_disk_when_it_is_stored(file: Path, deed: str) -> None:
    await prepared(file, crossed=deed == "undo", pinned=deed == "unpin")
    store = Store(file)
    await store.messages.add(CHILD if deed == "undo" else PARENT, replied("a reply"))
    assert await synchronous(store) == "NORMAL"
    await DEEDS[deed](store)
    assert await synchronous(store) == "FULL"
    await store.close()


async def continued(store: Store, parent: SessionInfo, trigger: str = "auto") -> SessionInfo:
    child = a_session(
        parent.cwd,
        root_id=parent.root_id,
        parent_id=parent.id,
        kind="fork" if trigger == "fork" else "continuation",
        generation=parent.generation + (trigger != "fork"),
    )
    tail = tuple(message.id for message in await store.messages.load(parent.id)) if trigger == "fork" else ()
    boundary = StoredBoundary(new_id(), parent.id, child.id, trigger, created_at=time.time(), tail=tail)
    await store.boundaries.add(boundary, child, None if trigger == "fork" else said("seed"))
    return child


@pytest.mark.parametrize("length", [1, 2, 5])
async def test_a_circle_of_parents_hangs_no_walk(store: Store, file: Path, length: int) -> None:
    sessions = await chain(store, length)
    first, last = sessions[0].id, sessions[-1].id
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE session SET parent_id = ? WHERE id = ?", (last, first))
        connection.execute("UPDATE session SET kind = 'continuation' WHERE id = ?", (first,))
        connection.execute(
            'INSERT INTO boundary (id, parent_id, child_id, "trigger", created_at, tail, summary_source,'
            " summary_model, template, template_hash, tokens_before, tokens_after, cost, seconds,"
            " truncated_chars, problem, facts)"
            " SELECT 'circle', ?, ?, 'auto', 1.0, '[]', '', '', '', '', 0, 0, 0.0, 0.0, 0, '', '{}'",
            (last, first),
        )
    everyone = {session.id for session in sessions}
    for session in sessions:
        assert {ancestor.id for ancestor in await store.sessions.load_lineage(session.id)} == everyone
        assert (await store.sessions.find_tip(session.id)).id in everyone
        assert len(await store.messages.load_lineage(session.id)) <= 2 * length
        await store.search.find("message", within=session.id)
    assert {session.id for session in await store.sessions.load_conversation(first)} == everyone
    assert len(await store.sessions.list_tips()) == len(await store.sessions.list_conversations()) == 1
    assert await store.sessions.find_latest("/work") is not None


async def test_a_parent_that_is_gone_ends_the_walk(store: Store, file: Path) -> None:
    sessions = await chain(store, 3)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE session SET parent_id = 'nobody' WHERE id = ?", (sessions[1].id,))
    assert [session.id for session in await store.sessions.load_lineage(sessions[2].id)] == [
        sessions[1].id,
        sessions[2].id,
    ]


async def test_sixty_generations_are_walked(store: Store) -> None:
    sessions = await chain(store, 60)
    assert (await store.sessions.find_tip(sessions[0].id)).id == sessions[-1].id
    assert [session.id for session in await store.sessions.load_lineage(sessions[-1].id)] == [
        session.id for session in sessions
    ]
    lineage = [message.text for message in await store.messages.load_lineage(sessions[-1].id)]
    assert [text for text in lineage if text != "seed"] == [f"message {number}" for number in range(60)]


# --- forks and undone children are no continuations --------------------------------------------------------


async def test_a_conversation_is_listed_where_somebody_spoke_last_be_it_a_fork(store: Store) -> None:
    root = (await chain(store, 1))[0]
    fork = await continued(store, root, "fork")
    later = await continued(store, fork)
    for place in (later, root, later):
        await store.messages.add(place.id, said("much later"))
        assert [tip.id for tip in await store.sessions.list_tips()] == [place.id]
        latest = await store.sessions.find_latest("/work")
        assert latest is not None and latest.id == place.id
    assert (await store.sessions.find_tip(root.id)).id == root.id, (
        "who names a session gets what continues it, no fork"
    )
    assert (await store.sessions.find_tip(fork.id)).id == later.id, "a fork has a tip of its own"
    assert [session.id for session in await store.sessions.load_lineage(later.id)] == [
        root.id,
        fork.id,
        later.id,
    ]


async def test_undo_after_the_child_has_gone_on_makes_the_whole_line_a_fork(store: Store) -> None:
    root, one, two, three = await chain(store, 4)
    boundary = await store.boundaries.find_opening(one.id)
    assert boundary is not None
    await store.boundaries.undo(boundary.id, said("undone"))
    assert (await store.sessions.find_tip(root.id)).id == root.id
    assert [info.id for info in await store.sessions.list_tips()] == [root.id]
    latest = await store.sessions.find_latest("/work")
    assert latest is not None and latest.id == root.id and latest.ended_at is None
    for session in (one, two, three):
        assert (await store.sessions.find_tip(session.id)).id == three.id, "the fork can be continued"
    assert [m.text for m in await store.messages.load_lineage(root.id)] == ["message 0", "undone"]
    told = [message.text for message in await store.messages.load_lineage(three.id)]
    assert "undone" not in told and "message 3" in told
    again = await continued(store, root)
    assert (await store.sessions.find_tip(root.id)).id == again.id
    assert (await store.boundaries.load_carried(root.id)).held


async def test_a_boundary_is_undone_once(store: Store) -> None:
    root, child = await chain(store, 2)
    boundary = await store.boundaries.find_opening(child.id)
    assert boundary is not None
    await store.boundaries.undo(boundary.id, said("undone"))
    before = await store.messages.load(root.id)
    with pytest.raises(UsageError, match=f"session {child.id} was undone already"):
        await store.boundaries.undo(boundary.id, said("undone again"))
    assert await store.messages.load(root.id) == before


# --- one writer ------------------------------------------------------------------------------------------


async def test_a_session_goes_on_in_one_child_only(store: Store) -> None:
    root, child = await chain(store, 2)
    with pytest.raises(StorageError, match=f"{root.id} continues in {child.id} already"):
        await continued(store, root)
    assert len(await store.sessions.load_conversation(root.id)) == 2


HOLD = """
import asyncio, sys
from pathlib import Path
from crushpy.storage.store import Store
from support.stored import said

async def main():
    store = Store(Path(sys.argv[1]))
    await store.leases.acquire(sys.argv[2])
    print("mine", flush=True)
    for line in sys.stdin:
        try:
            await store.messages.add(sys.argv[2], said(line.strip()))
            print("stored", flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)

asyncio.run(main())
"""


class Holder:
    """Another process that writes to a session."""

    def __init__(self, file: Path, session: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file), session],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
        self.first = self.said()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, text: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.said()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


async def test_a_second_writer_is_refused_until_the_first_is_dead(store: Store, file: Path) -> None:
    (root,) = await chain(store, 1)
    holder = Holder(file, root.id)
    try:
        assert holder.first == "mine"
        with pytest.raises(SessionBusy) as caught:
            await store.leases.acquire(root.id)
        assert f"process {holder.process.pid}" in caught.value.message and "--fork" in caught.value.hint
        assert len(await store.messages.load(root.id)) == 1, "reading is free"
    finally:
        holder.kill()
    assert await store.leases.acquire(root.id) is True


async def test_the_lease_goes_with_the_boundary(store: Store, file: Path) -> None:
    (root,) = await chain(store, 1)
    await store.leases.acquire(root.id)
    child = await continued(store, root)
    holder = Holder(file, child.id)
    holder.kill()
    assert "SessionBusy" in holder.first or "Traceback" in holder.first
    assert await store.leases.acquire(child.id) is False, "still ours"


async def test_a_writer_that_was_taken_for_dead_finds_out_at_its_next_write(store: Store, file: Path) -> None:
    (root,) = await chain(store, 1)
    holder = Holder(file, root.id)
    try:
        assert holder.write("one") == "stored"
        with closing(sqlite3.connect(file)) as connection, connection:  # as if on another machine, long ago
            connection.execute("UPDATE lease SET host = 'elsewhere', heartbeat = 1.0")
        await store.leases.acquire(root.id)
        assert "SessionBusy" in (said_so := holder.write("two")) and f"process {os.getpid()}" in said_so
        assert [message.text for message in await store.messages.load(root.id)] == ["message 0", "one"]
    finally:
        holder.kill()


async def test_every_write_is_a_sign_of_life(store: Store, file: Path) -> None:
    (root,) = await chain(store, 1)
    await store.leases.acquire(root.id)
    with closing(sqlite3.connect(file)) as connection:
        with connection:
            connection.execute("UPDATE lease SET heartbeat = 1.0")
        await store.messages.add(root.id, replied("still here"))
        (beat,) = connection.execute("SELECT heartbeat FROM lease").fetchone()
    assert beat > 1.0
