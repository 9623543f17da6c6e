"""`python -m benchmarks.compaction.hindsight FOLDER`: what of the names needed later each policy carries.

FOLDER holds sessions of other agents, in their own formats. Each is cut where a window of 32k, 64k and 128k
tokens would have been full, and where its own agent compacted it, and no summary of ours counts: see
"Hindsight" in docs/context.md. Nothing of the sessions is printed or kept.
"""

import argparse
import asyncio
import os
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from crushpy.context.facts import calls, said_in, touched_by
from crushpy.context.hindsight import FIRST_REPLIES, Hindsight, Needs, Past, find_needs
from crushpy.context.names import IDENTIFIER, PATH, ShownNames, count_names, generic_names
from crushpy.core.messages import Message, Usage
from crushpy.core.templates import Templates
from crushpy.engine.compaction.judged_boundaries import without_usage
from crushpy.engine.compaction.pins_and_rules import rule_phrases
from crushpy.engine.compaction.replay import (
    RecordedSession,
    Recording,
    Replay,
    ReplayChanges,
    Replayer,
    load_recording,
    start_text,
)
from crushpy.engine.models import Models
from crushpy.engine.session.importing import SessionImporter
from crushpy.importers import find_source
from crushpy.llm.tokens import Counter
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

WINDOWS = (32_000, 64_000, 128_000)
REAL_WINDOW = 200_000
"""Of the agents whose own compactions are judged."""
MOST_CARRIED = 0.375
"""Of the window: with half of the threshold, as much as a child may start with."""
CARRIES = ("full", "normal", "lean")
MAX_BOUNDARIES = 3
"""Of one session and window."""
SAMPLES = 1_000
"""Of the bootstrap over sessions."""


class Bench(NamedTuple):
    store: Store
    settings: Settings
    models: Models
    counter: Counter

    def count(self, text: str) -> int:
        return self.counter.count(text)[0]

    def starts(self, recording: Recording, changes: ReplayChanges) -> list[tuple[int, str]]:
        """How many messages precede each boundary of a replay, and what its child starts with."""
        replay, starts = self.replay(recording, changes)
        return [(boundary.number, start) for boundary, start in zip(replay.boundaries, starts, strict=True)]

    def replay(self, recording: Recording, changes: ReplayChanges) -> tuple[Replay, list[str]]:
        replayer = Replayer(self.store, recording, self.settings, self.models, changes)
        return asyncio.run(replayer.run()), replayer.starts


class Cut:
    """One boundary: what precedes it, what follows, and what policies are compared by."""

    def __init__(self, bench: Bench, before: Sequence[Message], after: Sequence[Message], cwd: str) -> None:
        self._count, self._before, self.after = bench.count, before, after
        self._past = Past(before, cwd)

    def judge(self, carried: str) -> Hindsight:
        return self._needs.judge(carried)

    @cached_property
    def _needs(self) -> Needs:
        return find_needs(self._past, self.after, size=lambda _: 0)

    @cached_property
    def _needs_of_results(self) -> Needs:
        """As if no result had been seen."""
        replies = [message for message in self.after if message.role == "assistant"]
        return find_needs(self._past, replies, size=lambda _: 0)

    @property
    def is_long(self) -> bool:
        return self.judge("").replies >= FIRST_REPLIES

    def looked_up(self, carried: str) -> tuple[int, int]:
        """The names of before that the agent used after a result had shown them again: how many there are,
        and how many of them were carried."""
        used = self._needs_of_results.judge(carried)
        needed = {name.name for name in self.judge("").names}
        again = [name for name in used.names if name.name not in needed]
        return len(again), sum(name.carried for name in again)

    def last(self, tokens: int) -> str:
        """The last messages as text, in this many tokens."""
        parts: list[str] = []
        for message in reversed(self._before):
            text = said_in(message)
            size = self._count(text)
            parts.append(text if size <= tokens else text[-tokens * 3 :])
            tokens -= size
            if tokens <= 0:
                break
        return "\n".join(reversed(parts))

    def first_and_last(self, tokens: int) -> str:
        prompts = (message.text for message in self._before if message.role == "user" and message.text)
        first = next(prompts, "")[: tokens * 2]
        return f"{first}\n{self.last(tokens - self._count(first))}"

    def filled(self, carried: str, names: Sequence[str], tokens: int) -> str:
        """`carried` with as many of `names` as have room in `tokens`."""
        chosen: list[str] = []
        for name in names:
            tokens -= self._count(name) + 1
            if tokens < 0:
                break
            chosen.append(name)
        return f"{carried}\n{', '.join(chosen)}"

    def edited_parts(self, tokens: int) -> str:
        """The parts of files that were last read, in this many tokens: first those that were changed."""
        pairs = list(calls(self._before))
        touched = [(file, result) for call, result in pairs for file in touched_by(call, result)]
        changed = {file.path for file, _ in touched if file.action != "read"}
        read = {file.path: result.text for file, result in touched if file.action == "read"}
        last_first = sorted(read.items(), key=lambda part: part[0] in changed)[::-1]
        parts: list[str] = []
        for path, text in last_first:
            tokens -= self._count(text)
            parts.append(f"{path}\n{text if tokens >= 0 else text[: tokens * 3]}")
            if tokens <= 0:
                break
        return "\n".join(parts)

    def random_names(self, carried: str, tokens: int, seed: int) -> str:
        known = ShownNames(carried)
        names = sorted(name for name in self._names - generic_names() if name not in known)
        random.Random(seed).shuffle(names)
        return self.filled(carried, names, tokens)

    def oracle(self, carried: str, tokens: int) -> str:
        """With the names that will be needed, the shortest first."""
        needed = [name.name for name in self.judge(carried).names if not name.carried]
        return self.filled(carried, sorted(needed, key=len), tokens)

    @cached_property
    def _names(self) -> set[str]:
        return {name for message in self._before for name in count_names(said_in(message))}


