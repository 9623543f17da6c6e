"""Crosses, undoes, pins, edits or forks, killed at every step.

`boundary_killer.py BASE DEED statements|instructions STEP`, where BASE is a database.
"""

import sys
from pathlib import Path

from support.killing import Countdown, kill_at_every_step, watch
from support.stored import a_session, answered, said

import crushpy.storage.sqlite_file as _  # loaded before it forks  # noqa: F401
from crushpy.core.boundary import StoredBoundary
from crushpy.core.messages import Message, MessageOverride, Pin, Seed, ToolCall
from crushpy.storage.store import Store

PARENT, CHILD, BOUNDARY = "parent000000", "child0000000", "boundary0000"
CALL = ToolCall("call_1", "new_session", {"summary": "x"})
LARGE = "s" * 200_000
"""More than SQLite may keep in memory: some of it is written before the transaction is over."""


async def cross(store: Store) -> None:
    child = a_session(id=CHILD, root_id=PARENT, parent_id=PARENT, kind="continuation", generation=1)
    seed = Message("seed00000000", "user", (Seed("summary", LARGE),), created_at=5.0)
    result = answered(CALL, f"continued in {CHILD}")
    boundary = StoredBoundary(BOUNDARY, PARENT, CHILD, "agent", created_at=5.0, tail=("m1", "m2"))
    await store.boundaries.add(
        boundary,
        child,
        seed,
        overrides=(MessageOverride("m1"), MessageOverride("m2")),
        result=Message("answer", "tool", result.parts),
    )


async def undo(store: Store) -> None:
    note = said("undone " + LARGE)
    await store.boundaries.undo(BOUNDARY, Message("note00000000", "user", note.parts))


async def pin(store: Store) -> None:
    await store.pins.add(PARENT, Pin(0, "text", LARGE))


async def edit(store: Store) -> None:
    await store.boundaries.add_overrides(
        PARENT, (MessageOverride("m1", kind="drop"), MessageOverride("m2", kind="shorten"))
    )


async def unpin(store: Store) -> None:
    await store.pins.remove(PARENT, 1)


async def fork(store: Store) -> None:
    branch = a_session(id=CHILD, root_id=PARENT, parent_id=PARENT, kind="fork", title=LARGE)
    boundary = StoredBoundary(BOUNDARY, PARENT, CHILD, "fork", created_at=5.0, tail=("m1",))
    await store.boundaries.add(boundary, branch, None, overrides=(MessageOverride("m1"),))


DEEDS = {"cross": cross, "undo": undo, "pin": pin, "unpin": unpin, "edit": edit, "fork": fork}


def main() -> None:
    base, what, how, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

    async def deed(file: Path, fatal: int) -> None:
        store = Store(file)
        await store.sessions.list_tips()
        await watch(store, how, Countdown(fatal))
        await DEEDS[what](store)

    kill_at_every_step(base, step, deed)


if __name__ == "__main__":
    main()
