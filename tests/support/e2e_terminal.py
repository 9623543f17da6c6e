"""A real terminal for end-to-end tests: a pty, a screen that understands what is drawn, and a keyboard."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import pyte
from pyte.screens import Char

from support.command import start_crushpy

PATIENCE = 60.0
ACTIVITY = re.compile(r"^ [⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ", re.MULTILINE)
"""The spinner of the line that tells what runs."""
CURSOR_QUESTION = b"\x1b[6n"
ASKS = re.compile(r"^ *asks you\b")


class Terminal:
    """Runs a program in a pty of its own. `with Terminal(...) as terminal:` ends it, come what may."""

    def __init__(
        self,
        *args: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        columns: int = 100,
        rows: int = 30,
        launcher: tuple[str, ...] = (),
    ) -> None:
        """`launcher` is a program that becomes crushpy, which follows it as its arguments."""
        self.raw = bytearray()
        self.answers = True
        """It tells the position of its cursor if asked, as terminals do."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self._size(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = start_crushpy(
            *args,
            launcher=launcher,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        os.close(self._master)
        os.close(self._slave)

    # --- the screen -------------------------------------------------------

    @property
    def text(self) -> str:
        """What is on the screen now."""
        # Not `Screen.display`: that fails on half a wide letter, as there is one in the middle of drawing.
        return "\n".join("".join(cell.data for cell in row).rstrip() for row in self.cells)

    @property
    def cells(self) -> list[list[Char]]:
        """What is on the screen now, with its colours."""
        self._read(0)
        screen = self._screen
        return [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines)]

    def wait_drawn(self) -> None:
        """Returns once something more was drawn."""
        before = len(self.raw)
        self._wait(lambda _: len(self.raw) > before, "anything", PATIENCE)

    def wait_quiet(self) -> None:
        """Returns once nothing was drawn for a second, and not for want of a processor."""
        while self._read(1.0) or self._has_work():
            pass

    def take_waiting(self) -> int:
        """Reads once the program rests, until it rests again; gives how many bytes that were."""
        while self._has_work():
            time.sleep(0.05)
        before = len(self.raw)
        self.wait_quiet()
        return len(self.raw) - before

    def _has_work(self) -> bool:
        """True where a thread of the program runs, or waits for its turn to."""
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with suppress(OSError):  # it may end while we look
                if stat.read_text().rpartition(")")[2].split()[0] in "RD":
                    return True
        return False

    def wait_for(self, *wanted: str, timeout: float = PATIENCE) -> str:
        """Returns once every text is on the screen at the same time."""
        return self._wait(lambda shown: all(server in shown for server in wanted), f"{wanted}", timeout)

    def wait_cells(self, wanted: list[list[Char]]) -> None:
        """Returns once the screen begins with these rows."""
        self._wait(lambda _: self.cells[: len(wanted)] == wanted, "the same picture", PATIENCE)

    def wait_rest(self) -> None:
        """Returns once the agent rests: it draws no more, nothing runs, and no question waits."""
        self.wait_quiet()
        self._wait(
            lambda shown: not (ACTIVITY.search(shown) or ASKS.search(shown.split("\n")[-1])),
            "the agent to rest",
            PATIENCE,
        )

    def wait_gone(self, text: str, timeout: float = PATIENCE) -> str:
        return self._wait(lambda shown: text not in shown, f"{text!r} to go", timeout)

    def _wait(self, condition: object, what: str, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while True:
            shown = self.text
            if condition(shown):  # type: ignore[operator]
                return shown
            left = deadline - time.monotonic()
            if left <= 0 or (self.process.poll() is not None and not self._read(0)):
                raise AssertionError(f"waited for {what}; the screen shows:\n{self.text}")
            self._read(min(left, 0.2))

    def wait_exit(self, timeout: float = PATIENCE) -> int:
        """The exit code, once the program has gone."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not end; the screen shows:\n{self.text}")
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def _read(self, wait: float) -> bool:
        """Takes in what was drawn; True where there was something."""
        ready, _, _ = select.select([self._master], [], [], wait)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        return self._take(data)

    def _take(self, data: bytes) -> bool:
        self.raw += data
        self._stream.feed(data)
        if self.answers and CURSOR_QUESTION in self.raw[-len(data) - len(CURSOR_QUESTION) + 1 :]:
            cursor = self._screen.cursor
            os.write(self._master, b"\x1b[%d;%dR" % (cursor.y + 1, cursor.x + 1))
        return bool(data)

    # --- the keyboard -----------------------------------------------------

    def press(self, keys: str | bytes) -> None:
        """Sends keys as a terminal would: text, or the bytes of a control key."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            self._read(0)
            data = data[os.write(self._master, data[:4096]) :]

    def type_line(self, text: str) -> None:
        self.press(text)
        self.wait_for(text[-20:])
        self.press("\r")

    def paste(self, text: str) -> None:
        self.press(b"\x1b[200~" + text.encode() + b"\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        self._size(columns, rows)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def hang_up(self) -> None:
        """The window is closed: nobody reads any more, and there is nothing to read from."""
        os.close(self._slave)
        os.close(self._master)

    @property
    def restored(self) -> bool:
        """True where the terminal is as it was: echo on, no alternate screen, cursor shown, mouse off."""
        flags = termios.tcgetattr(self._slave)
        same = flags[3] & (termios.ECHO | termios.ICANON) == self.before[3] & (termios.ECHO | termios.ICANON)
        left = self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")
        cursor = self.raw.rfind(b"\x1b[?25h") >= self.raw.rfind(b"\x1b[?25l")
        mouse = self.raw.rfind(b"\x1b[?1000l") >= self.raw.rfind(b"\x1b[?1000h")
        return same and left and cursor and mouse
