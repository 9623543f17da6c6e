"""`sessions delete` of one conversation among many, all in the index, while another process writes."""

import asyncio
import time
from pathlib import Path

from benchmarks.scale.database import store_of
from benchmarks.scale.many_conversations import FIRST, many_conversations
from benchmarks.scale.timed_command import crushpy
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Text

SIZES = "100,2k,20k"
AIM = "under 0.5 s, no writer waits 100 ms"
_EVERY = 0.005


def measure(conversations: int) -> dict[str, float]:
    with many_conversations(conversations, indexed=True) as (cwd, env):
        start, _ = crushpy("sessions", "show", "none", cwd=cwd, env=env, may_fail=True)
        return asyncio.run(_measure(cwd, env, start["s CPU"]))


async def _measure(cwd: Path, env: dict[str, str], start: float) -> dict[str, float]:
    store = store_of(env)
    await store.leases.acquire(FIRST)
    waits: list[float] = []
    deleted = asyncio.create_task(
        asyncio.to_thread(crushpy, "sessions", "delete", "c00000000001", "--yes", cwd=cwd, env=env)
    )
    while not deleted.done():
        begun = time.monotonic()
        await store.messages.add(FIRST, Message(new_id(), "assistant", (Text("Meanwhile."),), time.time()))
        waits.append((time.monotonic() - begun) * 1_000)
        await asyncio.sleep(_EVERY)
    await store.close()
    used, _ = deleted.result()
    return {
        "s": used["s"],
        "s CPU": used["s CPU"],
        "without start": used["s CPU"] - start,
        "writer worst ms": max(waits),
        "writer median": sorted(waits)[len(waits) // 2],
    }
