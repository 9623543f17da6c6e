"""`python -m benchmarks.compaction.waiting`: how long a turn stands still at a compaction."""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.compaction import scenario
from benchmarks.compaction.drive import MODEL, opened, surroundings
from crushpy.core.events import BoundaryCommitted, Compacting, Event, PreparationChanged, SessionOpened
from crushpy.core.messages import Usage
from crushpy.engine.conversation import Conversation

PIECES = 20
NOTES = "## Goal\n" + "Carry on with the work as it was planned. " * 30
STEPS_A_TURN = 9


@dataclass
class Waits:
    """What was seen of one run."""

    milliseconds: list[float] = field(default_factory=list)
    """From the moment a boundary is begun until its child is open, as its listeners see it."""
    boundaries: list[BoundaryCommitted] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    """How often a preparation came to each state."""
    _since: float = 0.0

    def hear(self, event: Event) -> None:
        match event:
            case Compacting():
                self._since = time.perf_counter()
            case BoundaryCommitted():
                self.boundaries.append(event)
            case SessionOpened() if self._since:
                self.milliseconds.append((time.perf_counter() - self._since) * 1_000)
                self._since = 0.0
            case PreparationChanged():
                self.states[event.state] = self.states.get(event.state, 0) + 1
            case _:
                pass

    @property
    def moments(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for boundary in self.boundaries:
            name = boundary.moment or "threshold"
            found[name] = found.get(name, 0) + 1
        return found


class Worker:
    """A model that takes its time: it reads files, commits, and works through todos, by chance but the same
    each time. `seconds` are those of a summary, `step` those of a reply."""

    def __init__(self, tokens_a_step: int, seconds: float, step: float, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._tokens = tokens_a_step
        self._seconds = seconds
        self._step = step
        self._steps = self._work()

    def __call__(self, body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            size = len(NOTES) // PIECES + 1
            return Reply(NOTES, chunk=size, delay=self._seconds / PIECES, usage=Usage(50_000, 300))
        return next(self._steps)

    def _work(self) -> Iterator[Reply]:
        done = 0
        while True:
            for _ in range(STEPS_A_TURN):
                luck = self._chance.random()
                if luck < 0.06:
                    done += 1
                    yield self._reply(Call("todos", {"todos": _todos(done)}))
                elif luck < 0.10:
                    yield self._reply(Call("bash", {"command": "git commit -q --allow-empty -m step"}))
                else:
                    size = int(self._tokens * 4 * self._chance.lognormvariate(0, 0.6))
                    command = f"python3 -c \"print('word ' * {size // 5})\" | fold -w 100"
                    yield self._reply(Call("bash", {"command": command}))
            yield Reply("That is done.", delay=self._step / 3)

    def _reply(self, call: Call) -> Reply:
        return Reply("Now the next step.", calls=[call], delay=self._step / 5)  # between its six events


def _todos(done: int) -> list[dict[str, str]]:
    statuses = ["completed"] * done + ["in_progress", "pending"]
    return [{"text": f"step {number}", "status": status} for number, status in enumerate(statuses[-6:], done)]


async def measure_waits(
    *,
    prepare: bool,
    boundaries: int,
    seconds: float,
    step: float,
    window: int = 200_000,
    tokens_a_step: int = 2_500,
) -> Waits:
    """Works until there were so many boundaries. A summary takes `seconds`, a reply of the agent `step`."""
    waits = Waits()
    with ScriptedLLM() as llm:
        llm.always(Worker(tokens_a_step, seconds, step))
        with surroundings(scenario.make(scenario.Sizes(generations=1)), llm) as workspace:
            settings = {f'models."{MODEL}".context_window': window, "compaction.prepare": prepare}
            async with opened(workspace, settings) as conversation:
                conversation.subscribe(waits.hear)
                await _work_until(conversation, waits, boundaries, llm)
    return waits


async def _work_until(conversation: Conversation, waits: Waits, boundaries: int, llm: ScriptedLLM) -> None:
    while len(waits.boundaries) < boundaries:
        status = await conversation.ask("Take the next part of the work.")
        if status != "done":
            raise RuntimeError(f"a turn ended with {status}: {conversation.failure}")
        llm.requests.clear()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction.waiting", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="what a summary takes (20)")
    parser.add_argument("--step", type=float, default=4.0, help="what a reply of the agent takes (4)")
    parser.add_argument("--scale", type=float, default=0.1, help="of both: 1 for real time (0.1)")
    parser.add_argument("--boundaries", type=int, default=10)
    parser.add_argument("--window", type=int, default=200_000, metavar="TOKENS")
    chosen = parser.parse_args()
    print(
        f"a summary takes {chosen.seconds:g} s, a reply {chosen.step:g} s, times {chosen.scale:g}; "
        f"window {chosen.window:,} tokens"
    )
    for prepare in (True, False):
        waits = asyncio.run(
            measure_waits(
                prepare=prepare,
                boundaries=chosen.boundaries if prepare else max(1, chosen.boundaries // 5),
                seconds=chosen.seconds * chosen.scale,
                step=chosen.step * chosen.scale,
                window=chosen.window,
            )
        )
        print(_report(waits, "prepared" if prepare else "compaction.prepare = false"))


def _report(waits: Waits, title: str) -> str:
    ready = [
        ms
        for ms, millisecond in zip(waits.milliseconds, waits.boundaries, strict=True)
        if millisecond.prepared
    ]
    others = [
        ms
        for ms, millisecond in zip(waits.milliseconds, waits.boundaries, strict=True)
        if not millisecond.prepared
    ]
    lines = [f"\n{title}: {len(waits.boundaries)} boundaries, {waits.moments}"]
    for name, found in (("ready in time", ready), ("waited for", others)):
        if found:
            middle = sorted(found)[len(found) // 2]
            lines.append(
                f"  {name:<14} {len(found):>3}   median {middle:,.0f} ms, worst {max(found):,.0f} ms"
            )
    begun, lost = waits.states.get("preparing", 0), waits.states.get("discarded", 0)
    if begun:
        lines.append(
            f"  preparations   {begun:>3}   {lost} discarded, {waits.states.get('failed', 0)} failed"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
