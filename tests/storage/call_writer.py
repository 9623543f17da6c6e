"""A process of its own that runs many calls side by side until it is killed, and says what is committed.

`call_writer.py FILE SESSION`
"""

import asyncio
import sys
import time
from pathlib import Path

from support.stored import a_session, answered, replied, said

from crushpy.core.messages import ToolCall
from crushpy.storage.records import AuditEntry, CallStart
from crushpy.storage.store import Store

SIDE_BY_SIDE = 30


async def write_on(file: Path, session: str) -> None:
    store = Store(file)
    await store.sessions.create(a_session(id=session), said())

    async def run(name: str, reply: str) -> None:
        call = ToolCall(name, "view", {"file_path": name})
        await store.audit.append(session, [AuditEntry("decision", {"tool": "view"}, session, name)])
        print("decided", name, flush=True)
        await store.calls.begin(session, reply, call)
        print("begun", name, flush=True)
        await store.calls.finish(session, answered(call, name * 50))
        print("finished", name, flush=True)
        read = ToolCall(f"{name}-read", "view", {"file_path": name})
        entry = AuditEntry("decision", {"tool": "view"}, session, read.id)
        start = CallStart(reply, read, time.time(), session, entry)
        await store.calls.finish(session, answered(read, read.id * 50), start)
        print("finished", read.id, flush=True)

    number = 0
    while True:
        number += 1
        reply = replied("All of these.")
        await store.messages.add(session, reply)
        await asyncio.gather(*(run(f"{number}-{index}", reply.id) for index in range(SIDE_BY_SIDE)))


if __name__ == "__main__":
    asyncio.run(write_on(Path(sys.argv[1]), sys.argv[2]))
