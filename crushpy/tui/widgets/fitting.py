"""Fits lists and lines into the available space."""

from rich.cells import cell_len
from textual.content import Content

POINTER = "› "
"""Marks the chosen row, also without colours."""


def window(count: int, at: int, rows: int) -> range:
    """Which of `count` items to show in `rows` rows so that `at` is among them."""
    start = min(max(0, at - rows + 1), max(0, count - rows))
    return range(start, min(count, start + rows))


def end_of(text: str, width: int) -> str:
    """`text`, or as much of its end as fits in `width` cells."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) >= width:
        text = text[1:]
    return f"…{text}" if width > 0 else ""


def shorten(title: Content, width: int) -> Content:
    """`title`, cut in the middle if it is too wide: its end names the file or the host.

    Of a question about a command, the command is cut first, then the end of the sentence.
    """
    if title.cell_length <= width:
        return title
    if (place := title.plain.rfind("`")) > 0:
        end = title[place:]
        command = title[:place].truncate(max(width // 2, width - end.cell_length), ellipsis=True)
        return Content.assemble(command, end).truncate(width, ellipsis=True)
    end = title[-(width // 2) :]
    while end.cell_length > width // 2:
        end = end[1:]
    return Content.assemble(title.truncate(width - end.cell_length, ellipsis=True), end)


def pointed(row: Content, chosen: bool) -> Content:
    """A row of a list, with the pointer if it is the chosen one."""
    if not chosen:
        return Content.assemble(" " * len(POINTER), row)
    chosen_row = Content.assemble(POINTER, row)
    return chosen_row.stylize("$block-cursor-foreground on $block-cursor-background")
