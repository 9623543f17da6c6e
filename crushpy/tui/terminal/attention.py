"""What the terminal itself can show: the window's title, and a call for attention when nobody looks."""

# pyright: reportPrivateUsage=false

import sys
from contextlib import suppress

from textual.app import App

from crushpy.security.sanitize import one_line

PUSH_TITLE, POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"


def set_title(app: App[object], text: str) -> None:
    """Names the window."""
    _write(app, f"\x1b]2;{one_line(text)[:80]}\x07")


def call(app: App[object], text: str) -> None:
    """Rings and notifies (OSC 9) where the window is not in focus."""
    if not app.app_focus:
        app.bell()
        _write(app, f"\x1b]9;{one_line(text)[:120]}\x07")


def keep_title(app: App[object]) -> None:
    _write(app, PUSH_TITLE)


def give_title_back() -> None:
    """Once the app has let go of the terminal: it takes nothing more from the app by then."""
    terminal = sys.__stderr__
    with suppress(OSError, ValueError):
        if terminal is not None and terminal.isatty():
            terminal.write(POP_TITLE)
            terminal.flush()


def _write(app: App[object], sequence: str) -> None:
    """Only to a real terminal, and not while another program has it."""
    driver = app._driver
    if driver is not None and not app.is_headless and app._running:
        driver.write(sequence)
        driver.flush()
