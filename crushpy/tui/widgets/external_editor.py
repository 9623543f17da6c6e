"""Opens a text in the user's editor, while the agent continues to work."""

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from crushpy.core.errors import CrushpyError

FALLBACK_EDITORS = ("vi", "nano")
"""Used if none is set: the first that is installed."""
HINT = "Set VISUAL or EDITOR to an installed editor, for example: export EDITOR=nano"


async def edit_outside(app: App[Any], text: str) -> str:
    """Returns `text` as the user edited it. Raises CrushpyError, with a hint."""
    command = (
        os.environ.get("VISUAL")
        or os.environ.get("EDITOR")
        or next(filter(shutil.which, FALLBACK_EDITORS), "")
    )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CrushpyError(f"The editor command {command!r} cannot be parsed: {error}.", HINT) from None
    if not words:
        raise CrushpyError(
            f"No editor is set, and neither {' nor '.join(FALLBACK_EDITORS)} is installed.", HINT
        )
    # Only the user can read what is in it.
    with tempfile.TemporaryDirectory(prefix="crushpy-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "crushpy.md")
        path.touch(0o600)
        path.write_text(text, encoding="utf-8")
        await _run(app, [*words, str(path)])
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")


async def _run(app: App[Any], words: list[str]) -> None:
    outcome: int | OSError = 0
    # Ctrl+C in the editor also reaches us. An empty handler, unlike SIG_IGN, is not inherited.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        # Batched, so that nothing is drawn over the editor meanwhile.
        with app.batch_update(), app.suspend():
            # Nothing may be raised here: Textual takes the terminal back only at the end of the block.
            try:
                outcome = await (await asyncio.create_subprocess_exec(*words)).wait()
            except OSError as error:
                outcome = error
    except SuspendNotSupported:
        raise CrushpyError("An editor cannot be opened in this kind of terminal.") from None
    finally:
        signal.signal(signal.SIGINT, before)
    if isinstance(outcome, OSError):
        reason = outcome.strerror or str(outcome)
        raise CrushpyError(f"The editor {words[0]!r} cannot be started: {reason}.", HINT)
    if outcome != 0:
        how = f"exit code {outcome}" if outcome > 0 else f"ended by signal {-outcome}"
        raise CrushpyError(f"The editor {words[0]!r} failed ({how}). The text is unchanged.", HINT)