def without(carried: str, start: str, end: str) -> str:
    """`carried` without what stands between two marks."""
    before, _, after = carried.partition(start)
    return before + after.partition(end)[2] if after else carried


def policies(bench: Bench, cut: Cut, carried: str, window: int, seed: int) -> dict[str, str]:
    """What each policy carries; unless the name says something else, in as many tokens as crushpy."""
    tokens = bench.count(carried)
    bare = without(carried, "Names seen:\n", "\n</evidence>")
    room, most = tokens - bench.count(bare), int(window * MOST_CARRIED) - window // 20
    rules = carried.partition("<evidence>")[0]
    facts = carried.partition("</evidence>")[0]
    return {
        "crushpy": carried,
        "smaller: without its names": bare,
        "larger: with all the tail there is room for": f"{facts}\n{cut.last(most - bench.count(facts))}",
        "parts of edited files in place of names": f"{bare}\n{cut.edited_parts(room)}",
        "random names in place of ours": cut.random_names(bare, room, seed),
        "without evidence, more tail": f"{rules}\n{cut.last(tokens - bench.count(rules))}",
        "the last N tokens": cut.last(tokens),
        "the first prompt and the last N": cut.first_and_last(tokens),
        "oracle: the needed names in that room": cut.oracle(bare, room),
    }


async def load(folder: Path, store: Store) -> list[Recording]:
    """Imports every session below `folder`."""
    importer = SessionImporter(store, compaction="auto")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if (source := find_source(file)) is not None:
            _ = [outcome async for outcome in importer.run(source, source.sessions(file))]
    tips = await store.sessions.list_tips()
    return [await load_recording(store, info.id, rule_phrases(Templates())) for info in tips]


def supposed(bench: Bench, recording: Recording, window: int) -> Iterator[tuple[Cut, str]]:
    """Where the window would have been full, and what crushpy carries there."""
    for _, cut, start in supposed_cuts(bench, recording, window):
        yield cut, start


def supposed_cuts(bench: Bench, recording: Recording, window: int) -> Iterator[tuple[int, Cut, str]]:
    """The same, each after the number of messages before it."""
    messages, ends = _messages(recording.sessions)
    changes = ReplayChanges(window=window, method="auto")
    for number, start in bench.starts(without_usage(recording), changes)[:MAX_BOUNDARIES]:
        end = next((end for end in ends if end > number), len(messages))
        cut = Cut(bench, messages[:number], messages[number:end], recording.sessions[-1].info.cwd)
        if cut.is_long:
            yield number, cut, start


