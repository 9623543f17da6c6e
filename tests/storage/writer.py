"""A process of its own that writes to a store and says on stdout what is committed, line by line.

`writer.py FILE URL SESSION COUNT` appends that many messages; with COUNT 0 it goes on until it is killed, and
runs tool calls as well.
"""

import asyncio
import sys
from pathlib import Path

from support.places import Place
from support.stored import a_session, answered, replied, said

from crushpy.core.messages import ToolCall, Usage


def committed(*words: str) -> None:
    print(*words, flush=True)


async def write(place: Place, session: str, count: int) -> None:
    store = place.store()
    for number in range(count):
        await store.messages.add(session, said(f"{session} {number}"))
    await store.close()


async def write_on(place: Place, session: str) -> None:
    store = place.store()
    await store.sessions.create(a_session(id=session), said(f"{session} first"))
    number = 0
    while True:
        number += 1
        prompt = said(f"prompt {number}")
        await store.messages.add(session, prompt)
        committed("message", prompt.id)
        call = ToolCall(f"call {number}", "bash", {"command": "x" * (number * 37 % 9000)})
        reply = replied("I shall.", call, usage=Usage(10, 1))
        await store.messages.add(session, reply)
        committed("message", reply.id)
        await store.calls.begin(session, reply.id, call)
        committed("begun", str(number))
        result = answered(call, "y" * (number * 101 % 20_000))
        await store.calls.finish(session, result)
        committed("message", result.id)
        committed("finished", str(number))


if __name__ == "__main__":
    place, session, count = Place(Path(sys.argv[1]), sys.argv[2]), sys.argv[3], int(sys.argv[4])
    asyncio.run(write(place, session, count) if count else write_on(place, session))
