"""Reads the keyboard without a clock: an idle app sleeps until there is a key.

Textual's own reader looks ten times a second whether it should end or a lone Esc is complete. This one waits
for input, for the end, and for a time only where it has read half a key. Uses private names of Textual 8.2.8.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

import os
import select
from codecs import getincrementaldecoder
from threading import Event
from typing import Any

from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from crushpy.tui.terminal.background import LateAnswer
from crushpy.tui.terminal.early_keys import EarlyKeys
from crushpy.tui.terminal.paced_output import PacedOutput
from crushpy.tui.terminal.paste_reader import PasteReader

HALF_A_KEY = 0.1
"""Seconds between two looks at a key of which only the beginning has come."""


class WaitableEvent(Event):
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


class BackgroundTold(Message):
    """The terminal said, late, what its background is."""

    def __init__(self, light: bool) -> None:
        super().__init__()
        self.light = light


class Keyboard(LinuxDriver):
    """Textual's driver for terminals, with a reader of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.exit_event = WaitableEvent()
        self._early: EarlyKeys | None = getattr(self._app, "early_keys", None)

    @property
    def _writer_thread(self) -> PacedOutput | None:
        return self._output

    @_writer_thread.setter
    def _writer_thread(self, made: WriterThread | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Textual makes a writer whenever it takes the terminal; ours knows how much is under way."""
        self._output = None
        if made is not None and self._file is not None:
            self._output = PacedOutput(self._file, self._app)

    def stop_application_mode(self) -> None:
        if self._output is not None:
            self._output.give_back()
        super().stop_application_mode()

    def _answered(self) -> None:
        if self._output is not None:
            self._output.answered()

    def disable_input(self) -> None:
        if self._early is not None:
            self._early.wanted.set()  # no prompt will come any more, and the reader is waited for
        super().disable_input()

    def run_input_thread(self) -> None:
        rest = b""
        if self._early is not None:
            self._early.wanted.wait()
            rest = self._early.take_rest()
            if rest and select.select([self.fileno], [], [], HALF_A_KEY)[0]:
                rest += os.read(self.fileno, 4096)
        self._read_keys(rest)

    def _read_keys(self, data: bytes) -> None:
        """Reads until the end; `data` was read already."""
        parser = PasteReader(self._debug, self._answered)
        decode = getincrementaldecoder("utf-8")("replace").decode
        late = LateAnswer()
        files = [self.fileno, self.exit_event.file]
        while not self.exit_event.is_set():
            if data:
                keys, light = late.take(decode(data))
                if light is not None:
                    self._app.post_message(BackgroundTold(light))
                for message in parser.feed(keys) if keys else ():
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)
            ready, _, _ = select.select(files, [], [], HALF_A_KEY if parser.is_half_way else None)
            data = os.read(self.fileno, 4096) if self.fileno in ready else b""
            if self.fileno in ready and not data:  # nobody will ever type again
                self.exit_event.wait()
                return
