"""The system's clipboard (text and images), and image files that were dropped on the terminal."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from textual.app import App

from crushpy.security.programs import find_program
from crushpy.util.images import SUFFIXES, image_type

COPY_TOOLS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
    ("clip.exe",),
)
COPY_TIMEOUT_S = 3.0
MAX_OSC52_CHARS = 1_000_000
"""Characters that are sent to a terminal: it would show nothing else until it has read them."""
PASTE_TOOLS = ("wl-paste", "xclip", "pngpaste", "osascript")
PASTE_TIMEOUT_S = 3.0
"""Time for all tools together: a clipboard whose owner hangs must not block anything."""
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_X11 = ("xclip", "-selection", "clipboard", "-o", "-t")
_MAC_SCRIPT = ("osascript", "-e", "get the clipboard as «class PNGf»")
MAX_DROPPED_CHARS = 8_000
"""Longer pastes are prose or code, not paths."""


# --- copying text ----------------------------------------------------------------------------------------


async def copy(app: App[object], text: str) -> str:
    """Copies with the system's tool, else through the terminal, which never tells whether it did.

    Returns a message that says how.
    """
    many = "1 character" if len(text) == 1 else f"{len(text):,} characters"
    in_system, in_tmux = await hand_on(text)
    also = " It is in tmux's buffer as well: its prefix and ] paste." if in_tmux else ""
    if in_system:
        return f"Copied {many}.{also}"
    if len(text) > MAX_OSC52_CHARS:
        return f"{many} are too many for the terminal's clipboard (OSC 52). /export writes a file.{also}"
    app.copy_to_clipboard(text)
    return f"Sent {many} to the terminal's clipboard (OSC 52); some terminals ignore that.{also}"


async def hand_on(text: str) -> tuple[bool, bool]:
    """Copies to the system's clipboard and to tmux's buffer; returns which of them took it."""
    return await _copy_to_system(text), await _copy_to_tmux(text)


async def _copy_to_system(text: str) -> bool:
    if os.environ.get("SSH_CONNECTION"):  # that would be another machine's clipboard
        return False
    for tool in COPY_TOOLS:
        if find_program(tool[0]) and await _pipe(tool, text):
            return True
    return False


async def _copy_to_tmux(text: str) -> bool:
    """By default tmux does not forward to the terminal what a program sends to its clipboard."""
    if not os.environ.get("TMUX") or not find_program("tmux"):
        return False
    # With -w it forwards the text to the terminal; before 3.2 it could not.
    return await _pipe(("tmux", "load-buffer", "-w", "-"), text) or await _pipe(
        ("tmux", "load-buffer", "-"), text
    )


async def _pipe(command: tuple[str, ...], text: str) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(COPY_TIMEOUT_S):
            return await _run(command, text.encode()) is not None
    return False


# --- reading an image ------------------------------------------------------------------------------------


def has_clipboard_tool() -> bool:
    """Whether images can be read. Over SSH a tool would read another machine's clipboard."""
    return not os.environ.get("SSH_CONNECTION") and any(map(find_program, PASTE_TOOLS))


async def read_clipboard_image() -> bytes | None:
    """The image on the clipboard (see `has_clipboard_tool`); None if there is none, or none in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PASTE_TIMEOUT_S):
            for tool in filter(find_program, PASTE_TOOLS):
                raw = await _read_image(tool)
                if image_type(raw) is not None:
                    return raw
    return None


async def _read_image(tool: str) -> bytes:
    match tool:
        case "wl-paste" | "xclip":
            wayland = tool == "wl-paste"
            listed = await _read_output(*(("wl-paste", "--list-types") if wayland else (*_X11, "TARGETS")))
            offered = listed.decode(errors="replace").split()
            kind = next((kind for kind in IMAGE_TYPES if kind in offered), None)
            read = ("wl-paste", "--type") if wayland else _X11
            return await _read_output(*read, kind) if kind else b""
        case "pngpaste":
            return await _read_output("pngpaste", "-")
        case _:
            found = re.search(rb"PNGf([0-9A-Fa-f]+)", await _read_output(*_MAC_SCRIPT))
            return bytes.fromhex(found[1].decode()) if found and len(found[1]) % 2 == 0 else b""


async def _read_output(*command: str) -> bytes:
    return await _run(command) or b""


async def _run(command: Sequence[str], given: bytes | None = None) -> bytes | None:
    """The output of a command that is not given any input; None if it fails. It does not outlive the call."""
    reads = given is None  # a tool that copies may leave a process behind, which would hold the pipe open
    try:
        process = await asyncio.create_subprocess_exec(
            find_program(command[0]) or command[0],
            *command[1:],
            stdin=DEVNULL if reads else PIPE,
            stdout=PIPE if reads else DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        output, _ = await process.communicate(given)
        return None if process.returncode else output or b""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # its children as well: they hold the pipe open
            await process.wait()


# --- dropped files ---------------------------------------------------------------------------------------


def may_be_images(text: str) -> bool:
    """Whether a paste may be paths of images, which is how a terminal sends dropped files. Cheap."""
    end = text.strip().rstrip("\"'").lower()
    return len(text) <= MAX_DROPPED_CHARS and end.endswith(SUFFIXES)


def existing_images(text: str, folder: str) -> list[str]:
    """The files that `text` names, if it names nothing else and all of them exist; else none."""
    whole = text.strip()
    for names in ([whole], _split_words(whole), whole.splitlines()):
        paths = [_find_image(name.strip(), folder) for name in names]
        if paths and all(path is not None for path in paths):
            return [str(path) for path in paths]
    return []


def _split_words(text: str) -> list[str]:
    """Words as a shell reads them: quoted, or with a backslash before each blank."""
    import shlex

    with suppress(ValueError):
        return shlex.split(text)
    return []


def _find_image(name: str, folder: str) -> Path | None:
    if name.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        name = unquote(urlsplit(name).path)
    if not name.lower().endswith(SUFFIXES):
        return None
    try:
        path = Path(folder) / Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
