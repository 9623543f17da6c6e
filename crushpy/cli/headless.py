"""A conversation without a front end: one prompt in, events printed, an exit code out."""

import asyncio
import gc
import os
import select
import signal
import stat
import sys
from pathlib import Path

from crushpy.bootstrap import Surroundings, Wanted, open_conversation
from crushpy.cli.printers import OneJson, Printer, Prose, StreamJson
from crushpy.engine.conversation import Conversation
from crushpy.engine.limits import Limits
from crushpy.errors import CrushpyError, UsageError
from crushpy.events import Error, Event, MessageCommitted, Notice, PromptCommitted, Result
from crushpy.messages import Data, Usage

STDIN_PATIENCE = 3.0
"""Seconds to wait for a first piped byte beside a given prompt: some callers never close stdin."""


class Order(Data, frozen=True):
    """What the command line asked for."""

    prompt: str
    resume_latest: bool = False
    session: str = ""
    model: str = ""
    compaction: str = ""
    form: str = "text"
    allow: tuple[str, ...] = ()
    yolo: bool = False
    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    cwd: str = ""
    quiet: bool = False


def work(order: Order) -> int:
    """Carries out `order` and returns the exit code. A `result` is printed last, whatever happens."""
    printer: Printer = {"text": lambda: Prose(quiet=order.quiet), "json": OneJson, "stream-json": StreamJson}[
        order.form
    ]()
    try:
        return asyncio.run(_work(order, printer))
    except CrushpyError as error:
        _report(printer, Error("failed", error.message, error.hint))
        _report(printer, Result("", "", "", Usage(), 0.0, error.exit_code, error.message))
        return error.exit_code
    except KeyboardInterrupt:
        _report(printer, Result("", "", "", Usage(), 0.0, 130, "interrupted"))
        return 130
    except BrokenPipeError:
        return 1


def _report(printer: Printer, event: Event) -> None:
    try:
        printer(event)
    except BrokenPipeError:
        pass


async def _work(order: Order, printer: Printer) -> int:
    prompt = _prompt(order)
    around = Surroundings(_folder(order.cwd), _flags(order))
    conversation = await open_conversation(
        around,
        Wanted(
            cwd=str(around.cwd),
            session=order.session,
            resume_latest=order.resume_latest,
            model=order.model,
            compaction=order.compaction,
            allow=order.allow,
            yolo=order.yolo,
            limits=Limits(order.max_steps, order.max_tokens, order.max_cost),
        ),
    )
    watch = _Watch(conversation, printer, around.loaded.warnings)
    conversation.subscribe(watch)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(getattr(signal, name), watch.stop)
    try:
        status = await conversation.ask(prompt)
    finally:
        await conversation.close()
    code = watch.exit_code(status)
    info, failure = conversation.info, conversation.failure
    usage = conversation.usage
    error = failure.message if failure else ""
    _report(printer, Result(info.id, info.root_id, watch.text, usage, usage.cost, code, error))
    return code


class _Watch:
    """Passes events to the printer and remembers what the result needs."""

    def __init__(self, conversation: Conversation, printer: Printer, warnings: tuple[str, ...]) -> None:
        self._conversation = conversation
        self._printer = printer
        self._warnings = warnings
        self._broken = False
        self.text = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, MessageCommitted) and event.text.strip():
            self.text = event.text
        self._print(event)
        if isinstance(event, PromptCommitted):
            gc.enable()
            for warning in self._warnings:
                self._print(Notice(warning, "warning"))

    def _print(self, event: Event) -> None:
        try:
            if not self._broken:
                self._printer(event)
        except BrokenPipeError:  # whoever read our output has gone
            self._broken = True
            self.stop()

    def stop(self) -> None:
        if not self._conversation.interrupt():
            raise KeyboardInterrupt

    def exit_code(self, status: str) -> int:
        if status == "done":
            return 3 if self._conversation.unasked else 0
        failure = self._conversation.failure
        if status == "error" and failure is not None:
            return failure.exit_code
        return {"interrupted": 130, "limit": 4}.get(status, 1)


def _flags(order: Order) -> dict[str, object]:
    flags = {"model": order.model, "compaction.method": order.compaction}
    return {key: value for key, value in flags.items() if value}


def _folder(cwd: str) -> Path:
    if cwd:
        folder = Path(cwd).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"--cwd {cwd}: there is no such folder.")
        return folder
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "The current folder no longer exists.", "Change to another one, or name one with --cwd."
        ) from error


def _prompt(order: Order) -> str:
    piped = _stdin(wait_for_all=not order.prompt)
    text = "\n\n".join(part for part in (order.prompt.strip(), piped.strip()) if part)
    if not text:
        raise UsageError(
            "There is no prompt.", 'Give one: crushpy run "fix the failing test", or pipe it in.'
        )
    return text


def _stdin(*, wait_for_all: bool) -> str:
    """What was piped in. A terminal, a closed stdin and /dev/null give nothing."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if stat.S_ISCHR(mode):
        return ""
    if not wait_for_all and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        ready, _, _ = select.select([descriptor], [], [], STDIN_PATIENCE)
        if not ready:
            print("crushpy: nothing came from stdin; going on without it", file=sys.stderr)
            return ""
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read().decode("utf-8", "replace")