def compacted(bench: Bench, recording: Recording) -> Iterator[tuple[Cut, dict[str, str]]]:
    """The boundaries of the session's own agent, and what each policy carries there."""
    messages, ends = _messages(recording.sessions)
    if not ends:
        return
    by_hand = msgspec.structs.replace(
        without_usage(recording), sessions=tuple(map(_by_hand, without_usage(recording).sessions))
    )
    changes = ReplayChanges(method="auto", threshold="off", window=REAL_WINDOW)
    carried = {
        carry: dict(bench.starts(by_hand, msgspec.structs.replace(changes, carry=carry))) for carry in CARRIES
    }
    for number, end in zip(ends, (*ends[1:], len(messages)), strict=True):
        session = recording.sessions[ends.index(number) + 1]
        cut = Cut(bench, messages[:number], messages[number:end], session.info.cwd)
        if not session.start or number not in carried["full"] or not cut.is_long:
            continue
        summary, ours = start_text(session.start), {carry: carried[carry][number] for carry in CARRIES}
        size = bench.count(summary)
        yield (
            cut,
            {
                "the agent's own summary": summary,
                **{f"crushpy, `{carry}`": text for carry, text in ours.items()},
                "`lean`, cut to the summary's size": _at_size(bench, ours["lean"], size),
                "`full` without its names": without(ours["full"], "Names seen:\n", "\n</evidence>"),
                "`full` and the agent's own summary": f"{ours['full']}\n{summary}",
                "the last N tokens, in the size of `full`": cut.last(bench.count(ours["full"])),
                "the last N tokens, in the summary's size": cut.last(size),
            },
        )


