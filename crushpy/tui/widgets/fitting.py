"""Fits lists and lines into the room there is."""

from rich.cells import cell_len


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
