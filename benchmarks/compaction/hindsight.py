"""`python -m benchmarks.compaction.hindsight FOLDER`: what of the names needed later each policy carries.

FOLDER holds sessions of other agents, in their own formats. Each is cut where a window of 32k, 64k and 128k
tokens would have been full, and no summary counts: see "Hindsight" in docs/context.md. Nothing of the
sessions is printed or kept.
"""

import argparse
import asyncio
import os
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from crushpy.context.facts import said_in
from crushpy.context.hindsight import FIRST_REPLIES, Hindsight, look_back
from crushpy.context.names import ShownNames, count_names, generic_names
from crushpy.core.messages import Message
from crushpy.core.templates import Templates
from crushpy.engine.compaction.judged_boundaries import without_usage
from crushpy.engine.compaction.pins_and_rules import rule_phrases
from crushpy.engine.compaction.replay import Recording, ReplayChanges, Replayer, load_recording
from crushpy.engine.models import Models
from crushpy.engine.session.importing import SessionImporter
from crushpy.importers import sources
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

WINDOWS = (32_000, 64_000, 128_000)
MAX_BOUNDARIES = 3
"""Of one session and window."""
SAMPLES = 1_000
"""Of the bootstrap over sessions."""
Judge = Callable[[str], Hindsight]


class Cut:
    """One boundary: what precedes it, what follows, and what crushpy carries."""

    def __init__(
        self,
        before: Sequence[Message],
        carried: str,
        after: Sequence[Message],
        cwd: str,
        count: Callable[[str], int],
    ) -> None:
        self.before, self.carried, self.count = before, carried, count
        self._after, self._cwd = after, cwd
        self.tokens = count(carried)

    def judge(self, carried: str) -> Hindsight:
        return look_back(self.before, carried, self._after, cwd=self._cwd, size=lambda _: 0)

    def last(self, tokens: int) -> str:
        """The last messages as text, in this many tokens."""
        parts: list[str] = []
        for message in reversed(self.before):
            text = said_in(message)
            size = self.count(text)
            parts.append(text if size <= tokens else text[-tokens * 4 :])
            tokens -= size
            if tokens <= 0:
                break
        return "\n".join(reversed(parts))

    def policies(self, seed: int) -> dict[str, str]:
        """What each policy carries, at the size of crushpy."""
        first = next((message.text for message in self.before if message.role == "user" and message.text), "")
        first = first[: self.tokens * 2]
        bare, _, _ = self.carried.partition("Names seen:\n")
        names = self.carried.removeprefix(bare).partition("\n</evidence>")[0]
        rest = self.carried.replace(names, "")
        return {
            "crushpy": self.carried,
            "without names": rest,
            "random names": f"{rest}\n{self._random(self.count(names), rest, seed)}",
            "last N tokens": self.last(self.tokens),
            "first prompt and last N": f"{first}\n{self.last(self.tokens - self.count(first))}",
        }

    def _random(self, tokens: int, shown: str, seed: int) -> str:
        known = ShownNames(shown)
        found = {name for message in self.before for name in count_names(said_in(message))}
        names = sorted(name for name in found - generic_names() if name not in known)
        random.Random(seed).shuffle(names)
        chosen: list[str] = []
        for name in names:
            tokens -= self.count(name) + 1
            if tokens < 0:
                break
            chosen.append(name)
        return ", ".join(chosen)


async def load(folder: Path, store: Store) -> list[Recording]:
    """Imports every session below `folder`."""
    importer = SessionImporter(store, compaction="auto")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        for source in sources():
            done = [outcome.status async for outcome in importer.run(source, source.sessions(file))]
            if {"imported", "updated"} & set(done):
                break
    tips = await store.sessions.list_tips()
    return [await load_recording(store, info.id, rule_phrases(Templates())) for info in tips]


def cuts(store: Store, recording: Recording, settings: Settings, models: Models, window: int) -> list[Cut]:
    """Where the window would have been full."""
    changes = ReplayChanges(window=window, method="auto")
    replayer = Replayer(store, without_usage(recording), settings, models, changes)
    made = asyncio.run(replayer.run()).boundaries
    messages, ends = _messages(recording)
    found: list[Cut] = []
    for boundary, start in list(zip(made, replayer.starts, strict=True))[:MAX_BOUNDARIES]:
        end = next((end for end in ends if end > boundary.number), len(messages))
        cut = Cut(
            messages[: boundary.number], start, messages[boundary.number : end], *_figures(recording, models)
        )
        if cut.judge("").replies >= FIRST_REPLIES:
            found.append(cut)
    return found


def _messages(recording: Recording) -> tuple[list[Message], list[int]]:
    """All messages, and how many precede each compaction of the other agent."""
    messages: list[Message] = []
    ends: list[int] = []
    for session in recording.sessions:
        ends += [len(messages)] if messages else []
        messages += [message for message, _ in session.own]
    return messages, ends


def _figures(recording: Recording, models: Models) -> tuple[str, Callable[[str], int]]:
    return recording.sessions[-1].info.cwd, lambda text: len(text) // 4


def interval(shares: Sequence[tuple[int, int]]) -> str:
    """The share of all names, with a 95% interval over sessions."""
    if not sum(needed for needed, _ in shares):
        return "-"
    chance = random.Random(7)
    means = sorted(_share(chance.choices(shares, k=len(shares))) for _ in range(SAMPLES))
    low, high = means[int(SAMPLES * 0.025)], means[int(SAMPLES * 0.975)]
    return f"{_share(shares):.0%} [{low:.0%}-{high:.0%}]"


def _share(shares: Sequence[tuple[int, int]]) -> float:
    needed = sum(needed for needed, _ in shares)
    return sum(carried for _, carried in shares) / needed if needed else 0.0


def table(store: Store, recordings: Sequence[Recording], settings: Settings, models: Models) -> list[str]:
    lines = [
        "| policy | " + " | ".join(f"{window // 1_000}k" for window in WINDOWS) + " |",
        "| --- " * 4 + "|",
    ]
    found: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[int, list[int]] = defaultdict(list)
    for window in WINDOWS:
        for number, recording in enumerate(recordings):
            totals: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for cut in cuts(store, recording, settings, models, window):
                sizes[window].append(cut.tokens)
                for policy, carried in cut.policies(number).items():
                    judged = cut.judge(carried)
                    totals[policy].append((len(judged.names), judged.carried))
            for policy, pairs in totals.items():
                found[policy][window].append((sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)))
    for policy, by_window in found.items():
        lines.append(f"| {policy} | " + " | ".join(interval(by_window[window]) for window in WINDOWS) + " |")
    tokens = (f"{statistics.mean(sizes[window]):,.0f}" if sizes[window] else "-" for window in WINDOWS)
    return [*lines, f"| tokens of crushpy | {' | '.join(tokens)} |"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction.hindsight", description=__doc__)
    parser.add_argument("folder", type=Path, help="sessions of other agents")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as home:
        os.environ["CRUSHPY_HOME"] = home
        from crushpy.cli.workspace import load_models

        settings, models = load_models()
        store = Store(Path(home) / "crushpy.db")
        recordings = asyncio.run(load(folder, store))
        print(f"{len(recordings)} sessions\n")
        print("\n".join(table(store, recordings, settings, models)))


if __name__ == "__main__":
    main()
