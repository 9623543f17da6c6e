"""The prompt in a real terminal: pastes and the user's editor, through Textual's own driver."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HOST = """
import sys
from textual.app import App
from crushpy.tui.textual_adapter import Keyboard
from crushpy.tui.widgets.prompt import PromptInput

class Host(App):
    def compose(self):
        yield PromptInput()
    def on_mount(self):
        self.query_one(PromptInput).focus()
        self.call_after_refresh(self.say, "ready")
    def on_prompt_input_submitted(self, event):
        self.say(f"{len(event.text)} {event.text[:40]!r} {event.text[-10:]!r}")
    def say(self, line):
        with open(sys.argv[1], "a") as file:
            file.write(line + "\\n")

Host(driver_class=Keyboard).run()
"""
START, END = b"\x1b[200~", b"\x1b[201~"


class Terminal:
    """The host app in a terminal of its own; what it says goes to a file."""

    def __init__(self, folder: Path, editor: Path) -> None:
        self._log = folder / "log"
        self._log.touch()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(self._log)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "EDITOR": str(editor), "VISUAL": ""},
        )
        os.close(slave)
        os.set_blocking(self._master, False)

    def type(self, data: bytes) -> None:
        """Writes, and reads meanwhile, as a terminal does: neither side may wait for the other."""
        while data:
            self._drain(0.01)
            try:
                data = data[os.write(self._master, data[:4096]) :]
            except BlockingIOError:
                continue

    def wait_for(self, lines: int) -> str:
        """The last of so many lines."""
        return self.wait_until(lambda: (self._said()[lines - 1 : lines] or [""])[0])

    def wait_until(self, answer) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self._drain(0.02)
            if found := answer():
                return found
        raise AssertionError(f"waited in vain; so far: {self._said()}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _said(self) -> list[str]:
        return self._log.read_text().splitlines()

    def _drain(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            try:
                if not os.read(self._master, 65536):
                    return
            except OSError:
                return
            seconds = 0


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\nprintf " and more" >> "$1"\ntouch {tmp_path}/edited\n')
    editor.chmod(0o700)
    one = Terminal(tmp_path, editor)
    one.wait_for(1)
    yield one
    one.close()


@pytest.mark.nightly
def test_five_megabytes_are_pasted_and_sent_as_one_prompt(terminal: Terminal):
    terminal.type(START + (b"x" * 49 + b"\r") * 100_000 + END + b" end\r")
    assert terminal.wait_for(2) == f"5000004 {'x' * 40!r} {'xxxxx' + chr(10) + ' end'!r}"


def test_a_pasted_log_with_colours_sends_nothing_by_itself(terminal: Terminal):
    terminal.type(
        START + b"\x1b[31mred\x1b[0m\rrm -rf and more than an escape sequence holds\r" + END + b"end\r"
    )
    assert terminal.wait_for(2).startswith(r"53 'red\nrm -rf and more than")


def test_the_editor_has_the_terminal_and_the_prompt_gets_the_text_and_the_keys_back(
    terminal: Terminal, tmp_path: Path
):
    terminal.type(b"words\x07")
    terminal.wait_until(lambda: (tmp_path / "edited").exists() and "yes")
    # What is typed while the terminal changes hands is nobody's; so ask until an answer comes.
    terminal.wait_until(lambda: terminal.type(b"\r") or (terminal._said()[1:2] or [""])[0])
    assert terminal.wait_for(2) == "14 'words and more' 's and more'"
