"""The lines of a finished command that matter: its last ones, or those that tell what failed."""

import re
from typing import NamedTuple

from crushpy.core.messages import Terminal
from crushpy.tui.items import ToolItem
from crushpy.tui.transcript.render.plain_text import tail_of

LAST = 3
"""Lines of a command that went well."""
MOST = 5
"""Lines of one that failed; and no more lines than these are shown whole."""
LOOKED_AT = 400
"""Lines at the end of the output among which those that failed are looked for."""
_FAILS = re.compile(
    r"\b(?:error|errors|failed|failure|failures|fatal|panic|exception|traceback|denied|cannot|undefined)\b"
    r"|\bnot found\b|\bno such\b|\w(?:Error|Exception)\b|^E\s|^FAIL|^not ok\b|✗|✘|✖",
    re.IGNORECASE,
)


class LastLines(NamedTuple):
    lines: list[str]
    left_out: int
    """How many lines of the output are not among them."""


def last_lines(item: ToolItem) -> LastLines:
    """What stands below the line of a command while it is closed; nothing where it printed nothing."""
    if not isinstance(item.display, Terminal) or item.state not in ("done", "failed"):
        return LastLines([], 0)
    output = item.display.output.strip("\n")
    if not output.strip():
        return LastLines([], 0)
    before, lines = tail_of(output, LOOKED_AT)
    lines = [line.rstrip() for line in lines]
    if before + len(lines) <= MOST:
        return LastLines(lines, 0)
    shown = lines[-LAST:] if item.state == "done" else _failing(lines)
    return LastLines(shown, (item.display.lines or before + len(lines)) - len(shown))


def _failing(lines: list[str]) -> list[str]:
    """The lines that tell what failed, in their order; the last ones where none does."""
    telling = [line for line in lines if line.strip() and _FAILS.search(line)]
    if not telling:
        return [line for line in lines if line.strip()][-MOST:]
    return telling[-MOST:]
