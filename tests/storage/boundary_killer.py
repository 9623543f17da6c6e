"""Crosses, undoes, pins or edits again and again, each time on a copy of a database and killed later.

`boundary_killer.py BASE cross|undo|pin|edit statements|instructions STEP` forks a process for each moment:
it kills itself, with SIGKILL, before the n-th SQL statement (or the n-th instruction of SQLite's machine) of
the transaction, for n = 1, 1 + STEP, ... until one comes through. The copies are BASE.1, BASE.2, ...; how
many were killed is printed.
"""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from stored import a_session, answered, said

from crushpy.messages import Cut, Message, Pin, Seed, ToolCall
from crushpy.storage.loading import load_tables
from crushpy.storage.records import BoundaryInfo
from crushpy.storage.store import Store

PARENT, CHILD, BOUNDARY = "parent000000", "child0000000", "boundary0000"
CALL = ToolCall("call_1", "new_session", {"summary": "x"})
LARGE = "s" * 200_000
"""More than SQLite may keep in memory: some of it is written before the transaction is over."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def cross(store: Store) -> None:
    child = a_session(id=CHILD, root_id=PARENT, parent_id=PARENT, kind="continuation", generation=1)
    seed = Message("seed00000000", "user", (Seed("summary", LARGE),), created_at=5.0)
    result = answered(CALL, f"continued in {CHILD}")
    boundary = BoundaryInfo(BOUNDARY, PARENT, CHILD, "agent", 5.0, ("m1", "m2"))
    await store.add_boundary(
        boundary, child, seed, cuts=(Cut("m1"), Cut("m2")), result=Message("answer", "tool", result.parts)
    )


async def undo(store: Store) -> None:
    note = said("undone " + LARGE)
    await store.undo(BOUNDARY, Message("note00000000", "user", note.parts))


async def pin(store: Store) -> None:
    await store.add_pin(PARENT, Pin(0, "text", LARGE), ())


async def edit(store: Store) -> None:
    await store.add_cuts(PARENT, (Cut("m1", kind="drop"), Cut("m2", kind="cut")))


DEEDS = {"cross": cross, "undo": undo, "pin": pin, "edit": edit}


async def run(file: Path, what: str, how: str, fatal: int) -> None:
    store = Store(file)
    await store.conversation_tips()
    seen = 0

    def step(*_: Any) -> int:
        nonlocal seen
        seen += 1
        if seen == fatal:
            die()
        return 0

    def watch(database: Any) -> None:
        raw = database.connection._raw
        raw.execute("PRAGMA cache_size = 10")
        raw.set_trace_callback(step) if how == "statements" else raw.set_progress_handler(step, 1)

    await store._do(watch)
    await DEEDS[what](store)
    os._exit(0)  # not closed: whoever comes next finds the log as a crash leaves it


def main() -> None:
    base, what, how, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    load_tables()
    killed = 0
    while True:
        file = base.with_name(f"{base.name}.{killed + 1}")
        shutil.copy(base, file)
        child = os.fork()
        if child == 0:
            asyncio.run(run(file, what, how, 1 + killed * step))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
        print(killed)
        return


if __name__ == "__main__":
    main()
