"""The output of a headless run: text, one JSON object, or one JSON object per line."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from crushpy.core import events
from crushpy.core.call_words import call_title
from crushpy.core.events import ListedTaskChanged
from crushpy.core.messages import Diff, counted
from crushpy.engine.agents.task_reports import MARKS, money, table_lines, unchanged
from crushpy.security.sanitize import clean, one_line, safe_json, to_json
from crushpy.util.shown_paths import path_shortener

STREAMED = (
    events.SessionOpened,
    events.TextDelta,
    events.ThinkingDelta,
    events.ToolCalled,
    events.ToolFinished,
    events.UsageReported,
    events.BoundaryCommitted,
    events.HindsightKnown,
    events.BranchOpened,
    events.BranchReturned,
    events.RuleChanged,
    events.Notice,
    events.Retry,
    events.Error,
    events.ListedTaskChanged,
    events.Result,
)
"""The events of the public stream-json contract."""


class PrinterOutput:
    """Wraps a printer. If its output cannot be written any more, `lost` is true and the rest is dropped."""

    def __init__(self, printer: Callable[[events.Event], None]) -> None:
        self._printer = printer
        self.lost = False

    def __call__(self, event: events.Event) -> None:
        if self.lost:
            return
        try:
            self._printer(event)
        except BrokenPipeError:  # the reader has gone
            self.lost = True
        except OSError as error:
            self.lost = True
            _write(sys.stderr, f"crushpy: cannot write the output: {error.strerror or error}\n")


class StreamPrinter:
    """Each event of the contract as one line; `session` is first if a session is opened."""

    def __init__(self) -> None:
        self._early_notices: list[events.Notice] | None = []
        """Notices before the first event; None afterwards."""

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Notice) and self._early_notices is not None:
            self._early_notices.append(event)
        elif isinstance(event, STREAMED):
            notices, self._early_notices = self._early_notices or [], None
            for each in (event, *notices) if isinstance(event, events.SessionOpened) else (*notices, event):
                _write_json(each)
        elif isinstance(event, events.TaskEvent) and isinstance(event.event, STREAMED):
            _write_json(event.event, task=event.name)


def print_result(event: events.Event) -> None:
    """Only the result, as one object."""
    if isinstance(event, events.Result):
        _write_json(event)


def _write_json(event: events.Event, *, task: str = "") -> None:
    """`task`: the name of the task, for events of a task list."""
    line = to_json(event)
    if task:
        line = line[:-1] + b',"task":' + to_json(task) + b"}"
    sys.stdout.buffer.write(safe_json(line) + b"\n")  # JSON is always UTF-8
    sys.stdout.buffer.flush()


class TextPrinter:
    """The answer on stdout, progress on stderr.

    On a terminal the answer streams; a pipe or file gets only the final text, so that a retried or
    interrupted reply never leaves a partial text.
    """

    def __init__(self, *, quiet: bool = False, streams: bool = True) -> None:
        self._live = streams and sys.stdout.isatty()
        self._quiet = quiet
        self._colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._shorten = path_shortener((str(Path.cwd()),))
        self._open_line = False
        self._tasks: set[str] = set()
        self._printed_denials: set[str] = set()
        self._listed: dict[str, events.ListedTaskChanged] = {}
        """The tasks of a list, if there is one."""
        self._table = LiveLines(sys.stderr) if sys.stderr.isatty() and not quiet else None
        self._drawn_at = 0.0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TextDelta():
                if self._live:
                    text = clean(event.text)
                    _write(sys.stdout, text)
                    self._open_line = not text.endswith("\n") if text else self._open_line
            case events.MessageCommitted():
                self._end_line()
            case events.ToolCalled():
                self._print_progress(f"· {self._shorten(call_title(event.name, event.args))}")
                if event.name == "task":
                    self._tasks.add(event.id)
            case events.ToolOutput() if event.id in self._tasks:
                self._print_progress(f"    {event.text.rstrip()}")
            case events.ToolFinished() if event.is_error:
                self._print_progress(f"  ✗ {_first_line(event.text)}")
            case events.ToolFinished(display=Diff() as diff):
                self._print_progress(f"  +{diff.added} -{diff.removed} {diff.path}")
            case events.Notice():
                self._print_progress(f"! {event.text}" if event.level == "warning" else event.text)
            case events.RuleChanged():
                self._print_progress(event.words)
            case events.ListedTaskChanged():
                self._update_task_list(event)
            case events.TaskEvent(name, events.Notice() as notice) if notice.level == "warning":
                self._print_progress(f"! {name}: {notice.text}")
            case events.TaskEvent(name, events.ToolFinished() as call):
                self._print_denial(name, call)
            case events.TaskEvent(name, events.Retry() as retry) if self._table is None:
                self._print_progress(f"! {name}: {retry.reason} Retrying in {retry.seconds:g} s.")
            case events.RunSummarized():
                self._end_line()
                self._print_progress(event.text)
            case events.Retry():
                self._print_progress(f"! {event.reason} Retrying in {event.seconds:g} s.", always=True)
            case events.Error():
                self._print_progress(f"crushpy: {event.message}", always=True)
                if event.hint:
                    self._print_progress(f"  {event.hint}", always=True)
            case events.Result():
                self._end_line()
                if event.text and (not self._live or self._listed):
                    _write(sys.stdout, clean(event.text) + "\n")
            case _:
                pass

    def _update_task_list(self, event: events.ListedTaskChanged) -> None:
        before = self._listed.get(event.name)
        previous = before.state if before else None
        self._listed[event.name] = event
        if self._table is not None:
            due = event.state != previous or time.monotonic() - self._drawn_at >= REDRAW_INTERVAL_S
            if due and len(self._listed) == event.of:
                self._draw_table(self._table)
        elif line := task_line(event, previous):
            self._print_progress(line, always=event.state == "failed")

    def _draw_table(self, table: "LiveLines") -> None:
        size = shutil.get_terminal_size()
        table.show(table_lines([*self._listed.values()], size.columns - 1, max(3, size.lines - 2)))
        self._drawn_at = time.monotonic()

    def _print_denial(self, name: str, call: events.ToolFinished) -> None:
        """Prints once what a task was not allowed to do, and what would allow it."""
        line = f"! {name}: {_first_line(call.text)}"
        if call.decision and call.decision.verdict == "unasked" and line not in self._printed_denials:
            self._printed_denials.add(line)
            self._print_progress(line)

    def _print_progress(self, text: str, *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._end_line()
        line = clean(text)
        if self._table is not None:
            self._table.show([])
        with suppress(OSError):  # only the answer matters
            _write(sys.stderr, (f"\x1b[2m{line}\x1b[0m" if self._colour else line) + "\n")
        if self._table is not None and self._listed:
            self._draw_table(self._table)

    def _end_line(self) -> None:
        if self._open_line:
            _write(sys.stdout, "\n")
            self._open_line = False


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "failed")[:300]


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


# --- task lists ------------------------------------------------------------------------------------------


REDRAW_INTERVAL_S = 0.1
"""While no state has changed."""


class LiveLines:
    """Lines that are redrawn in place, below everything else on the terminal. Show none before writing
    there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn_lines = 0

    def show(self, lines: list[str]) -> None:
        surplus = self._drawn_lines - len(lines)
        # Line by line: some terminals keep a copy of a cleared screen.
        cursor_up = f"\x1b[{self._drawn_lines}A\r" if self._drawn_lines else ""
        rows = "".join(f"{line}\x1b[K\n" for line in [*lines, *[""] * surplus])
        with suppress(OSError):  # the display is optional
            _write(self._stream, cursor_up + rows + (f"\x1b[{surplus}A" if surplus > 0 else ""))
        self._drawn_lines = len(lines)


def task_line(event: ListedTaskChanged, previous: str | None) -> str:
    """A line for a task that started or ended; empty if its state has not changed."""
    if event.state in (previous, "waiting"):
        return ""
    label = f"[{event.number}/{event.of}] {event.name}"
    if event.state == "running":
        return f"· {label} started"
    if previous is None:
        return f"✓ {label} was already done"
    return f"{MARKS.get(event.state, '✗')} {label}: {_describe_end(event)}"


def _describe_end(event: ListedTaskChanged) -> str:
    figures = f"{counted(event.step, 'step')}, {event.tokens:,} tokens, {money(event.cost)}"
    words = [event.state, figures, f"branch {event.branch}" if event.branch else unchanged(event)]
    text = ", ".join(word for word in words if word)
    return f"{text}: {one_line(event.error)}" if event.error else text
