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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.bootstrap.opening import load_images, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.cli.printers import PrinterOutput, StreamPrinter, TextPrinter, print_result
from crushpy.cli.workspace import working_folder
from crushpy.core import events
from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Image, Usage
from crushpy.core.start_options import RunOptions, StartOptions
from crushpy.engine.conversation import Conversation
from crushpy.engine.event_bus import unexpected_error
from crushpy.security.sanitize import encodable
from crushpy.storage.location import is_server

if TYPE_CHECKING:
    from crushpy.engine.agents.task_list_service import TaskFleet
    from crushpy.engine.structured_reply import ReplySchema

Work = Callable[[Conversation, tuple[Image, ...]], Coroutine[Any, Any, TurnStatus]]
STDIN_TIMEOUT_S = 3.0
"""For the first byte on stdin if there is a prompt: some callers never close stdin."""
UNLIMITED_PARALLEL = 100_000
"""On a fleet the slots of its workers are the limit."""
INVALID_VALUE_EXIT, INTERRUPTED_EXIT, TERMINATED_EXIT = 6, 130, 143


class ValueRequest:
    """Asks a prompt whose answer has to match a schema."""

    def __init__(self, prompt: str, pasted: list[str], wanted: "ReplySchema") -> None:
        self._prompt, self._pasted, self._wanted = prompt, pasted, wanted
        self.value = self.problem = self.attempt = ""

    async def __call__(self, conversation: Conversation, images: tuple[Image, ...]) -> TurnStatus:
        from crushpy.engine.structured_reply import ask_for_value

        found = await ask_for_value(conversation, self._prompt, self._wanted, images, pasted=self._pasted)
        self.problem, self.attempt = found.problem, found.text
        if found.status == "done" and not found.problem:
            self.value = msgspec.json.encode(found.value).decode()
        return found.status


def run_headless(options: StartOptions, run: RunOptions) -> int:
    """Runs a prompt or a file of tasks; returns the exit code. Always prints a `result` last."""
    printer = TextPrinter(quiet=run.quiet, streams=not run.schema) if run.form == "text" else print_result
    out = PrinterOutput(StreamPrinter() if run.form == "stream-json" else printer)
    _install_signal_handler(_raise_interrupt)
    try:
        code = asyncio.run(_run_conversation(options, _choose_work(options, run), out, detach=run.detach))
    except CrushpyError as error:
        code = _report_failure(out, error)
    except KeyboardInterrupt as stopped:
        _install_signal_handler(signal.SIG_IGN)
        code = _signal_exit_code(*stopped.args[:1])
        out(events.Result("", "", "", Usage(), 0.0, code, "interrupted"))
    except Exception as error:
        logging.getLogger(__name__).exception("the run failed")
        code = _report_failure(out, unexpected_error(error))
    return 1 if out.lost else code


def _report_failure(out: PrinterOutput, error: CrushpyError) -> int:
    out(events.Error("failed", error.message, error.hint))
    out(events.Result("", "", "", Usage(), 0.0, error.exit_code, error.message))
    return error.exit_code


def _install_signal_handler(action: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Installs `action` for terminating signals, except those ignored by the parent (nohup)."""
    for number in _handled_signals():
        signal.signal(number, action)


def _handled_signals() -> list[signal.Signals]:
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignores signals before the loop closes and restores their default action."""
    handled = _handled_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    for number in handled:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)


def _raise_interrupt(number: int, *_: object) -> None:
    raise KeyboardInterrupt(number)


def _signal_exit_code(number: int = signal.SIGINT) -> int:
    return TERMINATED_EXIT if number == signal.SIGTERM else INTERRUPTED_EXIT


