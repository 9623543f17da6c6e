"""The code blocks of a reply, to copy one of them."""

import re
from typing import NamedTuple

from crushpy.tui.items import source_text
from crushpy.tui.transcript.render.reply_part import ReplyPart
from crushpy.tui.transcript.transcript_model import TranscriptModel

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)", re.MULTILINE)
"""The marks that open or close a block, and what stands behind them."""


class ShownBlock(NamedTuple):
    """A code block as it is drawn."""

    number: int
    of: int
    """How many the reply has; 0 where nobody counted."""
    text: str


def block_in(sheet: TranscriptModel, index: int, row: int) -> ShownBlock:
    """The code block that begins with a row of an entry."""
    rows = sheet.all_rows(index)
    marks = [row.fill.meta.get("fence") for row in rows]
    last = row
    while last + 1 < len(marks) and marks[last + 1] == "inside":
        last += 1
    shown = "".join(row.text[row.gutter :] + row.end for row in rows[row : last + 1]).removesuffix("\n")
    number, of = marks[:row].count("head"), marks.count("head")
    item = sheet[index].item
    if not isinstance(item, ReplyPart):
        return ShownBlock(number, of, shown)
    # It may go on in the parts that follow, and there may be many of them: they are not drawn for that.
    texts = [item.text]
    for part in sheet.parts(index):
        if isinstance(part.item, ReplyPart) and part.item.number > item.number:
            if not part.item.opening.fence:
                break
            texts.append(source_text(part.grown()))
    before = f"{item.opening.fence}\n" if item.opening.fence else ""
    written = code_blocks(before + "".join(texts))
    number, of = number + bool(before), of + bool(before)
    return ShownBlock(0, 0, written[number] if len(written) == of else shown)


def code_blocks(markdown: str) -> list[str]:
    """What stands between fences, block by block, as it was written."""
    blocks: list[str] = []
    start, fence = 0, ""
    for line in _FENCE.finditer(markdown):
        if not fence:
            start, fence = line.end() + 1, line[1]
        elif line[1].startswith(fence) and not line[2].strip():
            blocks.append(markdown[start : max(start, line.start() - 1)])
            fence = ""
    return [*blocks, markdown[start:]] if fence else blocks
