"""`python -m benchmarks.compaction.folding`: one task with eight digressions, done in four ways.

The same scripted work each time: for every part of the task six files are read and a short note is written.
With `auto` and `new_session` the reading stays in the context until a compaction, with `task` a sub-agent
reads, with `branch` the reading is folded. Tokens are characters / 4; cached are those of the longest
beginning that an earlier request had, in whole messages.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.compaction import scenario
from benchmarks.compaction.drive import MODEL, opened, surroundings
from crushpy.core.messages import Usage

DIGRESSIONS, FILES, FILE_CHARS = 8, 6, 10_000
NOTES = "## Goal\n" + "Carry on with the parts of the work that are left, as planned. " * 40
RESULT = "The six files agree: the rate is read in one place and written in two. " * 6
METHODS = ("auto", "new_session", "task", "branch")


@dataclass
class Spent:
    """What one way of working used."""

    calls: int = 0
    peak: int = 0
    """Of the requests of the agent and its sub-agents."""
    input_tokens: int = 0
    cached: int = 0
    compactions: int = 0
    _seen: list[list[str]] = field(default_factory=list)

    def add(self, body: dict[str, Any], *, summary: bool = False) -> Usage:
        """Counts a request; its usage as the server reports it."""
        messages = [json.dumps(message) for message in body["messages"]]
        if "context_status" in messages[-1] and body["messages"][-1]["role"] == "system":
            messages.pop()
        whole = [json.dumps(body.get("tools", [])), *messages]
        cached = max((_common(before, whole) for before in self._seen), default=0)
        self._seen.append(whole)
        tokens = sum(map(len, whole)) // 4
        self.calls += 1
        self.input_tokens += tokens
        self.cached += cached
        self.peak = self.peak if summary else max(self.peak, tokens)
        return Usage(tokens - cached, 40, cached)


def _common(one: list[str], other: list[str]) -> int:
    size = 0
    for before, now in zip(one, other, strict=False):
        if before != now:
            break
        size += len(now)
    return size // 4


class Worker:
    """The scripted model of one way of working."""

    def __init__(self, method: str) -> None:
        self.spent = Spent()
        self._method = method
        self._steps = self._work()

    def __call__(self, body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            self.spent.compactions += 1
            return Reply(NOTES, usage=self.spent.add(body, summary=True))
        names = {tool["function"]["name"] for tool in body.get("tools", ())}
        usage = self.spent.add(body)
        if "task" not in names:
            return self._read_for_task(body, usage)
        full = re.search(r'used_pct\\*":(\d+)', json.dumps(body["messages"][-1]))
        if self._method == "new_session" and full and int(full[1]) >= 75:
            self.spent.compactions += 1
            return Reply(calls=[Call("new_session", {"summary": NOTES})], usage=usage)
        call = next(self._steps, None)
        return (
            Reply("Next.", calls=[call], usage=usage) if call else Reply("All parts are done.", usage=usage)
        )

    def _work(self) -> Iterator[Call]:
        for part in range(DIGRESSIONS):
            goal = f"Find out how the files of part {part} use the rate."
            if self._method == "task":
                yield Call("task", {"prompt": goal, "read_only": True})
            else:
                if self._method == "branch":
                    yield Call("branch", {"goal": goal})
                for number in range(FILES):
                    yield Call("view", {"file_path": f"part{part}_{number}.txt"})
                if self._method == "branch":
                    yield Call("return_to_parent", {"result": RESULT})
            yield Call("write", {"file_path": f"note{part}.md", "content": RESULT})

    def _read_for_task(self, body: dict[str, Any], usage: Usage) -> Reply:
        done = sum(message["role"] == "tool" for message in body["messages"])
        part = re.search(r"part (\d)", json.dumps(body["messages"][1:]))
        if done == FILES or part is None:
            return Reply(RESULT, usage=usage)
        return Reply("Next.", calls=[Call("view", {"file_path": f"part{part[1]}_{done}.txt"})], usage=usage)


async def measure_folding(method: str, window: int) -> Spent:
    """Does the whole task in one way."""
    worker = Worker(method)
    with ScriptedLLM() as llm:
        llm.always(worker)
        with surroundings(scenario.make(scenario.Sizes(generations=1)), llm) as workspace:
            _lay_out(workspace)
            settings: dict[str, object] = {
                f'models."{MODEL}".context_window': window,
                "compaction.method": "llm" if method in ("new_session", "branch") else "auto",
                "compaction.prepare": False,
            }
            async with opened(workspace, settings) as conversation:
                status = await conversation.ask("Work through all eight parts and write a note about each.")
                if status != "done":
                    raise RuntimeError(f"{method} ended with {status}: {conversation.failure}")
    return worker.spent


def _lay_out(workspace: Path) -> None:
    for part in range(DIGRESSIONS):
        for number in range(FILES):
            line = f"part {part}, file {number}: the rate is read here and nowhere else\n"
            (workspace / f"part{part}_{number}.txt").write_text(line * (FILE_CHARS // len(line)))


def table(results: dict[str, Spent]) -> str:
    rows = ["| way | peak window | input tokens | cached | model calls | compactions |", "| --- " * 6 + "|"]
    for method, spent in results.items():
        share = f"{100 * spent.cached // max(1, spent.input_tokens)}%"
        figures = f"{spent.peak:,} | {spent.input_tokens:,} | {share} | {spent.calls} | {spent.compactions}"
        rows.append(f"| `{method}` | {figures} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction.folding", description=__doc__)
    parser.add_argument("--window", type=int, default=100_000, metavar="TOKENS")
    window = parser.parse_args().window
    print(f"{DIGRESSIONS} digressions of {FILES} files with {FILE_CHARS:,} characters; window {window:,}\n")
    print(table({method: asyncio.run(measure_folding(method, window)) for method in METHODS}))


if __name__ == "__main__":
    main()
