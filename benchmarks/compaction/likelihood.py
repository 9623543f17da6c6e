"""`python -m benchmarks.compaction.likelihood FOLDER [--scores FILE]`: whether a model uses "Names seen".

Without scores, writes one JSON object a line for a scorer of texts (teacher forcing): what a child starts
with at a window of 32k, then the places where the agent wrote names that it needed, which are the spans. Each
cut is written three times: as it is, without the list, and with the list of another project. With the scores,
prints how likely the names were. Keep both files outside the repository: they quote the sessions.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compaction.hindsight import Bench, Cut, load, supposed, without
from crushpy.context.facts import said_in
from crushpy.context.names import ShownNames
from crushpy.core.messages import Message
from crushpy.llm.tokens import Counter
from crushpy.storage.store import Store

START, END = "Names seen:\n", "\n</evidence>"
WINDOW = 32_000
MIN_ADDED = 4
"""Needed names that only the list carries; a cut with fewer says little."""
BEFORE_CHARS, RESULT_CHARS = 240, 160
"""Of what the agent wrote before a name, and of each result."""


class Place(NamedTuple):
    """Where the agent wrote a needed name."""

    messages: list[list[str]]
    spans: list[list[int]]
    names: list[str]


def places(after: Sequence[Message], names: Sequence[str], count: Callable[[str], int], tokens: int) -> Place:
    """The replies that use the names first, in short, within so many tokens."""
    left, found = list(names), Place([], [], [])
    for message in after:
        text = said_in(message).strip()
        if message.role != "assistant":
            part = text[:RESULT_CHARS]
        else:
            used = sorted((text.find(name), name) for name in left if name in text)
            if not used:
                continue
            begin, end = max(0, used[0][0] - BEFORE_CHARS), used[0][0]
            for at, name in used:
                if at - end > BEFORE_CHARS:
                    break
                end = max(end, at + len(name))
                left.remove(name)
                found.spans.append([len(found.messages) + 1, at - begin, at + len(name) - begin])
                found.names.append(name)
            part = text[begin:end]
        tokens -= count(part) + 8
        if tokens < 0:
            break
        if message.role == "assistant" or (found.messages and found.messages[-1][0] == "assistant"):
            found.messages.append(["assistant" if message.role == "assistant" else "user", part])
    kept = [place for place, span in enumerate(found.spans) if span[0] <= len(found.messages)]
    return Place(found.messages, [found.spans[k] for k in kept], [found.names[k] for k in kept])


def items(
    count: Callable[[str], int], cuts: Sequence[tuple[str, Cut, str]], most: int, number: int
) -> Iterator[dict[str, Any]]:
    """Three items for each of the first cuts that have enough to say."""
    lists = {project: text.partition(START)[2].partition(END)[0] for project, _, text in cuts}
    for at, (project, cut, text) in enumerate(cuts):
        bare = without(text, START, END)
        other = next((names for name, names in lists.items() if name != project and names), "")
        known, only = ShownNames(bare), [name for name in cut.judge(text).names if name.carried]
        added = [name.name for name in only if name.name not in known]
        room = most - count(text)
        found = places(cut.after, [*added, *(name.name for name in only if name.name in known)], count, room)
        is_added = [name in added for name in found.names]
        if sum(is_added) < MIN_ADDED or not other:
            continue
        size = count(text) - count(bare)
        while count(other) > size:
            other = other[: len(other) * size // count(other)]
        control = text.replace(text.partition(START)[2].partition(END)[0], other)
        for kind, start in (("with", text), ("without", bare), ("another project's", control)):
            about = {"id": json.dumps([at, kind, is_added]), "spans": found.spans}
            yield about | {"messages": [["user", start], *found.messages]}
        number -= 1
        if not number:
            return


def report(scores: Path) -> Iterator[str]:
    """The likelihoods, by what carried the names."""
    found = defaultdict[tuple[bool, str], list[tuple[float, bool]]](list)
    done = defaultdict[int, dict[str, Any]](dict)
    for line in scores.read_text("utf-8").splitlines():
        score = json.loads(line)
        cut, kind, is_added = json.loads(score["id"])
        done[cut][kind] = score["spans"], is_added
    for kinds in done.values():
        if len(kinds) == 3:
            for kind, (spans, is_added) in kinds.items():
                for (loss, _, exact), added in zip(spans, is_added, strict=True):
                    found[added, kind].append((loss, exact))
    yield "| names carried | list | names | negative log-likelihood: median, mean | written exactly |"
    yield "| --- | --- | --- | --- | --- |"
    for (added, kind), pairs in sorted(found.items(), reverse=True):
        losses = [loss for loss, _ in pairs]
        figures = f"{statistics.median(losses):.2f}, {statistics.mean(losses):.2f}"
        told = "only by the list" if added else "without it"
        yield f"| {told} | {kind} | {len(pairs)} | {figures} | {sum(exact for _, exact in pairs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction.likelihood", description=__doc__)
    parser.add_argument("folder", type=Path, help="sessions of other agents, a folder for each project")
    parser.add_argument("--scores", type=Path, help="the scorer's output")
    parser.add_argument("--cuts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=6_000, help="of an item, at most")
    options = parser.parse_args()
    if options.scores:
        print("\n".join(report(options.scores)))
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["CRUSHPY_HOME"] = home
        from crushpy.cli.workspace import load_models

        counter = Counter("openai/gpt-4o")
        counter.start()
        counter.wait()

        def count(text: str) -> int:
            return counter.count(text)[0]

        known = load_models()
        cuts: list[tuple[int, str, Cut, str]] = []
        for folder in sorted(path for path in options.folder.iterdir() if path.is_dir()):
            bench = Bench(Store(Path(home) / f"{folder.name}.db"), *known, counter)
            for number, recording in enumerate(asyncio.run(load(folder, bench.store))):
                first = islice(supposed(bench, recording, WINDOW), 1)
                cuts += [(number, folder.name, cut, text) for cut, text in first]
        by_turns = [(project, cut, text) for _, project, cut, text in sorted(cuts, key=lambda cut: cut[:2])]
        for item in items(count, by_turns, options.tokens, options.cuts):
            print(json.dumps(item), flush=True)


if __name__ == "__main__":
    main()
