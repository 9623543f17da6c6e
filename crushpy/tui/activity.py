"""What is running and since when, as rows of text made from events. Independent of widgets and the clock."""

from collections.abc import Callable, Iterator
from math import ceil

import msgspec

from crushpy.core import events
from crushpy.core.call_words import call_words
from crushpy.core.messages import Data, short_count
from crushpy.security.sanitize import one_line

WAITING, THINKING, WRITING, WORKING = "Waiting for the model", "Thinking", "Writing", "Working"
TRYING = "trying again in"
_BARS_OF_PHASE = {
    events.MAKING_SUMMARY: (events.MAKING_SUMMARY,),
    WAITING: (events.LOADING, events.READING_PROMPT),
}
"""Phases of a turn whose text is replaced by a progress bar of one of these names."""
CHARS_PER_TOKEN = 4
"""Used for streamed text until the provider reports the number of tokens."""
MAX_LINE_CHARS = 2_000
"""Characters of a line of output that are read."""


class RunningTool(Data, frozen=True):
    """A tool call, or a command of the user, that is running."""

    what: str
    since: float
    last_line: str = ""
    task: events.TaskProgress | None = None
    """Progress of a sub-agent; None for other calls."""


class ActivityRow(Data, frozen=True):
    """One row: what is running and for how long, then details in the order of importance."""

    what: str
    age: str = ""
    more: str = ""
    rest: str = ""
    done: int = 0
    total: int = 0
    """For a progress bar; without a total there is none, unless `moves` is set."""
    moves: bool = False
    stops: bool = True
    """Whether Esc stops it."""
    session_id: str = ""
    """The session that a click opens."""


