"""Small tasks with a real model on this machine: `python -m benchmarks.local --server http://127.0.0.1:8080/v1`.

Each is run by the real command in a folder of its own, with and without calls read from text and the profile
for small windows, and checked by code. Nothing is sent anywhere but to the server.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.local.tasks import TASKS, Outcome, Task

VARIANTS = {
    "with": ("small", "true"),
    "without": ("full", "false"),
}
"""Of each column: the profile, and whether calls are read from text."""
ENDING_S = 20.0
"""For a run that is told to stop."""
FALLBACK = 0.97
"""Gives a model time to decide by itself, in a small window."""
TENTH = 10


@dataclass(frozen=True)
class Run:
    """One try of a task."""

    passed: bool
    usages: list[dict[str, int]]
    """Of each request."""
    minutes: float
    ended: str

    @property
    def tokens(self) -> int:
        return sum(map(size, self.usages))


def size(usage: dict[str, int]) -> int:
    """The tokens of a request and of its reply."""
    return usage["input_tokens"] + usage["cache_read_tokens"] + usage["output_tokens"]


class Bench:
    def __init__(self, server: str, *, folder: Path, requests: int, minutes: float) -> None:
        self._folder, self._requests, self._minutes = folder, requests, minutes
        with urllib.request.urlopen(f"{server}/models", timeout=60) as answer:
            self.model = f"openai/{json.load(answer)['data'][0]['id']}"
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY_")},
            "OPENAI_BASE_URL": server,
            "OPENAI_API_KEY": "none",
            "CRUSHPY_HOME": str(folder / "home"),
        }

    def run(self, task: Task, variant: str) -> Run:
        # The same path each time: it is part of the prompt, which the server then has in its cache.
        project = self._prepare(task)
        self._configure(task, variant)
        events: list[dict[str, Any]] = []
        began, ended = time.monotonic(), ""
        for number, prompt in enumerate(task.prompts):
            left = self._minutes * 60 - (time.monotonic() - began)
            ended = self._ask(prompt, task, events, left, continues=number > 0)
            if ended:
                break
        results = [event["text"] for event in events if event["type"] == "result"]
        outcome = Outcome(project, results[-1] if results else "", events)
        usages = [event["call"] for event in events if event["type"] == "usage"]
        minutes = (time.monotonic() - began) / 60
        return Run(not ended and task.check(outcome), usages, minutes, ended)

    def _prepare(self, task: Task) -> Path:
        for name in ("project", "home"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir(mode=0o700)
        project = self._folder / "project"
        for name, text in task.files.items():
            (project / name).write_text(text)
        return project

    def _configure(self, task: Task, variant: str) -> None:
        profile, text_calls = VARIANTS[variant]
        lines = [f'profile = "{profile}"', f'[models."{self.model}"]', f"text_calls = {text_calls}"]
        if task.windows:
            lines += [
                f"context_window = {task.windows[variant]}",
                f"[compaction]\nfallback_threshold = {FALLBACK}",
            ]
        (self._folder / "home" / "config.toml").write_text("\n".join(lines) + "\n")

    def _ask(
        self, prompt: str, task: Task, events: list[dict[str, Any]], left: float, *, continues: bool
    ) -> str:
        """Runs one prompt. Returns why it was stopped; empty if it came to its end."""
        method = "llm" if task.windows else "auto"
        flags = ["--yolo", "--compaction", method, "--max-steps", str(self._requests)]
        command = [
            sys.executable,
            "-m",
            "crushpy",
            "run",
            "--format",
            "stream-json",
            "-m",
            self.model,
            *flags,
        ]
        process = subprocess.Popen(
            [*command, *(["-c"] if continues else []), prompt],
            cwd=self._folder / "project",
            env={**self._env, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ended = ""
        try:
            out, err = process.communicate(timeout=max(1.0, left))
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate(timeout=ENDING_S)
            ended = "time"
        events += map(json.loads, out.splitlines())
        if ended:
            return ended
        return {0: "", 4: "requests"}.get(process.returncode, err.strip()[-200:] or "error")


def table(results: dict[tuple[str, str], list[Run]]) -> Iterator[str]:
    """passed/tried, requests, tokens and minutes of each task, in each variant."""
    variants = [name for name in VARIANTS if any(name == variant for _, variant in results)]
    yield (
        "| task | "
        + " | ".join(f"{name}: passed/tried, requests, tokens, minutes" for name in variants)
        + " |"
    )
    yield "| --- " * (len(variants) + 1) + "|"
    for task in dict.fromkeys(task for task, _ in results):
        cells = [_cell(results.get((task, variant), [])) for variant in variants]
        yield f"| {task} | " + " | ".join(cells) + " |"
    everything = [
        [run for (_, name), runs in results.items() if name == variant for run in runs]
        for variant in variants
    ]
    yield "| all | " + " | ".join(map(_cell, everything)) + " |"


def _cell(runs: list[Run]) -> str:
    if not runs:
        return "-"
    requests, tokens = sum(len(run.usages) for run in runs), sum(run.tokens for run in runs)
    minutes = sum(run.minutes for run in runs)
    return f"{sum(run.passed for run in runs)}/{len(runs)}, {requests}, {tokens:,}, {minutes:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local", description=__doc__)
    parser.add_argument("--server", required=True, help="the address of its OpenAI protocol")
    parser.add_argument("--runs", type=int, default=2, help="of each task in each variant")
    parser.add_argument("--only", default="", help="tasks whose name has this word")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only this one")
    parser.add_argument("--requests", type=int, default=12, help="at most, of one prompt")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most, of one run")
    parser.add_argument("--keep", type=Path, help="keep homes and projects of all runs in this folder")
    usual = Path(tempfile.gettempdir()) / "crushpy-local"
    parser.add_argument("--folder", type=Path, default=usual, help="where they work; deleted before each run")
    args = parser.parse_args()
    results: dict[tuple[str, str], list[Run]] = {}
    args.folder.mkdir(mode=0o700, exist_ok=True)
    bench = Bench(args.server.rstrip("/"), folder=args.folder, requests=args.requests, minutes=args.minutes)
    for variant in args.variant or VARIANTS:
        for number in range(args.runs):
            for task in (task for task in TASKS if args.only in task.name):
                run = bench.run(task, variant)
                results.setdefault((task.name, variant), []).append(run)
                print(_line(task, variant, run), file=sys.stderr, flush=True)
                if args.keep:
                    place = args.keep / f"{variant}-{number}-{task.name.replace(' ', '-')}"
                    shutil.copytree(args.folder, place, dirs_exist_ok=True)
    print("\n".join(table(results)))


def _line(task: Task, variant: str, run: Run) -> str:
    cached = sum(usage["cache_read_tokens"] for usage in run.usages)
    tenth = f", request {TENTH}: {size(run.usages[TENTH - 1]):,}" if len(run.usages) >= TENTH else ""
    first = f"request 1: {size(run.usages[0]):,}" if run.usages else "no request"
    word = "passed" if run.passed else f"failed ({run.ended})" if run.ended else "failed"
    shown = f"{len(run.usages)} requests, {run.tokens:,} tokens, {cached:,} of them cached ({first}{tenth})"
    return f"{task.name}, {variant}: {word}, {shown}, {run.minutes:.1f} minutes"


if __name__ == "__main__":
    main()