def _choose_work(options: StartOptions, run: RunOptions) -> Work:
    """The work for the conversation: a prompt, a list of tasks, or the rest of one."""
    prompt, tasks, parallel = run.prompt, run.tasks, run.parallel
    wanted = _read_schema(run.schema) if run.schema else None
    if wanted is not None and tasks:
        raise UsageError("--schema cannot be combined with --tasks.", "Give a prompt.")
    if options.pick:
        raise UsageError(
            "--resume needs an ID here.", "`crushpy sessions list` shows them; -c continues the latest."
        )
    if not tasks:
        continues = bool(options.session or options.resume_latest) and not options.image
        optional = continues or bool(options.image)
        full_prompt, pasted = _append_stdin(prompt, optional=optional, wait=not options.image)
        if continues and not full_prompt and wanted is None:
            return lambda conversation, _: conversation.tasks.resume(
                parallel, _fleet(conversation, options, run)
            )
        if run.fleet or run.detach or not run.dirty:
            words = "--fleet, --detach and --no-dirty are for lists of tasks."
            raise UsageError(words, "Give one with --tasks FILE.")
        if parallel is not None:
            raise UsageError(
                "--parallel is for lists of tasks.",
                "Give one with --tasks FILE, or continue one with --resume ID.",
            )
        if wanted is not None:
            return ValueRequest(full_prompt, pasted, wanted)
        return lambda conversation, images: conversation.ask(full_prompt, images, pasted=pasted)
    from crushpy.cli.tasklist import read_tasks

    if prompt or options.resume_latest or options.session or options.image:
        raise UsageError(
            "--tasks cannot be combined with a prompt, --continue, --session, --resume or --image.",
            "Put the prompts into the file. `crushpy run --resume ID` alone continues an unfinished list.",
        )
    task_list = read_tasks(tasks, working_folder(options.cwd))
    if not run.fleet and (run.detach or not run.dirty):
        raise UsageError("--detach and --no-dirty are for lists on a fleet.", "Add --fleet.")
    most = parallel or (UNLIMITED_PARALLEL if run.fleet else 1)
    return lambda conversation, _: conversation.tasks.work_through(
        task_list, most, _fleet(conversation, options, run) if run.fleet else None
    )


def _fleet(conversation: Conversation, options: StartOptions, run: RunOptions) -> "TaskFleet | None":
    """What runs a list on other machines; None if the conversation's database is a file."""
    if not run.fleet and not is_server(conversation.settings.database_url):
        return None
    from crushpy.fleet.submitter import Submitter

    cwd = working_folder(options.cwd)
    return Submitter(cwd, options, conversation.settings, detach=run.detach, dirty=run.dirty, asks=run.asks)


def _read_schema(file: str) -> "ReplySchema":
    from crushpy.engine.structured_reply import reply_schema

    try:
        schema = msgspec.json.decode(Path(file).expanduser().read_bytes())
    except OSError as error:
        raise UsageError(f"The schema {file} cannot be read: {error.strerror}.", "Name a file.") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"The schema {file} is not JSON: {error}.", "Write a JSON schema.") from None
    if not isinstance(schema, dict):
        raise UsageError(f"The schema {file} is not a JSON object.", 'For example {"type": "object"}.')
    return reply_schema(schema)


async def _run_conversation(
    options: StartOptions, work: Work, out: PrinterOutput, *, detach: bool = False
) -> int:
    project = ProjectEnvironment(working_folder(options.cwd), options.setting_flags())
    images = await load_images(project, options)
    conversation = await open_conversation(project, options)
    observer = _RunObserver(conversation, out, (*project.loaded.warnings, *conversation.files.recovered))
    conversation.subscribe(observer)

    def interrupt(number: int) -> None:
        observer.signal = number
        conversation.interrupt()

    # Through the loop: a signal that arrives just before it waits must wake it.
    loop = asyncio.get_running_loop()
    for number in _handled_signals():
        loop.add_signal_handler(number, interrupt, number)
    try:
        status = await work(conversation, images)
    except asyncio.CancelledError:  # interrupted again while the turn was ending
        status = "interrupted"
    finally:
        await conversation.close()
        _ignore_signals(loop)  # only the result is left to print
    if isinstance(work, ValueRequest):
        observer.text = work.value
        if work.problem:
            observer.no_value = f"No value matched the schema: {work.problem}"
            out(events.Error("invalid_value", observer.no_value, f"Its last attempt:\n{work.attempt}"))
    if detach and status == "done":
        observer.text = conversation.info.root_id
    if conversation.run_summary:
        out(events.RunSummarized(conversation.run_summary))
    out(observer.result(status))
    return observer.exit_code(status)


