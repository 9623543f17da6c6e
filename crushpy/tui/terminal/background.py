"""Asks the terminal for the colour behind its text, and finds the answer among what was typed."""

import os
import re
import sys
import time
from contextlib import suppress

QUESTION = "\x1b]11;?\x1b\\"
_ANSWER = re.compile(
    r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})[^\x07\x1b]{0,8}(?:\x07|\x1b\\)"
)
_HALF = re.compile(r"\x1b\]1?1?;?[rgba:/0-9a-fA-F]*\x1b?")
_BRIGHT = 0.5
BEGINNING = "\x1b]"
LONGEST = 40
PATIENCE = 3.0
"""Seconds within which an answer is expected."""


def ask_background() -> None:
    """Sends the question. The answer comes as if somebody had typed it; some terminals never answer."""
    if os.environ.get("TERM", "") not in ("", "dumb", "linux"):
        with suppress(OSError, ValueError):
            sys.stdout.write(QUESTION)
            sys.stdout.flush()


def answered(typed: str) -> tuple[str, bool | None]:
    """What was typed without the answer, and whether the background is light; None where nothing tells."""
    found = _ANSWER.search(typed)
    if found is None:
        return typed, None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    light = 0.299 * red + 0.587 * green + 0.114 * blue > _BRIGHT
    return typed[: found.start()] + typed[found.end() :], light


def guessed() -> bool:
    """Whether the background is light, as far as the environment tells: `COLORFGBG=0;15` is a light one."""
    last = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return last in ("7", "15")


def colours() -> int:
    """How many colours the terminal is said to have; 0 where nothing tells."""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ.get("TERM", "")
    if "256" in term or "direct" in term or "kitty" in term or "alacritty" in term:
        return 256
    return 16 if term in ("linux", "xterm", "screen", "tmux", "vt100", "rxvt", "ansi", "cons25") else 0


class LateAnswer:
    """Takes an answer that comes while the app reads keys already out of them."""

    def __init__(self) -> None:
        self._until = time.monotonic() + PATIENCE
        self._held = ""

    def take(self, keys: str) -> tuple[str, bool | None]:
        """The keys without the answer or the beginning of one, and whether the background is light."""
        if not self._held and (BEGINNING not in keys or time.monotonic() > self._until):
            return keys, None
        keys, light = answered(self._held + keys)
        self._held = ""
        start = keys.rfind(BEGINNING)
        if light is None and start >= 0 and len(keys) - start < LONGEST and _HALF.fullmatch(keys, start):
            keys, self._held = keys[:start], keys[start:]
        return keys, light
