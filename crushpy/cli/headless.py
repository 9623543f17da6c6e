"""Runs a conversation without the app: prints its events and returns an exit code."""

import asyncio
import gc
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from crushpy.bootstrap import ProjectEnvironment, load_images, open_conversation
from crushpy.cli.printers import OneJson, Out, Prose, StreamJson
from crushpy.cli.task_table import ListedTaskResults
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import (
    Error,
    Event,
    ListedTaskChanged,
    MessageCommitted,
    Notice,
    PromptCommitted,
    Result,
    RunSummarized,
    SessionOpened,
)
from crushpy.core.messages import Image, Usage
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.turn.turn import TurnStatus
from crushpy.security.sanitize import encodable

Work = Callable[[Conversation, tuple[Image, ...]], Coroutine[Any, Any, TurnStatus]]
STDIN_TIMEOUT_S = 3.0
"""For the first byte on stdin if there is a prompt: some callers never close stdin."""
INTERRUPTED, TERMINATED = 130, 143


def run_headless(
    options: StartOptions, prompt: str, *, tasks: str, parallel: int | None, form: str, quiet: bool
) -> int:
    """Runs a prompt or a file of tasks; returns the exit code. Always prints a `result` last."""
    out = Out({"text": lambda: Prose(quiet=quiet), "json": OneJson, "stream-json": StreamJson}[form]())
    _on_signals(_interrupted)
    try:
        code = asyncio.run(_work(options, _do(options, prompt, tasks, parallel), out))
    except CrushpyError as error:
        code = _failed(out, error)
    except KeyboardInterrupt as stopped:
        _on_signals(signal.SIG_IGN)
        code = _stopped_by(*stopped.args[:1])
        out(Result("", "", "", Usage(), 0.0, code, "interrupted"))
    except Exception as error:
        logging.getLogger(__name__).exception("the run failed")
        code = _failed(out, unexpected_error(error))
    return 1 if out.lost else code


def _failed(out: Out, error: CrushpyError) -> int:
    out(Error("failed", error.message, error.hint))
    out(Result("", "", "", Usage(), 0.0, error.exit_code, error.message))
    return error.exit_code


