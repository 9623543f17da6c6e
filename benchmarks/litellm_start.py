"""What litellm costs a user who types: keys while it loads, the way of the first request, memory.

    .venv/bin/python -m benchmarks.litellm_start

The real app on a pty, every request through litellm. A user types for five seconds, presses Enter and goes
on typing. Memory is the proportional share (PSS) of the app's own process and of what it started.
"""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.keys import EVERY, Recorder, ScriptedLLM

BEFORE = "qjzxkvw" * 5
"""Typed before Enter: five seconds."""
AFTER = "wvkxzjq" * 4


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="litellm-start-") as top:
        folder = Path(top)
        with ScriptedLLM() as llm:
            arrived: list[float] = []
            llm.always(lambda _: arrived.append(time.monotonic()) or "Hello.")
            env = {**llm.env, "CRUSHPY_MODEL": "openai/bench", "CRUSHPY_PROVIDER": "litellm"}
            env |= {"CRUSHPY_SMALL_MODEL": "demo/tour", "CRUSHPY_HOME": str(folder / "home")}
            with Recorder(cwd=folder, env=env, columns=120, rows=40) as terminal:
                terminal.wait_for("Ask anything", "bench")
                before = _type(terminal, BEFORE)
                entered = time.monotonic()
                terminal.press("\r")
                after = _type(terminal, AFTER)
                llm.wait_requests_blocking()
                terminal.record(2.0)
                own, others = _memory(terminal.process.pid)
                shown = terminal.replay(BEFORE, AFTER)
        _report("before Enter", before, shown[0])
        _report("after Enter", after, shown[1])
        print(f"Enter to the request's arrival: {(arrived[0] - entered) * 1_000:.0f} ms")
        print(f"memory: the app {own:.0f} MB, what it started {others:.0f} MB")


def _type(terminal: Recorder, keys: str) -> list[float]:
    pressed: list[float] = []
    for key in keys:
        pressed.append(time.monotonic())
        terminal.press(key)
        terminal.record(EVERY)
    return pressed


def _report(name: str, pressed: list[float], shown: list[float]) -> None:
    waits = [(at - press) * 1_000 for at, press in zip(shown, pressed, strict=True)]
    ninth = statistics.quantiles(waits, n=10)[-1]
    print(
        f"{name:13} {len(waits)} keys: median {statistics.median(waits):.1f} ms, "
        f"nine in ten below {ninth:.1f} ms, worst {max(waits):.1f} ms",
        flush=True,
    )


def _memory(app: int) -> tuple[float, float]:
    """Of the app and of all its descendants, in MB."""
    parents = {int(stat.parent.name): _parent(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    family = {app}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return _share(app), sum(_share(pid) for pid in family - {app})


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return 0


def _share(pid: int) -> float:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1_000


if __name__ == "__main__":
    main()
