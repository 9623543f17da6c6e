"""Markdown that arrives in pieces looks like markdown that is there from the start."""

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from transcript_host import Stage, stage

from crushpy.tui.items import ReplyItem
from crushpy.tui.transcript.markdown import stream
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.canvas import COPY, Canvas, Margin, TextRow
from crushpy.tui.transcript.render.styles import Palette

FRAGMENTS = [
    *(
        "# heading",
        "#",
        "##no heading",
        "words *with* `marks` and **more",
        "word " * 30,
        "---",
        "===",
        "***",
        "_",
    ),
    *(
        "- item",
        "* other",
        "+ plus",
        "  - nested",
        "   - three",
        "    deep",
        "1. one",
        "2. two",
        "3) three",
        "- ",
        "1.",
    ),
    *(
        "```py",
        "```",
        "~~~~",
        "``` x ```",
        "- ```js",
        "  x=1",
        "  ```",
        "    code",
        "> quote",
        "> - in it",
        "`",
    ),
    *(
        "a | b",
        "--|--",
        "| x | y |",
        "|---|---|",
        "a|b|c",
        "\\| p |",
        "|:-:|",
        "",
        "",
        "",
        " ",
        "\t",
        "\u00a0",
    ),
    *(
        "[x]: http://a",
        "[l](http://e.x/y)",
        "<b>hi</b>",
        "&#x202e;x",
        "日本語 " * 6,
        "a日本" * 9,
        "👩‍👩‍👧 " * 9,
    ),
    *("text\rmore", "\x1b]0;title\x07", "\x1b[31mred", "a\tb"),
]
PALETTE = Palette(
    lambda name, partial: Style(color="red") if partial else Style(color="white", bgcolor="black")
)


@st.composite
def texts(draw_item: st.DrawFn) -> tuple[str, list[int]]:
    """A text and where it is cut."""
    lines = draw_item(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=25))
    text = "\n".join(lines) + draw_item(st.sampled_from(["", "\n"]))
    cuts = draw_item(st.lists(st.integers(0, len(text)), max_size=25))
    return text, sorted({0, len(text), *cuts})


def new_stream(width: int) -> MarkdownStream:
    gutter = (Segment("  ", PALETTE.text),)
    return MarkdownStream(Canvas(PALETTE, width), Margin(gutter, gutter), PALETTE.text)


def whole(text: str, width: int) -> Canvas:
    drawn = new_stream(width)
    drawn.feed(text)
    for _ in drawn.finish():
        pass
    return drawn.canvas


def streamed(text: str, cuts: list[int], width: int) -> Canvas:
    drawn = new_stream(width)
    for start, end in pairwise(cuts):
        sealed = drawn.canvas.rows[: drawn.sealed]
        drawn.feed(text[start:end])
        for _ in drawn.settle():
            pass
        drawn.draw_tail()
        assert drawn.canvas.rows[: len(sealed)] == sealed, "what is finished is never drawn again"
    for _ in drawn.finish():
        pass
    return drawn.canvas


def same(left: list[TextRow], right: list[TextRow]) -> bool:
    """Whether the rows look the same and copy the same."""
    return [(row.segments, row.gutter, row.end, row.fill) for row in left] == [
        (row.segments, row.gutter, row.end, row.fill) for row in right
    ]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(texts(), st.sampled_from([20, 41, 80]))
def test_a_text_looks_the_same_however_it_is_cut(sample: tuple[str, list[int]], width: int) -> None:
    text, cuts = sample
    expected, seen = whole(text, width), streamed(text, cuts, width)
    assert same(expected.rows, seen.rows)
    assert [pending[:4] for pending in expected.pending] == [pending[:4] for pending in seen.pending]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(texts(), st.integers(0, 10_000))
def test_markdown_too_large_to_parse_streams_like_a_finished_one(
    sample: tuple[str, list[int]], seed: int
) -> None:
    choose = random.Random(seed).choice
    text, cuts = sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "LONG_LINE_CHARS", choose([15, 60, 4_000]))
        patch.setattr(stream, "LARGE_UNIT_CHARS", choose([20, 60, 8_000]))
        patch.setattr(stream, "PARSE_CHARS", choose([10, 100, 6_000]))
        patch.setattr(stream, "DRAW_CHARS", choose([7, 30]))
        patch.setattr(stream, "LARGE_TABLE_CHARS", choose([60, 24_000]))
        assert same(whole(text, 40).rows, streamed(text, cuts, 40).rows)