def _on_signals(action: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Installs `action` for terminating signals, except those ignored by the parent (nohup)."""
    for one in _handled_signals():
        signal.signal(one, action)


def _handled_signals() -> list[signal.Signals]:
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [one for one in wanted if signal.getsignal(one) is not signal.SIG_IGN]


def _ignore_from_now_on(loop: asyncio.AbstractEventLoop) -> None:
    """Ignores signals before the loop closes and restores their default action."""
    handled = _handled_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    for one in handled:
        loop.remove_signal_handler(one)
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)


def _interrupted(number: int, *_: object) -> None:
    raise KeyboardInterrupt(number)


def _stopped_by(number: int = signal.SIGINT) -> int:
    """The exit code of a run ended by a signal."""
    return TERMINATED if number == signal.SIGTERM else INTERRUPTED


def _do(options: StartOptions, prompt: str, tasks: str, parallel: int | None) -> Work:
    """The work for the conversation: a prompt, a list of tasks, or the rest of one."""
    if options.pick:
        raise UsageError(
            "--resume needs an ID here.", "`crushpy sessions list` shows them; -c continues the latest."
        )
    if not tasks:
        goes_on = bool(options.session or options.resume_latest) and not options.image
        whole = _with_stdin(prompt, or_nothing=goes_on or bool(options.image), wait=not options.image)
        if goes_on and not whole:
            return lambda conversation, _: conversation.tasks.resume(parallel)
        if parallel is not None:
            raise UsageError(
                "--parallel is for lists of tasks.",
                "Give one with --tasks FILE, or continue one with --resume ID.",
            )
        return lambda conversation, images: conversation.ask(whole, images)
    from crushpy.cli.tasklist import read_tasks

    if prompt or options.resume_latest or options.session or options.image:
        raise UsageError(
            "--tasks cannot be combined with a prompt, --continue, --session, --resume or --image.",
            "Put the prompts into the file. `crushpy run --resume ID` alone continues an unfinished list.",
        )
    listed = read_tasks(tasks, working_folder(options.cwd))
    return lambda conversation, _: conversation.tasks.work_through(listed, parallel or 1)


async def _work(options: StartOptions, do: Work, out: Out) -> int:
    around = ProjectEnvironment(working_folder(options.cwd), options.setting_flags())
    images = await load_images(around, options)
    conversation = await open_conversation(around, options)
    watch = _Watch(conversation, out, (*around.loaded.warnings, *conversation.files.recovered))
    conversation.subscribe(watch)

    def interrupt(number: int) -> None:
        watch.signal = number
        conversation.interrupt()

    # Through the loop: a signal that arrives just before it waits must wake it.
    loop = asyncio.get_running_loop()
    for one in _handled_signals():
        loop.add_signal_handler(one, interrupt, one)
    try:
        status = await do(conversation, images)
    except asyncio.CancelledError:  # interrupted again while the turn was ending
        status = "interrupted"
    finally:
        await conversation.close()
        _ignore_from_now_on(loop)  # only the result is left to print
    if conversation.run_summary:
        out(RunSummarized(conversation.run_summary))
    out(watch.result(status))
    return watch.exit_code(status)


class _Watch:
    """Forwards events and collects what the result needs."""

    def __init__(self, conversation: Conversation, out: Out, warnings: tuple[str, ...]) -> None:
        self._conversation = conversation
        self._out = out
        self._warnings = warnings
        self._opened = False
        self._text = ""
        self._tasks = ListedTaskResults()
        self._warned = False
        self.signal: int = signal.SIGINT
        """The signal that ended the run, if one did."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, MessageCommitted) and event.text.strip():
            self._text = event.text
        self._tasks(event)
        self._out(event)
        if isinstance(event, SessionOpened):
            self._opened = True
        if isinstance(event, PromptCommitted | ListedTaskChanged) and not self._warned:
            self._warned = True
            gc.enable()
            for warning in self._warnings:
                self._out(Notice(warning, "warning"))
        if self._out.lost:  # the output cannot be written any more
            self._conversation.interrupt()

    def result(self, status: str) -> Result:
        failure, usage = self._conversation.failure, self._conversation.usage
        info = self._conversation.info
        ids = (info.id, info.root_id) if self._opened else ("", "")  # a run that failed earlier is not stored
        error = failure.message if failure else ""
        code = self.exit_code(status)
        text = self._text or self._tasks.text
        return Result(*ids, text, usage, usage.cost, code, error, self._tasks.all)

    def exit_code(self, status: str) -> int:
        if status == "done":
            return 3 if self._conversation.denied_noninteractive else 0
        failure = self._conversation.failure
        if status == "error" and failure is not None:
            return failure.exit_code
        return {"interrupted": _stopped_by(self.signal), "limit": 4}.get(status, 1)


def _with_stdin(prompt: str, *, or_nothing: bool, wait: bool) -> str:
    """The prompt followed by stdin; `-` is stdin alone. `or_nothing`: both may be empty.

    `wait`: without a prompt, wait for all of stdin.
    """
    if prompt == "-":
        prompt, piped = "", _read_all(sys.stdin.fileno())
    else:
        piped = _stdin(wait_for_all=not prompt and wait)
    text = "\n\n".join(part for part in (prompt.strip(), piped.strip()) if part)
    if not text and not or_nothing:
        raise UsageError(
            "There is no prompt.", 'Give one (crushpy run "fix the failing test") or pipe it in.'
        )
    return encodable(text)


def _stdin(*, wait_for_all: bool) -> str:
    """The text on stdin; empty for a terminal, a closed stdin and /dev/null."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if stat.S_ISCHR(mode):
        return ""
    if not wait_for_all and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        ready, _, _ = select.select([descriptor], [], [], STDIN_TIMEOUT_S)
        if not ready:
            print("crushpy: nothing arrived on stdin; continuing without it", file=sys.stderr)
            return ""
    return _read_all(descriptor)


def _read_all(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read().decode("utf-8", "replace")
