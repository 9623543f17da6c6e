"""What the terminal can show: the colour of its background, its colours and its characters.

Imported before Textual: it must stay light.
"""

import os
import re
import sys
import time
from contextlib import suppress

ANSWER_TIMEOUT_S = 3.0
"""Time within which the terminal's answer about its background is expected."""
WIPE = "\x1b[0m\x1b[2J"
"""Clears the terminal's screen."""
BACKGROUND_QUESTION = "\x1b]11;?\x1b\\"
_ANSWER = re.compile(
    r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})[^\x07\x1b]{0,8}(?:\x07|\x1b\\)"
)
_PARTIAL_ANSWER = re.compile(r"\x1b\]1?1?;?[rgba:/0-9a-fA-F]*\x1b?")
_ANSWER_START = "\x1b]"
_MAX_ANSWER_LENGTH = 40
_MIN_LIGHT_LUMINANCE = 0.5


def ask_background() -> None:
    """Asks for the background colour. The answer arrives as if it were typed; some terminals never answer."""
    if os.environ.get("TERM", "") not in ("", "dumb", "linux"):
        with suppress(OSError, ValueError):
            sys.stdout.write(BACKGROUND_QUESTION)
            sys.stdout.flush()


def extract_background(typed: str) -> tuple[str, bool | None]:
    """The input without the answer, and whether the background is light; None if there is no answer."""
    found = _ANSWER.search(typed)
    if found is None:
        return typed, None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    light = 0.299 * red + 0.587 * green + 0.114 * blue > _MIN_LIGHT_LUMINANCE
    return typed[: found.start()] + typed[found.end() :], light


def guess_light_background() -> bool:
    """Whether the background is light according to the environment: `COLORFGBG=0;15` is a light one."""
    last = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return last in ("7", "15")


def count_colours() -> int:
    """How many colours the terminal has according to the environment; 0 if unknown."""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ.get("TERM", "")
    if "256" in term or "direct" in term or "kitty" in term or "alacritty" in term:
        return 256
    return 16 if term in ("linux", "xterm", "screen", "tmux", "vt100", "rxvt", "ansi", "cons25") else 0


def is_ascii_only() -> bool:
    """Whether the user's locale has no Unicode. Without a locale, the terminal is expected to have it."""
    names = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, names), "utf-8").lower()
    return "utf" not in locale


class LateAnswer:
    """Removes an answer that arrives after the app has started from the keys that are read."""

    def __init__(self) -> None:
        self._until = time.monotonic() + ANSWER_TIMEOUT_S
        self._held = ""

    def take(self, keys: str) -> tuple[str, bool | None]:
        """The keys without the answer or the beginning of one, and whether the background is light."""
        if not self._held and (_ANSWER_START not in keys or time.monotonic() > self._until):
            return keys, None
        keys, light = extract_background(self._held + keys)
        self._held = ""
        start = keys.rfind(_ANSWER_START)
        partial = start >= 0 and _PARTIAL_ANSWER.fullmatch(keys, start)
        if light is None and partial and len(keys) - start < _MAX_ANSWER_LENGTH:
            keys, self._held = keys[:start], keys[start:]
        return keys, light