def _at_size(bench: Bench, carried: str, tokens: int) -> str:
    """The beginning of `carried`, in this many tokens."""
    while (size := bench.count(carried)) > tokens:
        carried = carried[: len(carried) * tokens // size]
    return carried


def _by_hand(session: RecordedSession) -> RecordedSession:
    """As if the boundary that opened it had been asked for, and nothing of it were known."""
    made = session.boundary and msgspec.structs.replace(session.boundary, trigger="manual")
    return msgspec.structs.replace(session, boundary=made, start=())


def _messages(sessions: Sequence[RecordedSession]) -> tuple[list[Message], list[int]]:
    """All messages, and how many precede each compaction of the other agent."""
    messages: list[Message] = []
    ends: list[int] = []
    for session in sessions:
        ends += [len(messages)] if messages else []
        messages += [message for message, _ in session.own]
    return messages, ends


def interval(shares: Sequence[tuple[int, int]]) -> str:
    """The share of all names, with a 95% interval over sessions."""
    if not sum(needed for needed, _ in shares):
        return "-"
    chance = random.Random(7)
    means = sorted(_share(chance.choices(shares, k=len(shares))) for _ in range(SAMPLES))
    low, high = means[int(SAMPLES * 0.025)], means[int(SAMPLES * 0.975)]
    return f"{_share(shares):.1%} [{low:.0%}-{high:.0%}]"


def mean_size(sizes: Sequence[tuple[int, int]]) -> str:
    return f"{_share(sizes):,.0f}"


def _share(shares: Sequence[tuple[int, int]]) -> float:
    needed = sum(needed for needed, _ in shares)
    return sum(carried for _, carried in shares) / needed if needed else 0.0


def _added(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(needed for needed, _ in pairs), sum(carried for _, carried in pairs)


def by_window(bench: Bench, recordings: Sequence[Recording]) -> Iterator[str]:
    """The tables of supposed boundaries."""
    names, lines, sizes = (defaultdict[str, dict[int, list[tuple[int, int]]]](dict) for _ in range(3))
    for window in WINDOWS:
        for number, recording in enumerate(recordings):
            found = defaultdict[str, list[tuple[Hindsight, int]]](list)
            for cut, start in supposed(bench, recording, window):
                for policy, text in policies(bench, cut, start, window, number).items():
                    found[policy].append((cut.judge(text), bench.count(text)))
            for policy, judged in found.items():
                named = _added([(len(hindsight.names), hindsight.carried) for hindsight, _ in judged])
                names[policy].setdefault(window, []).append(named)
                lines[policy].setdefault(window, []).append(
                    _added([hindsight.lines for hindsight, _ in judged])
                )
                sizes[policy].setdefault(window, []).extend((1, size) for _, size in judged)
    for title, table, show in (
        ("names", names, interval),
        ("lines of code that an edit reproduced", lines, interval),
        ("tokens", sizes, mean_size),
    ):
        yield f"\n| {title} | " + " | ".join(f"{window // 1_000}k" for window in WINDOWS) + " |"
        yield "| --- " * (len(WINDOWS) + 1) + "|"
        for policy, found in table.items():
            shown = (show(found[window]) if found.get(window) else "-" for window in WINDOWS)
            yield f"| {policy} | " + " | ".join(shown) + " |"


def by_carry(bench: Bench, recordings: Sequence[Recording]) -> Iterator[str]:
    """What whole sessions cost with each `compaction.carry`, and which of the needed names they carried."""
    yield "\n| window | carry | compactions | million input tokens | read from the cache | cost | names |"
    yield "| --- " * 7 + "|"
    for window in WINDOWS:
        for carry in CARRIES:
            total, made, names = Usage(), 0, list[tuple[int, int]]()
            for recording in recordings:
                changes = ReplayChanges(window=window, method="auto", carry=carry)
                replay, starts = bench.replay(without_usage(recording), changes)
                total, made = total + replay.usage, made + len(starts)
                numbers = [boundary.number for boundary in replay.boundaries]
                names += names_carried(bench, recording, list(zip(numbers, starts, strict=True)))
            asked = total.total - total.output_tokens
            cached = f"{total.cache_read_tokens / asked:.0%} | ${total.cost:.0f}"
            row = f"{window // 1_000}k | {carry} | {made} | {asked / 1e6:.0f} | {cached}"
            yield f"| {row} | {interval(names)} |"


def names_carried(bench: Bench, recording: Recording, starts: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """The names needed after the boundaries of a replay, up to the next, and those carried, in a pair."""
    messages, _ = _messages(recording.sessions)
    found: list[tuple[int, int]] = []
    ends = [*(number for number, _ in starts[1:]), len(messages)]
    for (number, start), end in zip(starts, ends, strict=False):
        cut = Cut(bench, messages[:number], messages[number:end], recording.sessions[-1].info.cwd)
        judged = cut.judge(start)
        found += [(len(judged.names), judged.carried)] if cut.is_long else []
    return [_added(found)] if found else []


def at_compactions(bench: Bench, recordings: Sequence[Recording]) -> Iterator[str]:
    """The table of the boundaries that other agents made."""
    found = [list(compacted(bench, recording)) for recording in recordings]
    found = [cuts for cuts in found if cuts]
    yield f"\n{sum(map(len, found))} compactions of other agents, in {len(found)} sessions"
    yield "| carried | tokens | names | paths / identifiers | names looked up again | lines for edits |"
    yield "| --- " * 6 + "|"
    for policy in found[0][0][1] if found else ():
        tokens: list[int] = []
        names, again, lines = (list[tuple[int, int]]() for _ in range(3))
        kinds = defaultdict[str, list[tuple[int, int]]](list)
        for cuts in found:
            judged = [(cut, texts[policy], cut.judge(texts[policy])) for cut, texts in cuts]
            tokens += [bench.count(text) for _, text, _ in judged]
            names.append(_added([(len(hindsight.names), hindsight.carried) for _, _, hindsight in judged]))
            again.append(_added([cut.looked_up(text) for cut, text, _ in judged]))
            lines.append(_added([hindsight.lines for _, _, hindsight in judged]))
            for name in (name for _, _, hindsight in judged for name in hindsight.names):
                kinds[name.kind].append((1, name.carried))
        by_kind = " / ".join(f"{_share(kinds[kind]):.0%}" for kind in (PATH, IDENTIFIER))
        shares = f"{interval(names)} | {by_kind} | {_share(again):.0%} | {_share(lines):.0%}"
        yield f"| {policy} | {statistics.mean(tokens):,.0f} | {shares} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction.hindsight", description=__doc__)
    parser.add_argument("folder", type=Path, help="sessions of other agents")
    parser.add_argument("--carry", action="store_true", help="also what whole sessions cost with each carry")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["CRUSHPY_HOME"] = home
        from crushpy.cli.workspace import load_models

        counter = Counter("openai/gpt-4o")
        counter.start()
        counter.wait()
        bench = Bench(Store(Path(home) / "crushpy.db"), *load_models(), counter)
        recordings = asyncio.run(load(options.folder, bench.store))
        print(f"{len(recordings)} sessions")
        for line in (*by_window(bench, recordings), *at_compactions(bench, recordings)):
            print(line)
        for line in by_carry(bench, recordings) if options.carry else ():
            print(line, flush=True)


if __name__ == "__main__":
    main()
