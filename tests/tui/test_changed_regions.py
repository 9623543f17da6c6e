"""What of the lines on the screen is painted again."""

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from crushpy.tui.transcript.render.canvas import changed_regions

BOLD = Style(bold=True)


def line(text: str, *, bold: str = "", width: int = 40) -> Strip:
    segments = [Segment(bold, BOLD)] if bold else []
    return Strip([*segments, Segment(text + " " * (width - len(bold) - len(text)))])


def test_only_changed_lines_up_to_their_last_change() -> None:
    before = [line("one"), line("two"), line("three")]
    after = [line("one"), line("two more"), line("three")]
    assert changed_regions(before, after) == [Region(0, 1, 8, 1)]
    assert changed_regions(after, before) == [Region(0, 1, 8, 1)], "what is gone is painted over"
    assert changed_regions(before, before) == []


def test_another_style_counts_as_a_change() -> None:
    assert changed_regions([line("a word")], [line(" word", bold="a")]) == [Region(0, 0, 6, 1)]


def test_changed_region_is_a_whole_line_when_the_earlier_one_is_unknown_or_narrower() -> None:
    assert changed_regions([None, line("b", width=30)], [line("a"), line("b"), line("c")]) == [
        Region(0, 0, 40, 1),
        Region(0, 1, 40, 1),
        Region(0, 2, 40, 1),
    ]


def test_many_changes_are_one_region() -> None:
    after = [line(str(number)) for number in range(30)]
    assert changed_regions([line("")] * 30, after) == [Region(0, 0, 40, 30)]
