"""Reads a picture from the system's clipboard with the tool there is for it. Never asks the terminal."""

import asyncio
import os
import re
import shutil
import signal
from contextlib import suppress

from crushpy.util.images import MAX_PICTURE_FILE, image_type

PATIENCE = 3.0
"""Seconds in all: a clipboard whose owner hangs must not hold anything up."""
TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_X11 = ("xclip", "-selection", "clipboard", "-o", "-t")
_MAC_SCRIPT = ("osascript", "-e", "get the clipboard as «class PNGf»")
TOOLS = ("wl-paste", "xclip", "pngpaste", "osascript")


def has_clipboard_tool() -> bool:
    """Whether there is a tool to ask. Over SSH it would ask another machine's clipboard."""
    return not os.environ.get("SSH_CONNECTION") and any(map(shutil.which, TOOLS))


async def read_clipboard_image() -> bytes | None:
    """The picture on the clipboard; None where there is none, or nobody answers in time."""
    if os.environ.get("SSH_CONNECTION"):
        return None
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            for tool in filter(shutil.which, TOOLS):
                raw = await _ask(tool)
                if image_type(raw) is not None:
                    return raw
    return None


async def _ask(tool: str) -> bytes:
    match tool:
        case "wl-paste":
            offered = (await _output("wl-paste", "--list-types")).decode(errors="replace").split()
            kind = next((kind for kind in TYPES if kind in offered), None)
            return await _output("wl-paste", "--type", kind) if kind else b""
        case "xclip":
            offered = (await _output(*_X11, "TARGETS")).decode(errors="replace").split()
            kind = next((kind for kind in TYPES if kind in offered), None)
            return await _output(*_X11, kind) if kind else b""
        case "pngpaste":
            return await _output("pngpaste", "-")
        case _:
            found = re.search(rb"PNGf([0-9A-Fa-f]+)", await _output(*_MAC_SCRIPT))
            return bytes.fromhex(found[1].decode()) if found and len(found[1]) % 2 == 0 else b""


async def _output(*command: str) -> bytes:
    """What a command prints, up to what is taken of a picture. It does not outlive this."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return b""
    assert process.stdout is not None
    chunks: list[bytes] = []
    size = 0
    try:
        while size <= 2 * MAX_PICTURE_FILE and (chunk := await process.stdout.read(1 << 20)):
            chunks.append(chunk)
            size += len(chunk)
        if size <= 2 * MAX_PICTURE_FILE:
            await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it started: that holds the pipe open too
            await process.wait()
    return b"".join(chunks)
