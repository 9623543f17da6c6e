"""Puts text on the clipboard: with the system's own tool where there is one, else through the terminal."""

import asyncio
import os
import shutil

from textual.app import App

TOOLS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
    ("clip.exe",),
)
MOST = 1_000_000
"""Characters that are sent to a terminal: it would show nothing else until it has taken them."""


async def copy(app: App[object], text: str) -> str:
    """Copies, and says honestly how: a terminal never tells whether it took it."""
    many = "1 character" if len(text) == 1 else f"{len(text):,} characters"
    in_system, in_tmux = await hand_on(text)
    if in_system:
        return f"Copied {many}, also to tmux's buffer." if in_tmux else f"Copied {many}."
    if len(text) > MOST:
        where = "Copied to tmux's buffer" if in_tmux else "Not copied"
        return f"{where}: {many} are too many for the terminal's clipboard (OSC 52). /export writes a file."
    app.copy_to_clipboard(text)
    if in_tmux:
        return f"Copied {many} to tmux's buffer (its prefix and ] paste), and sent to the terminal (OSC 52)."
    return f"Sent {many} to the terminal's clipboard (OSC 52); some terminals ignore that."


async def hand_on(text: str) -> tuple[bool, bool]:
    """Fills the system's own clipboard and tmux's buffer, and says whether there was one and took it."""
    return await _fill_system(text), await _fill_tmux(text)


async def _fill_system(text: str) -> bool:
    if os.environ.get("SSH_CONNECTION"):  # that would be another machine's clipboard
        return False
    for tool in TOOLS:
        if shutil.which(tool[0]) and await _pipe(tool, text):
            return True
    return False


async def _fill_tmux(text: str) -> bool:
    """tmux by its defaults keeps from the terminal what a program in it sends there."""
    if not os.environ.get("TMUX") or not shutil.which("tmux"):
        return False
    # With -w it hands the text on to the terminal; before 3.2 it could not.
    return await _pipe(("tmux", "load-buffer", "-w", "-"), text) or await _pipe(
        ("tmux", "load-buffer", "-"), text
    )


async def _pipe(command: tuple[str, ...], text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(3):
            await process.communicate(text.encode())
        return process.returncode == 0
    except (OSError, TimeoutError):
        return False
