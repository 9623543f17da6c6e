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


def pointed(row: Content, chosen: bool) -> Content:
    """A row of a list, with the pointer if it is the chosen one."""
    if not chosen:
        return Content.assemble(" " * len(POINTER), row)
    chosen_row = Content.assemble(POINTER, row)
    return chosen_row.stylize("$block-cursor-foreground on $block-cursor-background")
