"""Finds the files that a prompt mentions with an @, and says which of them go with it."""

import re
import stat
from pathlib import Path

_MENTION = re.compile(r"""(?:^|(?<=[\s(\[{<"'`,;=:]))@("[^"\n]{1,1000}"|[^\s"]{1,1000})""")
_PUNCTUATION = "\"'`.,;:!?)]}>"


MAX_LINES, MAX_TOKENS = 400, 6_000
"""Of a text file that goes with a prompt, unless the settings say otherwise."""
BYTES_PER_TOKEN = 4
_PROBED_BYTES = 8_000


def is_binary(path: Path) -> bool:
    """Whether a file is not text, by its beginning. False if it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return b"\0" in file.read(_PROBED_BYTES)
    except OSError:
        return False


def left_out(path: Path, max_lines: int, max_tokens: int) -> str:
    """Why only the path of a file goes with a prompt; empty if its text does."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return "path only"
        size = f"path only ({max(1, round(found.st_size / 1_000)):,} kB)"
        if found.st_size > max_tokens * BYTES_PER_TOKEN:
            return size
        raw = path.read_bytes()
    except OSError:
        return "path only"
    return size if b"\0" in raw or raw.count(b"\n") > max_lines else ""


def mentioned_files(text: str) -> list[str]:
    """Return the names written as `@file` or `@"a file"`, in order, without duplicates."""
    if "@" not in text:
        return []
    words = (match[1] for match in _MENTION.finditer(text))
    names = (word.strip('"') if word.startswith('"') else word.rstrip(_PUNCTUATION) for word in words)
    return list(dict.fromkeys(names))