@settings(max_examples=200, deadline=None)
@given(texts(), st.integers(20, 90))
def test_markdown_rows_fit_the_width(sample: tuple[str, list[int]], width: int) -> None:
    for row in whole(sample[0], width).rows:
        assert sum(segment.cell_length for segment in row.segments) < width
        assert row.strip(width).cell_length == width


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "漢字 " * 10_000,
        "|a|b|\n|-|-|\n" + "|cell|*x*|\n" * 300,
        "```python\n" + "x = 1\n" * 1_000,
        "\n".join([">" * depth + f" w{depth}" for depth in range(1, 200)]),
        "\n".join(["  " * depth + f"- w{depth}" for depth in range(100)]),
        "[" * 3_900,
        "*a **b _c " * 390,
        "some words in a line\n" * 2_000,
    ],
    ids=["line", "wide-line", "table", "fence", "quotes", "lists", "brackets", "emphasis", "paragraph"],
)
def test_markdown_keeps_all_text_of_pathological_input(text: str) -> None:
    def letters(shown: str) -> list[str]:
        return re.findall(r"\w+|\[", shown)

    copied = "".join(row.text[row.gutter :] + row.end for row in whole(text, 80).rows)
    assert letters(copied) == letters(text.removeprefix("```python"))


async def test_a_streamed_reply_and_a_whole_one_are_painted_alike() -> None:
    text = "\n".join(FRAGMENTS) + "\n\n```python\ndef f(x):\n    return 'x'  # why\n```\nend of it"
    choose = random.Random(7)
    async with stage([ReplyItem(text)], (80, 150)) as here:
        expected = here.strips()
        for _ in range(4):
            here.view.set_items([])
            key = here.view.add(ReplyItem("", done=False))
            start = 0
            while start < len(text):
                end = start + choose.choice([1, 3, 10, 60, 400])
                here.view.stream(key, text[start:end])
                if choose.random() < 0.1:
                    await here.settle()
                start = end
            here.view.finish(key)
            await here.settle()
            assert [strip.text for strip in here.strips()] == [strip.text for strip in expected]
            assert here.strips() == expected


async def test_code_gets_its_colours_once_its_fence_is_closed() -> None:
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        here.view.stream(key, "```python\ndef f(): pass\n")
        await here.settle()

        def styles() -> set[Style | None]:
            strip = here.strips()[here.find("def f")[1]]
            return {segment.style for segment in strip if segment.text.strip() and segment.text != COPY}

        assert len(styles()) == 1
        before = here.text()
        here.view.stream(key, "```\n")
        await here.settle()
        assert here.text() == before
        assert len(styles()) > 1


async def test_markdown_diff_is_coloured_to_the_last_line() -> None:
    for language in ("diff", "patch", "udiff"):
        async with stage([ReplyItem(f"```{language}\n-first\n+second\n-third\n+fourth\n```\n")]) as here:
            await here.settle()

            def colour(words: str, here: Stage = here) -> str:
                strip = here.strips()[here.find(words)[1]]
                (segment,) = [segment for segment in strip if words in segment.text]
                assert segment.style is not None
                return str(segment.style.color)

            assert colour("-first") == colour("-third") != colour("+second")
            assert colour("+second") == colour("+fourth")


async def test_the_items_of_a_task_list_are_ticked_or_open() -> None:
    text = "- [ ] to do\n- [x] done **well**\n- [X] done too\n- [y] no box\n\n1. [ ] first\n"
    async with stage([ReplyItem(text)]) as here:
        for line in ("☐ to do", "☑ done well", "☑ done too", "• [y] no box", "1. ☐ first"):
            assert line in here.text()


def test_code_blocks_are_kept_as_they_were_written() -> None:
    reply = "See\n```python\na = 1\n\n\tb = 2\n```\nand\n~~~\n```\n~~~\nand `c`\n````md\n```\nx\n```\n````\n"
    reply += f"1. one\n\n   ```\n   in a list\n   ```\n\n```\n{'long' * 2_000}\n```\n```sh\nopen"
    blocks = ["\n".join(row.code) for row in whole(reply, 80).rows if row.code is not None]
    assert blocks == ["a = 1\n\n\tb = 2", "```", "```\nx\n```", "in a list", "long" * 2_000, "open"]
