"""The same conversation and the same scripted summarisers through the managers of other packages: one table.

Each package is installed into an environment of its own below the user's cache folder, never into this one.
Its manager then runs in a process that reaches the scripted server on loopback and nothing else.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer
from scripted_llm.server import ScriptedLLM

from benchmarks.compaction import drive, measure, scenario, summarisers
from crushpy.core.messages import Message
from crushpy.storage.store import Store

HERE = Path(__file__).parent / "peers"
PACKAGES: dict[str, list[str]] = {
    name: entry["packages"] for name, entry in tomllib.loads((HERE / "requirements.toml").read_text()).items()
}
SHOWN = (1, 3, 8)
SUMMARISERS = ("perfect", "lossy", "useless")
INSTALLING = 1_200.0
DRIVING = 600.0


@dataclass(frozen=True)
class Row:
    """What one package did with one summariser."""

    reached: measure.Share
    survived: dict[int, measure.Share]
    calls: int
    seconds: float


class NotDriven(Exception):
    """A package that could not be installed or run; the reason is for the table."""


FIGURES = Path(__file__).with_name("figures.md")
"""The last table that was saved: README and docs/benchmarks.md have their figures from it."""


async def table(names: list[str], sizes: scenario.Sizes, *, window: int) -> str:
    """The table as Markdown, our own row first."""
    lines = [
        "| package | summariser | facts reaching it | after 1 | after 3 | after 8 | calls | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    generations = await conversation(sizes, window=window)
    facts = planted(sizes)
    for summariser in SUMMARISERS:
        row = await own_row(sizes, summariser, window=window)
        lines.append(_line("crushpy", summariser, row))
        for name in names:
            try:
                row = await asyncio.to_thread(peer_row, name, summariser, generations, facts, window)
                lines.append(_line(PACKAGES[name][0].replace("==", " "), summariser, row))
            except NotDriven as reason:
                lines.append(f"| {name} | {summariser} | not measured: {reason} | | | | | |")
    return "\n".join(lines)


def _line(name: str, summariser: str, row: Row) -> str:
    survived = " | ".join(row.survived[number].percent if number in row.survived else "" for number in SHOWN)
    return f"| {name} | {summariser} | {row.reached.percent} | {survived} | {row.calls} | {row.seconds:.1f} |"


# --- our own -----------------------------------------------------------------------------------------------


async def own_row(sizes: scenario.Sizes, summariser: str, *, window: int) -> Row:
    made = scenario.make(sizes)
    async with drive.played(made, summarisers.ALL[summariser], window=window, quick=True) as (record, _):
        store = Store(record.database)
        root = (await store.sessions.find(record.tip)).root_id
        seconds = sum(boundary.seconds for boundary in await store.boundaries.load_conversation(root))
        await store.close()
        survived = {
            number: _sum(measure.survival(crossed, record.workspace))
            for number, crossed in enumerate(record.boundaries, 1)
        }
        return Row(measure.input_recall(record), survived, record.summary_calls, seconds)


def _sum(shares: dict[str, measure.Share]) -> measure.Share:
    return measure.Share(
        sum(share.found for share in shares.values()), sum(share.total for share in shares.values())
    )


# --- the same conversation for the others -------------------------------------------------------------------


def planted(sizes: scenario.Sizes) -> list[list[scenario.Fact]]:
    """The facts of each generation."""
    found: list[list[scenario.Fact]] = [[] for _ in range(sizes.generations)]
    for turn in scenario.make(sizes).turns:
        found[turn.generation] += [*turn.facts, *(fact for step in turn.steps for fact in step.facts)]
    return found


async def conversation(sizes: scenario.Sizes, *, window: int) -> list[list[dict[str, Any]]]:
    """The messages of each generation as our own run stored them, in the form of OpenAI's chat protocol."""
    made = scenario.make(sizes)
    prompts = {turn.prompt: turn.generation for turn in made.turns}
    found: list[list[dict[str, Any]]] = [[] for _ in range(sizes.generations)]
    async with drive.played(made, summarisers.useless, window=window, quick=True) as (record, _):
        store = Store(record.database)
        at = 0
        for message in await store.messages.load_lineage(record.tip):
            at = max(at, prompts.get(message.text, at))
            found[at] += _written(message)
        await store.close()
    return found


