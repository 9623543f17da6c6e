"""Lets the user's own editor have a text, while the agent goes on working."""

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from crushpy.core.errors import CrushpyError

USUAL = ("vi", "nano")
"""Editors to take where none is set, the first that is there."""
WAY_OUT = "Set VISUAL or EDITOR to an editor that is there, for instance: export EDITOR=nano"


async def edit_outside(app: App[Any], text: str) -> str:
    """What the user made of `text` in an editor of theirs. Raises CrushpyError, with the way out."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or next(filter(shutil.which, USUAL), "")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CrushpyError(f"The editor's name cannot be read: {command!r} ({error}).", WAY_OUT) from None
    if not words:
        raise CrushpyError(f"No editor is set, and neither {' nor '.join(USUAL)} is installed.", WAY_OUT)
    path = _temporary()
    try:
        path.write_text(text, encoding="utf-8")
        await _run(app, [*words, str(path)])
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    finally:
        path.unlink(missing_ok=True)


async def _run(app: App[Any], words: list[str]) -> None:
    outcome: int | OSError = 0
    try:
        # Batched, or what the agent does meanwhile would be drawn over the editor.
        with _interrupts_left_to_the_editor(), app.batch_update(), app.suspend():
            # Nothing may be raised in here: Textual takes the terminal back only at the end of the block.
            outcome = await _start_and_wait(words)
    except SuspendNotSupported:
        raise CrushpyError("An editor cannot be opened in this kind of terminal.") from None
    if isinstance(outcome, OSError):
        reason = outcome.strerror or str(outcome)
        raise CrushpyError(f"The editor {words[0]!r} cannot be started: {reason}.", WAY_OUT)
    if outcome != 0:
        how = f"exit code {outcome}" if outcome > 0 else f"ended by signal {-outcome}"
        raise CrushpyError(f"The editor {words[0]!r} failed ({how}). The text is as it was.", WAY_OUT)


async def _start_and_wait(words: list[str]) -> int | OSError:
    """The editor's exit code, or why there is none."""
    try:
        process = await asyncio.create_subprocess_exec(*words)
    except OSError as error:
        return error
    return await process.wait()


def _temporary() -> Path:
    """A file that only the user can read."""
    handle, name = tempfile.mkstemp(prefix="crushpy-", suffix=".md")
    os.close(handle)
    return Path(name)


@contextmanager
def _interrupts_left_to_the_editor() -> Generator[None]:
    """Ctrl+C in an editor reaches us as well; a handler that does nothing is not inherited by it."""
    before = signal.signal(signal.SIGINT, _ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ignore(_number: int, _frame: object) -> None:
    pass