class Activity:
    """`clock` returns seconds; `in_use` the tokens of the next request."""

    def __init__(self, clock: Callable[[], float], in_use: Callable[[], int]) -> None:
        self._clock = clock
        self._in_use = in_use
        self._calls: dict[str, str] = {}
        self._tools: dict[str, RunningTool] = {}
        self._progress: dict[str, tuple[events.Progress, float]] = {}
        self._in_turn = False
        self._phase = ""
        self._since = 0.0
        self._retry: events.Retry | None = None
        self._again_at = 0.0
        self._then = WAITING
        self._asked = 0
        self._sent = 0
        self._received = 0
        self._streamed = 0

    @property
    def ticks(self) -> bool:
        """Whether something is running; a question that waits for the user does not count."""
        return bool(self._tools or self._progress or (self._phase and not self._asked))

    def clear(self) -> None:
        """Forgets the calls of this conversation; commands of the user keep running."""
        self._tools = {key: tool for key, tool in self._tools.items() if key not in self._calls}
        self._calls.clear()
        self._progress.clear()
        self._in_turn = False
        self._phase = ""
        self._asked = 0

    def own_command(self, command_id: str, command: str, output: str | None) -> None:
        """Updates a command of the user: its output so far, or None if it has ended."""
        if output is None:
            self._tools.pop(command_id, None)
            return
        known = self._tools.get(command_id)
        since = known.since if known else self._clock()
        self._tools[command_id] = RunningTool(f"Running {command}", since, _last_line(output))

    def hear(self, event: events.Event) -> None:
        if type(event) is events.TextDelta:
            self._streamed += len(event.text)
            self._enter(WRITING)
            return
        self._end_countdown()
        match event:
            case events.ThinkingDelta():
                self._streamed += len(event.text)
                self._enter(THINKING)
            case events.PromptCommitted():
                self._received, self._in_turn = 0, True
                self._wait()
            case events.MessageCommitted():
                self._enter(WORKING if self._in_turn else "")
            case events.UsageReported():
                self._received += event.call.output_tokens
                self._streamed = 0
            case events.ApprovalNeeded() | events.ReviewNeeded():
                self._asked += 1
            case events.ApprovalDone() | events.ReviewDone():
                self._asked -= 1
            case events.Compacting():
                self._enter(events.MAKING_SUMMARY)
            case events.BoundaryCommitted():
                self._wait()
            case events.Notice() if self._phase == events.MAKING_SUMMARY:
                self._wait()
            case events.SessionOpened():  # a new window: the next request is smaller
                self._sent = self._in_use()
            case events.Retry():
                if self._phase != TRYING:
                    self._then = events.MAKING_SUMMARY if self._phase == events.MAKING_SUMMARY else WAITING
                self._retry, self._again_at = event, self._clock() + event.seconds
                self._streamed = 0
                self._enter(TRYING)
            case events.Progress() if event.total and event.done >= event.total:
                self._progress.pop(event.what, None)
            case events.Progress():
                since = self._progress[event.what][1] if event.what in self._progress else self._clock()
                self._progress[event.what] = (event, since)
            case events.TurnEnded():
                self.clear()
            case _:
                self._hear_of_calls(event)

    def _hear_of_calls(self, event: events.Event) -> None:
        match event:
            case events.ToolOutput() if event.id in self._tools:
                tool = self._tools[event.id]
                line = _last_line(event.text) or tool.last_line
                self._tools[event.id] = msgspec.structs.replace(tool, last_line=line)
            case events.ToolCalled():
                verb, about = call_words(event.name, event.args, more=" …")
                verb = "Running" if event.name == "bash" else verb
                self._calls[event.id] = f"{verb} {about}".strip()
            case events.ToolStarted():
                self._tools[event.id] = RunningTool(self._calls.get(event.id, WORKING), self._clock())
            case events.TaskProgress() if event.id in self._tools:
                self._tools[event.id] = msgspec.structs.replace(self._tools[event.id], task=event)
            case events.ToolFinished():
                self._tools.pop(event.id, None)
                self._calls.pop(event.id, None)
                if not self._calls:
                    self._wait()
            case _:
                pass

    def _wait(self) -> None:
        self._sent = self._in_use()
        self._enter(WAITING if self._in_turn else "")

    def _end_countdown(self) -> None:
        """The retry has begun: the phase before it continues."""
        if self._phase == TRYING and self._clock() >= self._again_at:
            self._phase, self._since = self._then, self._again_at

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            self._phase, self._since = phase, self._clock()

    # --- rows --------------------------------------------------------------------------------------------

    def rows(self) -> list[ActivityRow]:
        """The rows to show now, the most important first; none if nothing runs."""
        self._end_countdown()
        tools = [tool for tool in self._tools.values() if tool.task is None]
        tasks = [tool for tool in self._tools.values() if tool.task is not None]
        rows = [
            *self._main(tools, tasks),
            *(self._bar(progress, since) for progress, since in self._progress.values()),
        ]
        if len(tools) > 1:
            rows.extend(self._tool(tool) for tool in tools)
        rows.extend(self._task(tool, tool.task) for tool in tasks if tool.task is not None)
        return rows

    def _main(self, tools: list[RunningTool], tasks: list[RunningTool]) -> Iterator[ActivityRow]:
        """The first row, unless a progress bar or a task already shows the same."""
        if len(tools) == 1:
            yield self._tool(tools[0])
        elif len(tools) > 1:
            oldest = min(tool.since for tool in tools)
            yield ActivityRow(f"Running {len(tools)} calls", self._age(oldest), self._tokens())
        elif self._phase and not self._asked and not tasks:
            if any(bar in self._progress for bar in _BARS_OF_PHASE.get(self._phase, ())):
                return
            if self._phase == TRYING and (retry := self._retry) is not None:
                what = f"{retry.status}: {TRYING}" if retry.status else TRYING.capitalize()
                left = ceil(self._again_at - self._clock())
                which = f" · {retry.attempt} of {retry.of}" if retry.of else ""
                yield ActivityRow(f"{what} {left} s{which}", rest=one_line(retry.reason))
            else:
                yield ActivityRow(self._phase, self._age(self._since), self._tokens())

    def _tokens(self) -> str:
        received = self._received + self._streamed // CHARS_PER_TOKEN
        sent = f"{short_count(self._sent)} tokens ↑"
        return f"{sent} {short_count(received)} ↓" if self._sent or received else ""

    def _tool(self, tool: RunningTool) -> ActivityRow:
        return ActivityRow(one_line(tool.what), self._age(tool.since), rest=tool.last_line)

    def _task(self, tool: RunningTool, task: events.TaskProgress) -> ActivityRow:
        step = task.steps if task.doing else task.steps + 1  # a call belongs to the reply that asked for it
        more = f"step {step} · {short_count(task.tokens)} tokens"
        doing = one_line(task.doing) or "thinking"
        return ActivityRow(
            one_line(tool.what), self._age(tool.since), more, doing, session_id=task.session_id
        )

    def _bar(self, progress: events.Progress, since: float) -> ActivityRow:
        counts = f"{progress.done:,} of {progress.total:,} tokens"
        return ActivityRow(
            progress.what,
            self._age(since),
            counts if progress.what == events.READING_PROMPT else "",
            done=progress.done,
            total=progress.total,
            moves=not progress.total,
            stops=bool(self._phase),
        )

    def _age(self, since: float) -> str:
        return brief_duration(self._clock() - since)


def brief_duration(seconds: float) -> str:
    """41s, 2m05s."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def _last_line(output: str) -> str:
    lines = output[-MAX_LINE_CHARS:].rstrip().rsplit("\n", 1)
    return one_line(lines[-1])
