"""What recording a decision costs: `python -m benchmarks.audit [--calls 2000]`.

Through the class that records every call, on a real database file; redaction included.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from crushpy.core.access import Access
from crushpy.core.messages import CallDecision, ToolCall
from crushpy.engine.approvals import Ruling
from crushpy.engine.hooks import ObservedCall
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.permissions.decision import Decision
from crushpy.storage.store import Store

COMMAND = "git log --oneline -20 && npm run test -- --watch=false src/components"


async def measure(calls: int, folder: Path) -> None:
    store = Store(folder / "crushpy.db")
    trail = AuditTrail(store, "root")
    part = Decision("allow", "allowed by the rule bash(git log)", about="git log --oneline -20")
    ruling = Ruling(Decision("allow", part.reason, parts=(part, part)))
    decision = CallDecision("allowed", "rules", time.time(), part.reason, sandbox="bubblewrap", mode="ask")
    access = (Access("bash", "command", COMMAND, writes=True),)
    taken: list[float] = []
    for number in range(calls + 20):
        call = ToolCall(f"call{number}", "bash", {"command": COMMAND})
        watched = ObservedCall("session", "message", call, access, decision)
        begun = time.perf_counter()
        await trail.record(watched, ruling)
        taken.append((time.perf_counter() - begun) * 1_000)
    taken = sorted(taken[20:])  # the first ones load modules
    await store.close()
    print(f"recording a decision: median {statistics.median(taken):.2f} ms, ", end="")
    print(f"95% below {taken[int(len(taken) * 0.95)]:.2f} ms, {calls:,} calls")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given.calls, Path(folder)))


if __name__ == "__main__":
    main()
