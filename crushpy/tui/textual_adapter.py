"""Everything crushpy needs from Textual that is not part of its public API.

No other module uses a private name of Textual: `tests/tui/test_textual_adapter.py` checks that, and that each
name used here still exists and behaves as expected. Each use states its reason.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

import logging
import os
import re
import select
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.text import Text
from textual import events
from textual._context import active_message_pump
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome, NoColor
from textual.geometry import Size
from textual.message import Message
from textual.notifications import Notification
from textual.screen import Screen

from crushpy.tui.terminal.early_terminal import ENTER_SCREEN, EarlyTerminal, WaitableEvent
from crushpy.tui.terminal.terminal_features import LateAnswer

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.message_pump import MessagePump
    from textual.signal import Signal

log = logging.getLogger(__name__)
Result = TypeVar("Result")

PARTIAL_KEY_TIMEOUT_S = 0.1
"""Interval between two checks of a key sequence of which only the beginning has arrived."""

MAX_FRAME_S = 1.0
"""Time between two frames on a slow connection, at most, unless `MAX_UNDRAWN_BYTES` wait."""
MAX_UNDRAWN_BYTES = 4000
"""A terminal with more than that to draw gets no frame until it answers, or `LOST_ANSWER_S` later."""
TOLERATED_LAG_S = 0.1
"""A busy machine delays answers too."""
LOST_ANSWER_S = 5.0
FAST_ASK_S = 0.25
"""Time between two questions to a terminal that has drawn `MAX_UNDRAWN_BYTES` without a delay."""

_HELD_BACK = len(BRACKETED_PASTE_END) - 1
_MODIFIED_ENTER = re.compile(r"\x1b(?:\r|\n|\[27;([2-8]);13~)")
"""Enter with a modifier, in the encodings that Textual reads as something else."""
_ALT = "3"


# --- the app ---------------------------------------------------------------------------------------------


def app_of(node: "MessagePump") -> App[object]:
    """The app of a widget. Textual types `widget.app` as `App[Unknown]`."""
    return cast(Any, node).app


def subscribe(node: DOMNode, signal: object, callback: Callable[[], None]) -> None:
    """Calls back whenever Textual publishes `signal`, which it types as `Signal[Unknown]`."""
    cast("Signal[Any]", signal).subscribe(node, lambda _: callback())


class AdaptedApp(App[object]):
    """An app with our keyboard reader, crash report and colour filters."""

    _asked_at = _answered_at = _lag = 0.0
    _asked_after = _asked_about = 0
    """Bytes written before the last question, and those between it and the one before."""
    _is_fast = False
    _least_wait = inf
    """Of a terminal that has not answered yet. Some never do."""

    def get_driver_class(self) -> "type[Driver]":
        driver = super().get_driver_class()
        # Windows has a driver of its own, and a user may choose one.
        return Keyboard if driver is LinuxDriver else driver

    def watch_theme(self) -> None:
        """Selects the filter for NO_COLOR: a theme of ANSI colours needs another than one of RGB colours.

        `_filters`: Textual selects the filter once, when the app is created, and offers no way to change it.
        """
        for at, line_filter in enumerate(self._filters):
            if isinstance(line_filter, Monochrome | NoColor):
                self._filters[at] = NoColor() if self.native_ansi_color else Monochrome()

    def frame_pause(self) -> float:
        """The least time between two frames: as much longer than usual as the terminal takes to draw one.

        The kernel and SSH accept much more than they have sent, so that only an answer of the terminal tells.
        """
        now, written = time.monotonic(), getattr(self._driver, "written", 0)
        waited, slow = now - self._asked_at, self._lag > TOLERATED_LAG_S
        if waited > LOST_ANSWER_S:
            self._lag = 0.0
        if self._asked_at <= self._answered_at or waited > LOST_ANSWER_S:
            if not self._is_fast or waited > FAST_ASK_S:
                self._asked_about = written - self._asked_after
                self._asked_at, self._asked_after = now, written
                write_to_terminal(self, "\x1b[6n")
        elif waited > self._least_wait + (0.0 if slow else TOLERATED_LAG_S):
            self._lag = max(self._lag, waited - self._least_wait)
            if written - self._asked_after > MAX_UNDRAWN_BYTES:
                return LOST_ANSWER_S
        return min(self._lag, MAX_FRAME_S) if self._lag > TOLERATED_LAG_S else 0.0

    def on_cursor_position(self) -> None:
        self._answered_at = time.monotonic()
        waited = self._answered_at - self._asked_at
        self._least_wait = min(self._least_wait, waited)
        self._lag = max(waited - self._least_wait, 0.9 * min(self._lag, MAX_FRAME_S))  # it calms down slowly
        self._is_fast = self._lag <= TOLERATED_LAG_S and (
            self._is_fast or self._asked_about > MAX_UNDRAWN_BYTES
        )

    def describe_crash(self, error: BaseException | None) -> str:
        """The text to print after an unexpected error has ended the app."""
        return f"crushpy: {error}"

    def _fatal_error(self) -> None:
        """Ends the app after an unexpected error.

        Overridden because Textual prints a traceback with local variables, which may hold API keys.
        """
        error = sys.exc_info()[1] or self._exception
        self._exit_renderables.append(Text(self.describe_crash(error)))
        self._close_messages_no_wait()

    def _handle_exception(self, error: Exception) -> None:
        """Ignores a failed query of a screen that was closed while its handler ran; no public hook exists."""
        if isinstance(getattr(error, "error", error), NoMatches) and self._is_from_closed_screen():
            log.warning("a screen that was closed meanwhile queried its widgets", exc_info=error)
        else:
            super()._handle_exception(error)

    def _is_from_closed_screen(self) -> bool:
        node = active_message_pump.get(None)
        while node is not None and not isinstance(node, Screen | App):
            node = node._parent
        return node is None or (isinstance(node, Screen) and node not in self.screen_stack)


def write_to_terminal(app: App[object], sequence: str) -> None:
    """Writes an escape sequence, unless there is no terminal or another program is using it.

    `_driver` and `_running`: the public API has no way to write a sequence that draws nothing.
    """
    driver = app._driver
    if driver is not None and not app.is_headless and app._running:
        driver.write(sequence)
        driver.flush()


def frame_pause(app: App[object]) -> float:
    return app.frame_pause() if isinstance(app, AdaptedApp) else 0.0


def remove_notifications(app: App[object], matches: Callable[[Notification], bool]) -> bool:
    """Removes those notifications on display that match; False if none does. Textual can only clear all."""
    found = list(filter(matches, app._notifications))
    for notification in found:
        app._unnotify(notification, refresh=False)
    if found:
        app._refresh_notifications()
    return bool(found)


def bindings_with_keymap(node: DOMNode) -> dict[str, list[Binding]]:
    """A widget's bindings by key, with the user's keymap. `Screen.active_bindings` computes all."""
    bindings = node._bindings.copy()
    bindings.apply_keymap(app_of(node)._keymap)
    return bindings.key_to_bindings


async def run_bound_action(node: DOMNode, event: events.Key) -> bool:
    """Runs the action that a widget has bound to a key; False if there is none. If the key bubbled, it would
    be handled after those that were typed behind it."""
    for binding in bindings_with_keymap(node).get(event.key, ()):
        if await app_of(node).run_action(binding.action, node):
            event.stop().prevent_default()
            return True
    return False


# --- the layout --------------------------------------------------------------------------------------------


class AdaptedScreen(Screen[Result]):
    """A screen that draws every widget that is mounted.

    `_refresh_layout`: Textual compares each layout with the last one to find widgets that are new. Asked for
    a widget's region in between, it makes a layout of which no widget is told, and forgets the last one.
    """

    _laid_out: Any = None

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        if self._laid_out is not None:
            self._compositor._full_map = self._laid_out
        super()._refresh_layout(size, scroll)
        self._laid_out = self._compositor._full_map


# --- the keyboard ----------------------------------------------------------------------------------------


@dataclass
class BackgroundReported(Message):
    """The terminal reported its background colour after the app had started."""

    light: bool


class Keyboard(LinuxDriver):
    """Textual's driver with a reader that sleeps until a key arrives.

    Textual's reader wakes ten times a second to check whether it should stop or a lone Esc is complete. This
    one waits for input and for the stop event, and uses a timeout only after part of a key has arrived.
    `_app`, `_debug`: attributes of Textual's driver.
    """

    written = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.exit_event = WaitableEvent()
        self._early: EarlyTerminal | None = getattr(self._app, "early_terminal", None)

    def write(self, data: str) -> None:
        if data == ENTER_SCREEN and self._early is not None and self._early.is_shown:
            self._early.is_shown = False  # some terminals would clear it
            return
        self.written += len(data)
        super().write(data)

    def disable_input(self) -> None:
        if self._early is not None:
            self._early.wanted.set()  # no prompt will come any more, and the reader thread is joined
        super().disable_input()

    def run_input_thread(self) -> None:
        rest = b""
        if self._early is not None:
            self._early.wanted.wait()
            rest = self._early.take_rest()
            if rest and select.select([self.fileno], [], [], PARTIAL_KEY_TIMEOUT_S)[0]:
                rest += os.read(self.fileno, 4096)
        self._read_keys(rest)

    def _read_keys(self, data: bytes) -> None:
        """Reads until the stop event is set; `data` was read already."""
        parser = PasteReader(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        late = LateAnswer()
        files = [self.fileno, self.exit_event.file]
        while not self.exit_event.is_set():
            if data:
                keys, light = late.take(decode(data))
                if light is not None:
                    self._app.post_message(BackgroundReported(light))
                for message in parser.feed(keys) if keys else ():
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)
            timeout = PARTIAL_KEY_TIMEOUT_S if parser.has_partial_key else None
            ready, _, _ = select.select(files, [], [], timeout)
            data = os.read(self.fileno, 4096) if self.fileno in ready else b""
            if self.fileno in ready and not data:  # end of file: no further input
                self.exit_event.wait()
                return


class PasteReader(XTermParser):
    """Reads the text between paste marks itself, and leaves everything else to Textual's parser.

    Textual's parser takes a paste character by character (seven seconds for five megabytes), and turns what
    follows an escape character in it into key presses: a pasted log with colours could press Enter.
    """

    def __init__(self, debug: bool = False) -> None:
        self._pasted: list[str] | None = None
        """Parts of the paste that is arriving; None outside a paste."""
        self._open_end = ""
        """The last characters read, if a paste mark may begin with them."""
        self._parser_saw_mark = False
        """Whether Textual's parser also got the opening mark, because it arrived in two parts."""
        super().__init__(debug)

    @property
    def has_partial_key(self) -> bool:
        """Only a timeout can tell whether what was read is a complete key (`_timeout_time`)."""
        return self._timeout_time is not None

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        while data:
            data = yield from (self._read_keys(data) if self._pasted is None else self._read_paste(data))

    def _read_keys(self, data: str) -> Generator[Message, None, str]:
        """Reads up to the beginning of a paste; returns the rest."""
        if self._open_end == "\x1b" and self.has_partial_key and data[0] in "\r\n":  # Alt+Enter in two parts
            data = f"[13;{_ALT}u{data[1:]}"
        seen = len(self._open_end)
        data = self._open_end + data
        start = data.find(BRACKETED_PASTE_START)
        if start < 0:
            self._open_end = _possible_mark(data)
            yield from super().feed(_encode_enters(data[seen:]))
            return ""
        end = start + len(BRACKETED_PASTE_START)
        self._parser_saw_mark = start < seen
        before = data[seen : end if self._parser_saw_mark else start]
        if before:
            yield from super().feed(_encode_enters(before))
        self._pasted, self._open_end = [], ""
        return data[end:]

    def _read_paste(self, data: str) -> Generator[Message, None, str]:
        """Reads up to the end of the paste; returns the rest."""
        assert self._pasted is not None
        data = self._open_end + data
        end = data.find(BRACKETED_PASTE_END)
        if end < 0:
            self._pasted.append(data[:-_HELD_BACK])
            self._open_end = data[-_HELD_BACK:]
            return ""
        text = "".join([*self._pasted, data[:end]])
        self._pasted, self._open_end = None, ""
        if self._parser_saw_mark:
            for _empty_paste in super().feed(BRACKETED_PASTE_END):
                pass
        yield events.Paste(text.replace("\0", ""))
        return data[end + len(BRACKETED_PASTE_END) :]


def _encode_enters(keys: str) -> str:
    """Keys with each modified Enter in the encoding that Textual understands."""
    if "\x1b" not in keys:
        return keys
    return _MODIFIED_ENTER.sub(lambda found: f"\x1b[13;{found[1] or _ALT}u", keys)


def _possible_mark(text: str) -> str:
    """The longest end of `text` with which a paste mark may begin."""
    for length in range(len(BRACKETED_PASTE_START) - 1, 0, -1):
        if text.endswith(BRACKETED_PASTE_START[:length]):
            return BRACKETED_PASTE_START[:length]
    return ""
