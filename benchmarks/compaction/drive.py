"""Drives the real engine through a scenario against a scripted model, and keeps what the measures need."""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

from benchmarks.compaction.scenario import Fact, Scenario, Step
from benchmarks.compaction.summarisers import Summarizer
from crushpy.bootstrap.opening import open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.events import BoundaryCommitted, Event
from crushpy.core.messages import Usage
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation

MODEL = "openai/bench"
STATUS = "<context_status>"


@dataclass
class Crossed:
    """One boundary, and what the child's first request held."""

    tokens_before: int
    tokens_after: int
    planted: tuple[Fact, ...]
    """All facts until then."""
    first_request: str = ""
    tail: str = ""
    """The same without what the boundary wrote: messages carried as they are."""


@dataclass
class Record:
    """What was seen of a whole run."""

    boundaries: list[Crossed] = field(default_factory=list)
    summarised: list[str] = field(default_factory=list)
    """All that summarisers were sent."""
    agent_calls: int = 0
    summary_calls: int = 0
    prefix_bytes_changed: int = 0
    prefixes: int = 0
    """How many requests had one before them in the same session."""
    workspace: Path = Path()
    database: Path = Path()
    tip: str = ""
    failure: str = ""
    steps_left: int = 0


class Player:
    """The scripted model: plays the steps of a scenario, and the summariser when one is asked."""

    def __init__(self, scenario: Scenario, summariser: Summarizer, window: int, *, quick: bool) -> None:
        self._scenario = scenario
        self._summariser = summariser
        self._window = window
        self._quick = quick
        self._steps: Iterator[Step] = iter(())
        self._ends_generation = False
        self._before = b""
        self.planted: list[Fact] = []
        self.record = Record()
        self.refuse: Answer | None = None
        """Answers everything with this once it is set."""

    def begin(self, steps: tuple[Step, ...], facts: tuple[Fact, ...], *, ends_generation: bool) -> None:
        self._steps = iter(steps)
        self._ends_generation = ends_generation
        self.planted += facts

    def __call__(self, body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return self._summary(body)
        self._look_at(body)
        self.record.agent_calls += 1
        if self.refuse is not None:
            return self.refuse
        step = next(self._steps, Step(text="Done."))
        self.planted += step.facts
        return Reply(
            step.text,
            calls=[Call(name, args) for name, args in step.calls],
            usage=self._usage(step) if self._quick else "auto",
        )

    def _usage(self, step: Step) -> Usage:
        """In a quick run the window fills by report: nearly empty, and full at the end of a generation."""
        full = self._ends_generation and not step.calls
        return Usage(int(self._window * (0.8 if full else 0.3)), 10)

    def _summary(self, body: dict[str, Any]) -> Answer:
        self.record.summary_calls += 1
        sent = texts(body)
        self.record.summarised.append(sent)
        return self._summariser(sent, self.planted)

    def _look_at(self, body: dict[str, Any]) -> None:
        """Compares with the request before, and keeps the first of each child."""
        now = cacheable(body)
        crossed = self.record.boundaries[-1] if self.record.boundaries else None
        if crossed is not None and not crossed.first_request:
            crossed.first_request = texts(body)
            crossed.tail = crossed.first_request.partition("</evidence>")[2]
        elif self._before:
            self.record.prefix_bytes_changed += len(self._before) - _common(self._before, now)
            self.record.prefixes += 1
        self._before = now


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    if other.startswith(one):
        return len(one)
    return next(number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])


def cacheable(body: dict[str, Any]) -> bytes:
    """What a provider caches: tools first, then the messages in order, up to the status."""
    last = json.dumps(body["messages"][-1], ensure_ascii=False)
    if last.count(STATUS) and body["messages"][-1]["role"] == "system":
        last = ""
    last = last.partition(STATUS)[0].removesuffix("\\n").removesuffix("\\n").removesuffix('"}')
    before = [json.dumps(message, ensure_ascii=False) for message in body["messages"][:-1]]
    return "\n".join((json.dumps(body.get("tools")), *before, last)).encode().removesuffix(b"\n")


def texts(body: dict[str, Any]) -> str:
    """Every text of a request, as the model reads it."""
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                if key == "arguments":
                    collect(json.loads(item))
                else:
                    collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for message in body["messages"]:
        collect({key: value for key, value in message.items() if key not in ("role", "tool_call_id")})
    return "\n".join(found)


@contextmanager
def surroundings(scenario: Scenario, llm: ScriptedLLM) -> Iterator[Path]:
    """A workspace and a home of their own; this process's environment as it was afterwards."""
    # Digits weigh the same in tokens whatever they are; letters by chance would change every figure.
    top = Path(tempfile.gettempdir()) / f"shop-{secrets.randbelow(10**9):09}"
    top.mkdir(mode=0o700)
    workspace = top / "app"
    workspace.mkdir()
    programs = scenario.lay_out(workspace)
    wanted = {
        **llm.env,
        "CRUSHPY_HOME": str(top / "home"),
        "CRUSHPY_RETRY_BASE": "0.001",
        "CRUSHPY_PROFILE": "full",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield workspace
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(top, ignore_errors=True)


@asynccontextmanager
async def opened(workspace: Path, settings: dict[str, object]) -> AsyncIterator[Conversation]:
    around = ProjectEnvironment(workspace, {"model": MODEL, **settings})
    conversation = await open_conversation(around, StartOptions(cwd=str(workspace), yolo=True))
    try:
        yield conversation
    finally:
        await conversation.close()


@asynccontextmanager
async def played(
    scenario: Scenario,
    summariser: Summarizer,
    *,
    window: int = 200_000,
    quick: bool = False,
    settings: dict[str, object] | None = None,
    refuse_at_end: Answer | None = None,
) -> AsyncIterator[tuple[Record, Conversation]]:
    """Plays a whole scenario; the conversation stays open for a look at it."""
    with ScriptedLLM() as llm:
        player = Player(scenario, summariser, window, quick=quick)
        llm.always(player)
        with surroundings(scenario, llm) as workspace:
            chosen = {f'models."{MODEL}".context_window': window, **(settings or {})}
            async with opened(workspace, chosen) as conversation:
                record = player.record
                record.workspace = workspace

                def hear(event: Event) -> None:
                    if isinstance(event, BoundaryCommitted):
                        sizes = event.tokens_before, event.tokens_after
                        record.boundaries.append(Crossed(*sizes, tuple(player.planted)))

                conversation.subscribe(hear)
                await _play(scenario, player, conversation, llm, refuse_at_end)
                record.tip = conversation.info.id
                record.database = workspace.parent / "home" / "crushpy.db"
                yield record, conversation


async def _play(
    scenario: Scenario,
    player: Player,
    conversation: Conversation,
    llm: ScriptedLLM,
    refuse_at_end: Answer | None,
) -> None:
    turns = scenario.turns
    for number, turn in enumerate(turns):
        last = number + 1 == len(turns) or turns[number + 1].generation != turn.generation
        player.begin(turn.steps, turn.facts, ends_generation=last)
        status = await conversation.ask(turn.prompt)
        if status != "done":
            raise RuntimeError(f"turn {number} ended with {status}: {conversation.failure}")
        llm.requests.clear()
    if refuse_at_end is not None:
        player.refuse = refuse_at_end
    player.begin((Step(text="Yes."),), (), ends_generation=False)
    await conversation.ask("Is all of it done?")
    player.record.failure = str(conversation.failure or "")