class _RunObserver:
    """Forwards events and collects what the result needs."""

    def __init__(self, conversation: Conversation, out: PrinterOutput, warnings: tuple[str, ...]) -> None:
        self._conversation = conversation
        self._out = out
        self._warnings: tuple[str, ...] | None = warnings
        """None once they are printed."""
        self._opened = False
        self.text = ""
        self._tasks: dict[str, events.ListedTaskChanged] = {}
        """The state of each task of a list."""
        self._reports: dict[str, str] = {}
        """The last message of each."""
        self.no_value = ""
        """Why there is no value, if one was wanted."""
        self.signal: int = signal.SIGINT
        """The signal that ended the run, if one did."""

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.MessageCommitted() if event.text.strip():
                self.text = event.text
            case events.ListedTaskChanged():
                self._tasks[event.name] = event
            case events.TaskEvent(name, events.MessageCommitted() as message) if message.text.strip():
                self._reports[name] = message.text
            case _:
                pass
        self._out(event)
        if isinstance(event, events.SessionOpened):
            self._opened = True
        begins = isinstance(event, events.PromptCommitted | events.ListedTaskChanged)
        if begins and self._warnings is not None:
            warnings, self._warnings = self._warnings, None
            gc.freeze()  # loaded modules are never freed: collections skip them from now on
            gc.enable()
            for warning in warnings:
                self._out(events.Notice(warning, "warning"))
        if self._out.lost:  # the output cannot be written any more
            self._conversation.interrupt()

    def result(self, status: str) -> events.Result:
        failure, usage = self._conversation.failure, self._conversation.usage
        info = self._conversation.info
        ids = (info.id, info.root_id) if self._opened else ("", "")  # a run that failed earlier is not stored
        error = failure.message if failure else self.no_value
        code = self.exit_code(status)
        tasks = sorted(self._tasks.values(), key=lambda task: task.number)
        done = [task.name for task in tasks if task.state == "done" and task.name in self._reports]
        text = self.text or (self._reports[done[-1]] if done else "")
        return events.Result(*ids, text, usage, usage.cost, code, error, tuple(tasks))

    def exit_code(self, status: str) -> int:
        if self.no_value:
            return INVALID_VALUE_EXIT
        if status == "done":
            return 3 if self._conversation.approvals.denied_noninteractive else 0
        failure = self._conversation.failure
        if status == "error" and failure is not None:
            return failure.exit_code
        return {"interrupted": _signal_exit_code(self.signal), "limit": 4}.get(status, 1)


def _append_stdin(prompt: str, *, optional: bool, wait: bool) -> tuple[str, list[str]]:
    """The prompt followed by stdin, and what of it is stdin, which counts as a file; `-` is stdin alone.
    `optional`: both may be empty.

    `wait`: without a prompt, wait for all of stdin.
    """
    if prompt == "-":
        prompt, stdin_text = "", _read_all(sys.stdin.fileno())
    else:
        stdin_text = _read_stdin(wait_for_all=not prompt and wait)
    text = "\n\n".join(part for part in (prompt.rstrip(), stdin_text.strip()) if part)
    if not text and not optional:
        raise UsageError(
            "There is no prompt.", 'Give one (crushpy run "fix the failing test") or pipe it in.'
        )
    return encodable(text), [encodable(stdin_text.strip())]


def _read_stdin(*, wait_for_all: bool) -> str:
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
