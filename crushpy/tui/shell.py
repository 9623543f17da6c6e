"""Lines that start with `!`: the user's own commands, run at once and shown; the agent does not see them."""

import asyncio
import os
from pathlib import Path

from crushpy.ids import new_id
from crushpy.messages import Terminal
from crushpy.tui.feed import Feed
from crushpy.tui.items import ToolItem

TIME_LIMIT = 120.0
MAX_OUTPUT = 30_000


async def run_shell(feed: Feed, command: str, cwd: Path) -> None:
    """Runs a command the user typed; what it prints is bounded."""
    output, code, note = "", None, ""
    try:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        feed.fail(error)
        return
    try:
        async with asyncio.timeout(TIME_LIMIT):
            data, _ = await process.communicate()
        output, code = data.decode("utf-8", "replace")[-MAX_OUTPUT:], process.returncode
    except TimeoutError:
        os.killpg(process.pid, 9)
        note = f"ended after {TIME_LIMIT:g} s"
    display = Terminal(command, output, code, note=note)
    feed.show(ToolItem(new_id(), "!", command, "done" if code == 0 else "failed", display, output))
