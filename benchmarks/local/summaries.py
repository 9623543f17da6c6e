"""What a real model keeps in summaries: `python -m benchmarks.local.summaries --server URL FOLDER`.

FOLDER holds sessions of other agents, in their own formats. Each is cut where a window would have been full,
and the model writes the summary with our template. Code counts what it holds of the facts, and of the names
that the other agent needed later (see "Hindsight" in docs/context.md). Nothing of them is kept.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compaction.hindsight import Bench, Recording, load, supposed_cuts
from crushpy.llm.tokens import Counter
from crushpy.storage.store import Store


class Boundary(NamedTuple):
    """One summary of the model, and what of it counts."""

    facts: int
    facts_in_prose: float
    facts_carried: float
    names: int
    names_in_prose: int
    names_carried: int
    tokens: int
    """Of the summary."""
    minutes: float
    problem: str


def crushpy(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "crushpy", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def write_summary(bench: Bench, recording: Recording, window: int, model: str, cwd: Path) -> Boundary | None:
    """The first boundary of a session; None if it has none that can be judged."""
    found = next(supposed_cuts(bench, recording, window), None)
    if found is None:
        return None
    number, cut, start = found
    own = [(session.info.id, message.id) for session in recording.sessions for message, _ in session.own]
    session, last = own[number - 1]
    fork = crushpy("sessions", "rewind", session, "--to", last, "--conversation", "--yes", cwd=cwd).split()[
        -1
    ]
    began = time.monotonic()
    (shown,) = json.loads(crushpy("compact", fork, "-m", model, "--dry-run", "--json", cwd=cwd))
    minutes = (time.monotonic() - began) / 60
    result: dict[str, Any] = shown["result"]
    in_prose, in_the_end = cut.judge(result["summary"]), cut.judge(f"{start}\n{result['summary']}")
    return Boundary(
        sum(count[0] for count in result["coverage"].values()),
        result["prose_share"] or 0.0,
        result["share"] or 0.0,
        len(in_prose.names),
        in_prose.carried,
        in_the_end.carried,
        bench.count(result["summary"]),
        minutes,
        result["problem"],
    )


def table(found: list[Boundary]) -> Iterator[str]:
    columns = "facts in prose | facts carried | names needed later | in prose | carried | tokens | minutes"
    yield f"| boundary | {columns} |"
    yield "| --- " * 8 + "|"
    for number, boundary in enumerate(found, 1):
        shares = f"{boundary.facts_in_prose:.0%} | {boundary.facts_carried:.0%}"
        names = f"{boundary.names} | {boundary.names_in_prose} | {boundary.names_carried}"
        yield f"| {number} | {shares} | {names} | {boundary.tokens:,} | {boundary.minutes:.1f} |"
        if boundary.problem:
            yield f"  {boundary.problem}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local.summaries", description=__doc__)
    parser.add_argument("folder", type=Path, help="sessions of other agents")
    parser.add_argument("--server", required=True, help="the address of the model's OpenAI protocol")
    parser.add_argument("--window", type=int, default=32_000, help="where sessions are cut, in tokens")
    parser.add_argument("--boundaries", type=int, default=5, help="at most")
    args = parser.parse_args()
    server = args.server.rstrip("/")
    with urllib.request.urlopen(f"{server}/models", timeout=60) as answer:
        model = f"openai/{json.load(answer)['data'][0]['id']}"
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"CRUSHPY_HOME": home, "OPENAI_BASE_URL": server, "OPENAI_API_KEY": "none"}
        from crushpy.cli.workspace import load_models

        config = f'[models."{model}"]\ncontext_window = {args.window}\n'
        (Path(home) / "config.toml").write_text(config)
        counter = Counter("openai/gpt-4o")
        counter.start()
        counter.wait()
        bench = Bench(Store(Path(home) / "crushpy.db"), *load_models(), counter)
        found: list[Boundary] = []
        for recording in asyncio.run(load(args.folder, bench.store)):
            if len(found) == args.boundaries:
                break
            if (one := write_summary(bench, recording, args.window, model, Path(home))) is not None:
                found.append(one)
                print(f"{len(found)} of {args.boundaries}", file=sys.stderr, flush=True)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