def _written(message: Message) -> Iterator[dict[str, Any]]:
    if message.result is not None:
        result = message.result
        yield {"role": "tool", "tool_call_id": result.call_id, "name": result.name, "content": result.text}
    elif message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.args)},
            }
            for call in message.calls
        ]
        yield {"role": "assistant", "content": message.text or None} | (
            {"tool_calls": calls} if calls else {}
        )
    elif message.text:
        yield {"role": "user", "content": message.text}


def peer_row(
    name: str,
    summariser: str,
    generations: list[list[dict[str, Any]]],
    facts: list[list[scenario.Fact]],
    window: int,
) -> Row:
    python = environment(name)
    every = [fact for generation in facts for fact in generation]
    sent: list[str] = []
    replies: list[str] = []

    def answer(body: dict[str, Any]) -> Answer:
        sent.append(drive.texts(body))
        reply = summarisers.ALL[summariser](sent[-1], every)
        replies.append(str(getattr(reply, "text", "")))
        return reply

    with ScriptedLLM() as llm:
        llm.always(answer)
        given = {"base": llm.api_base, "window": window, "generations": generations}
        told = driven(python, name, given)
    so_far: list[scenario.Fact] = []
    survived: dict[int, measure.Share] = {}
    for number, (kept, new) in enumerate(zip(told["kept"], facts, strict=True), 1):
        so_far += new
        view = "\n".join(kept)
        survived[number] = measure.Share(sum(fact.text in view for fact in so_far), len(so_far))
    plain = "\n".join(
        text for text in told["kept"][-1] if not any(reply and reply in text for reply in replies)
    )
    gone = [fact for fact in so_far if fact.text not in plain]
    read = "\n".join(sent)
    reached = measure.Share(sum(fact.text in read for fact in gone), len(gone))
    return Row(reached, survived, len(sent), told["seconds"])


def driven(python: Path, name: str, given: dict[str, Any]) -> dict[str, Any]:
    command = [str(python), str(HERE / "driver.py"), name]
    nowhere = "http://127.0.0.1:9"
    quiet = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(python.parents[2]),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": given["base"],
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
        "PRAISONAI_TELEMETRY_DISABLED": "true",
        "PRAISONAI_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # Whatever else it would reach, it does not.
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    try:
        done = subprocess.run(
            command,
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=DRIVING,
            env=quiet,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotDriven(f"it took longer than {DRIVING:.0f} s") from None
    if done.returncode:
        raise NotDriven(_last_line(done.stderr) or f"exit code {done.returncode}")
    with contextlib.suppress(ValueError):
        return json.loads(done.stdout)
    raise NotDriven("its driver printed no answer")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].replace("|", "/")[:160] if lines else ""


def environment(name: str, packages: list[str] | None = None) -> Path:
    """The Python of a package's own environment, made at the first call and used again afterwards."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "crushpy-benchmarks"
    wanted = packages or PACKAGES[name]
    mark = hashlib.sha1(" ".join((sys.version, *wanted)).encode()).hexdigest()[:10]
    folder = cache / f"{name}-{mark}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    make = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    install = (
        [uv, "pip", "install", "-q", "--python", str(python)]
        if uv
        else [str(python), "-m", "pip", "install", "-q"]
    )
    print(f"installing {', '.join(wanted)} into {folder}", file=sys.stderr)
    started = time.monotonic()
    for command in ([*make, str(folder)], [*install, *wanted]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLING, check=False)
        except subprocess.TimeoutExpired:
            raise NotDriven(f"installing it took longer than {INSTALLING:.0f} s") from None
        if done.returncode:
            raise NotDriven(f"cannot be installed: {_last_line(done.stderr)}")
    (folder / "complete").touch()
    print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr)
    return python
