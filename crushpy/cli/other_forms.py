"""Other ways to write the same, which hands know from elsewhere: `-p PROMPT` and `--resume [ID]`."""

import re
from collections.abc import Sequence

from crushpy.cli.commands import COMMANDS

PRINT, RESUME = "-p", "--resume"
_ID = re.compile(r"[0-9a-z]{3,}|latest")


def usual_form(argv: Sequence[str]) -> list[str]:
    """`-p PROMPT ...` as `run PROMPT ...`, and `--resume ID` as `--session ID`."""
    words = list(argv)
    named = words[0] if words else ""
    if PRINT in words and named not in COMMANDS:
        words.remove(PRINT)
        words.insert(0, "run")
        named = "run"
    if RESUME in words and named in ("run", *(() if named in COMMANDS else (named,))):
        at = words.index(RESUME)
        following = words[at + 1] if at + 1 < len(words) else ""
        if _ID.fullmatch(following) and following not in COMMANDS:
            words[at] = "--session"
    return words
