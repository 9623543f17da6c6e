"""The terminal until the app is up: raw mode, a picture of the app, and an echo of the keys.

The picture is the app's first frame at an earlier start with the same folder, size and colours; see
`tui/first_frame.py`. Everything here is imported before Textual and must stay light.
"""

import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crushpy.core.paths import Paths
from crushpy.tui.terminal.terminal_features import ask_background, extract_background
from crushpy.util.processes import exit_on_signals
from crushpy.util.terminal_modes import read_single_keys, restore_modes

HANGUP_TIMEOUT_S = 5.0
"""Time for storing unsaved data after the terminal has gone away."""
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[0m\x1b[?1049l\x1b[?25h"
CTRL_C = b"\x03"
STDERR = 2
"""Where Textual draws as well."""
HIDE_CURSOR = "\x1b[?25l"
PLACEHOLDER = "Ask anything.  @ file  / command  ! shell"
COLOUR_VARIABLES = ("TERM", "COLORTERM", "COLORFGBG", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")
_PARTIAL_INPUT = re.compile(rb"(?:\x1b(?:\][^\x07\x1b]*\x1b?|\[[0-9;?]*|O)?|[\xc0-\xff][\x80-\xbf]*)\Z")
"""The beginning of a character, a key or an answer, at the end of the input."""
_COMMAND_KEY = re.compile(r"[\x00-\x1f]|\A\?")
"""A key that is not text: a `?` in an empty prompt asks for the keys."""
_SEQUENCES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\|\Z)|\[[0-9;?]*[@-~]?|O.?|.?)")


class WaitableEvent(threading.Event):
    """An event that can be waited for together with a file: `file` is readable once it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.file, self._far_end = os.pipe()

    def set(self) -> None:
        super().set()
        os.write(self._far_end, b"!")

    def clear(self) -> None:
        if self.is_set():
            os.read(self.file, 100)
        super().clear()


def frame_key(folder: str, size: tuple[int, int], flags: Iterable[object] = ()) -> str:
    """What a picture depends on. `flags`: settings of this start alone, such as the model."""
    colours = (os.environ.get(name, "") for name in COLOUR_VARIABLES)
    return "\n".join((folder, "{}x{}".format(*size), *colours, *map(str, flags)))


@contextmanager
def early_terminal(folder: str = "", flags: Iterable[object] = ()) -> "Generator[EarlyTerminal]":
    """Opens the terminal for the app of this folder, and restores it at the end. `flags`: see `frame_key`."""
    terminal = EarlyTerminal()

    def end(number: int) -> bool:
        if number == signal.SIGINT and terminal.is_shown and terminal.draft:
            terminal.keep(CTRL_C)  # clears the draft, as in the app; the next one ends it
            return False
        if terminal.is_shown:  # modules are being imported, and some of them catch all exceptions
            terminal.close()
            os._exit(128 + number)
        return True

    with exit_on_signals(end):
        try:
            terminal.open(folder, flags)
            yield terminal
        finally:
            terminal.close()


class EarlyTerminal:
    """Shows the picture with what is typed, and keeps the keys until the app asks for them (`wanted`).

    Textual would dispatch earlier ones to a screen without a focused widget, where they are lost.
    """

    def __init__(self, data: bytes = b"") -> None:
        """`data`: what was typed already."""
        self.wanted = WaitableEvent()
        self.frame: dict[str, Any] = {}
        """What `first_frame` has saved; empty if there is nothing that fits."""
        self.is_shown = False
        """Whether the picture is on the screen, and Textual has not started to draw."""
        self._data, self._echoed = data, b""
        self._lock = threading.RLock()  # Ctrl+C may interrupt what holds it
        self._modes: list[Any] | None = None
        self._reader: threading.Thread | None = None

    def open(self, folder: str = "", flags: Iterable[object] = ()) -> None:
        """Turns echo and line editing off, and shows the picture of the app in this folder."""
        try:
            descriptor = sys.stdin.fileno()
            self._modes = read_single_keys(descriptor)
        except (OSError, ValueError):
            return
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # until the app handles it
        self._show(folder, flags)
        while select.select([descriptor], [], [], 0)[0] and (typed := os.read(descriptor, 4096)):
            # The kernel has turned the Enter keys that were typed before into line feeds.
            self.keep(typed.replace(b"\n", b"\r"))
        ask_background()
        threading.Thread(target=_exit_on_hangup, args=(descriptor,), daemon=True).start()
        self._reader = threading.Thread(target=self._read, args=(descriptor,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Restores the terminal, unless it was never changed."""
        if self._modes is None:
            return
        self.wanted.set()
        if self.is_shown:
            _write(LEAVE_SCREEN)
            self.is_shown = False
        restore_modes(sys.stdin.fileno(), self._modes)
        self._modes = None

    # --- keys ------------------------------------------------------------------------------------------

    @property
    def light(self) -> bool | None:
        """Whether the terminal has reported a light background; None if it has not answered."""
        return extract_background(self._data.decode("utf-8", "replace"))[1]

    def take_text(self) -> tuple[str, bool | None]:
        """The text that was typed before any other key, and the terminal's answer as in `light`."""
        with self._lock:
            found = _PARTIAL_INPUT.search(self._data)
            end = found.start() if found else len(self._data)
            keys, light = extract_background(self._data[:end].decode("utf-8", "replace"))
            text = _COMMAND_KEY.split(keys, 1)[0]
            self._data = keys[len(text) :].encode() + self._data[end:]
        return text, light

    def take_rest(self) -> bytes:
        """The bytes that were not taken yet. The app parses them before what it reads itself."""
        if self._reader is not None:
            self._reader.join()
        rest, self._data = self._data, b""
        return rest

    def _read(self, descriptor: int) -> None:
        with suppress(OSError):  # the terminal is gone
            while True:
                select.select([descriptor, self.wanted.file], [], [])
                if self.wanted.is_set() or not (typed := os.read(descriptor, 4096)):
                    return
                self.keep(typed)

    def keep(self, typed: bytes) -> None:
        with self._lock:
            self._data += typed
        self._echoed += typed
        if self.is_shown:
            self._echo()

    # --- the picture -----------------------------------------------------------------------------------

    def _show(self, folder: str, flags: Iterable[object]) -> None:
        try:
            size = os.get_terminal_size(STDERR)
            folder = folder or str(Path.cwd())
        except OSError:
            return
        if os.environ.get("TERM", "") in ("", "dumb") or size.columns < 20 or size.lines < 3:
            return
        drawn = f"\x1b[{size.lines - 1};2H{PLACEHOLDER[: size.columns - 4]}"
        self._place: tuple[int, int, int] = (size.lines - 1, 2, size.columns - 4)
        self._style = ("", "")
        with suppress(OSError, ValueError, KeyError, TypeError):
            frame = json.loads(Paths().first_frames.read_bytes())[frame_key(folder, size, flags)]
            self.frame = dict(frame)
            row, column, width = map(int, frame["place"])
            before, after = map(str, frame["style"])
            drawn = str(frame["drawn"])
            self._place, self._style = (row, column, width), (before, after)
        self.is_shown = True
        _write(f"{ENTER_SCREEN}{HIDE_CURSOR}\x1b[2J{drawn}")

    @property
    def draft(self) -> str:
        """The text of the prompt: since Ctrl+C, and up to the first Enter."""
        typed: list[str] = []
        keys = _SEQUENCES.sub("", self._echoed.rpartition(CTRL_C)[2].decode("utf-8", "ignore"))
        for key in keys.partition("\r")[0]:
            if key in "\x7f\b":
                del typed[-1:]
            elif key.isprintable():
                typed.append(key)
        return "".join(typed)

    def _echo(self) -> None:
        (row, column, width), (before, after) = self._place, self._style
        text = self.draft
        room = width - 1 if text.isascii() else width // 2 - 1  # some characters take two cells
        if _SEQUENCES.sub("", self._echoed.decode("utf-8", "ignore")):  # not only answers of the terminal
            shown = f"{text[-room:]}\x1b[7m \x1b[27m\x1b[K"
            _write(f"\x1b[{row};{column}H{before}{shown}{after}")


def _write(text: str) -> None:
    data = text.encode()
    with suppress(OSError):
        while data:
            data = data[os.write(STDERR, data) :]


def _exit_on_hangup(descriptor: int) -> None:
    """Ends the process when the terminal goes away: reading from it would busy-loop."""
    poll = select.poll()
    poll.register(descriptor, 0)  # only hang-ups and errors
    poll.poll()
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(HANGUP_TIMEOUT_S)
    os._exit(128 + signal.SIGHUP)
