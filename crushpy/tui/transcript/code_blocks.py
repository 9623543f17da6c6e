"""The code blocks of a reply, to copy one of them."""

from collections.abc import Sequence
from typing import NamedTuple

from crushpy.tui.transcript.render.text_row import TextRow


class ShownBlock(NamedTuple):
    """A code block as it is drawn."""

    number: int
    of: int
    text: str


def block_at(rows: Sequence[TextRow], first: int) -> ShownBlock:
    """The code block that begins with a row."""
    parts = [row.fill.meta.get("fence") for row in rows]
    last = first
    while last + 1 < len(parts) and parts[last + 1] == "inside":
        last += 1
    text = "".join(row.text[row.gutter :] + row.end for row in rows[first : last + 1])
    return ShownBlock(parts[:first].count("head"), parts.count("head"), text.removesuffix("\n"))


def code_blocks(markdown: str) -> list[str]:
    """What stands between fences, block by block, as it was written."""
    blocks: list[str] = []
    inside: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = _fence(line)
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append("\n".join(inside))
            inside, fence = [], ""
        else:
            inside.append(line)
    return [*blocks, "\n".join(inside)] if fence else blocks


def _fence(line: str) -> str:
    """The marks that open or close a block; empty where the line has none."""
    text = line.lstrip(" ")
    if len(line) - len(text) > 3 or not text.startswith(("```", "~~~")):
        return ""
    return text[: len(text) - len(text.lstrip(text[0]))]
