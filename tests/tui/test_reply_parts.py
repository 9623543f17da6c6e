"""A long reply is kept in parts: it looks, copies and is found as if it were one."""

import random
from itertools import zip_longest

import pytest
from crushpy.tui.transcript.markdown.sections import LONGEST, SectionCutter, TextSection
from rich.segment import Segment
from rich.style import Style
from textual.selection import SELECT_ALL
from transcript_host import Stage, stage

from crushpy.tui.items import NoticeItem, ReplyItem
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.canvas import Canvas, Margin, TextRow
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.transcript_model import KEPT_ROWS

PALETTE = Palette(
    lambda name, partial: Style(color="red") if partial else Style(color="white", bgcolor="black")
)
STEP = """\
## Step {n}: what to do

The parser reads **every line** once and keeps what is finished; see `stream.py`.

- first, measure
  - and only one
- third: {n} ms

```python
def settle(self):

    return {n}  # rows
```

| stage | before |
|---|---:|
| parse | {n} |

> Nothing is laid out.

   ```
   indented by three
   ```
1. open
2. read

"""
MIXED = "".join(STEP.format(n=number) for number in range(90))
WORDS = "some plain words of a sentence of the usual kind, "
SHAPES = {
    "mixed": MIXED,
    "windows-lines": MIXED.replace("\n", "\r\n"),
    "paragraph": f"{WORDS}\n" * 900,
    "code": "before\n\n```python\n" + "    total = compute(value)  # it\n\n" * 1_200 + "```\nafter\n",
    "unclosed-code": "~~~\n" + "```\nx = 1\n```\n" * 3_000,
    "table": "| a | b |\n|---|---:|\n" + "".join(f"| cell *{n}* | {n} |\n" for n in range(1_200)),
    "list": "".join(f"- item **{n}** with words\n" for n in range(1_000)),
    "numbered": "".join(f"{n}. item\n   more of it\n" for n in range(900)),
    "nested": "".join(f"- item {n}\n  - below\n\n    and more\n\n" for n in range(600)),
    "code-in-list": "".join(f"- item {n}\n\n  ```\n  x\n\n  y\n  ```\n\n" for n in range(700)),
    "quotes": "> quoted words\n" * 3_000,
    "no-empty-lines": "".join(f"# h{n}\ntext\n- a\n- b\n" for n in range(1_100)),
}
LINES = {
    "words": WORDS * 900,
    "no-spaces": "x" * 50_000,
    "wide": "漢字 " * 15_000,
    "code": "```\n" + "x = 1; " * 7_000 + "\n```\nafter\n",
    "in-paragraph": "before\n" + WORDS * 900 + "\nafter\n\n- item\n",
}


def drawn(text: str, width: int = 60) -> list[TextRow]:
    """The rows of a text that is drawn in one go."""
    return _draw(MarkdownStream(Canvas(PALETTE, width), _margin(), PALETTE.text), text)


def drawn_in_sections(text: str, width: int = 60) -> list[TextRow]:
    cutter = SectionCutter()
    rows: list[TextRow] = []
    for section in [*cutter.feed(text), cutter.section]:
        if section.opening.apart:
            rows.append(TextRow([Segment("  ", PALETTE.text)], PALETTE.text, 2))
        markdown = MarkdownStream(Canvas(PALETTE, width), _margin(), PALETTE.text, section.opening)
        rows += _draw(markdown, section.text, broken=section.broken)
    return rows


def _margin() -> Margin:
    gutter = (Segment("  ", PALETTE.text),)
    return Margin(gutter, gutter)


def _draw(markdown: MarkdownStream, text: str, *, broken: bool = False) -> list[TextRow]:
    markdown.feed(text)
    for _ in markdown.finish(broken=broken):
        pass
    return list(markdown.canvas.rows)


def copied(rows: list[TextRow]) -> str:
    return "".join(row.text[row.gutter :].rstrip(" " if row.end == "\n" else "") + row.end for row in rows)


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_a_text_looks_the_same_in_sections(text: str) -> None:
    cutter = SectionCutter()
    sections = [*cutter.feed(text), cutter.section]
    assert "".join(section.text for section in sections) == text
    assert len(sections) > 1
    assert max(len(section.text) for section in sections) < LONGEST + 5_000
    for whole, part in zip_longest(drawn(text), drawn_in_sections(text)):
        assert whole is not None
        assert part is not None
        assert (whole.text, whole.end) == (part.text, part.end)
        assert whole.same(part)


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_a_very_long_line_in_sections_is_copied_as_one(text: str) -> None:
    assert len([*SectionCutter().feed(text)]) > 1
    assert copied(drawn_in_sections(text)) == copied(drawn(text))


ALL = {**SHAPES, **{f"line-{name}": text for name, text in LINES.items()}}


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_a_text_is_cut_in_the_same_places_however_it_arrived(text: str) -> None:
    choose = random.Random(3)
    whole, piecewise = SectionCutter(), SectionCutter()
    expected = whole.feed(text)
    found: list[TextSection] = []
    start = 0
    while start < len(text):
        end = start + choose.choice([1, 7, 60, 400, 9_000])
        found += piecewise.feed(text[start:end])
        start = end
    assert found == expected
    assert piecewise.section == whole.section


def read(here: Stage) -> list[str]:
    """The lines on the screen without the cursor and the scrollbar."""
    return [line.strip(" ▌│┃") for line in here.lines()]


async def streamed(here: Stage, text: str, *, piece: int = 900) -> int:
    key = here.view.add(ReplyItem("", done=False))
    for start in range(0, len(text), piece):
        here.view.stream(key, text[start : start + piece])
        if start % (10 * piece) == 0:
            await here.settle()
    here.view.finish(key)
    await here.settle()
    return key


async def test_a_long_reply_is_one_item_with_all_its_text() -> None:
    async with stage([NoticeItem("before")]) as here:
        key = await streamed(here, MIXED)
        here.view.add(NoticeItem("after"))
        assert here.view.item(key) == ReplyItem(MIXED)
        assert len(here.view.keys()) == 3
        here.view.remove(key)
        await here.settle()
        assert [line.strip() for line in here.lines() if line.strip()] == ["· before", "· after"]


async def test_a_stored_reply_and_a_streamed_one_scroll_alike() -> None:
    screens: list[list[str]] = []
    for stored in (True, False):
        async with stage([ReplyItem(MIXED)] if stored else []) as here:
            if not stored:
                await streamed(here, MIXED)
            await here.settle()
            here.view.focus()
            seen = read(here)
            for key in ("home", "pagedown", "pagedown", "end", "pageup", "pageup"):
                await here.pilot.press(key)
                await here.settle()
                seen += read(here)
            screens.append(seen)
    assert screens[0] == screens[1]


async def test_paging_through_a_long_reply_shows_every_line_once() -> None:
    text = "\n\n".join(f"line {number}\n" + "word " * 80 for number in range(300))
    async with stage([ReplyItem(text)]) as here:
        await here.settle()
        here.view.focus()
        await here.pilot.press("home")
        await here.settle()
        numbers: list[int] = []
        for _ in range(14):
            shown = [int(line.split()[1]) for line in read(here) if line.startswith("line")]
            numbers += [number for number in shown if not numbers or number > numbers[-1]]
            await here.pilot.press("pagedown")
            await here.settle()
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 40
        assert here.view.unpacked_rows < 2 * KEPT_ROWS


async def test_a_notice_that_comes_meanwhile_stays_below_the_reply() -> None:
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        here.view.stream(key, MIXED[:20_000])
        await here.settle()
        here.view.add(NoticeItem("The window is half full"))
        here.view.stream(key, MIXED[20_000:])
        here.view.finish(key)
        await here.settle()
        assert here.lines()[-1].strip() == "· The window is half full"
        assert here.view.item(key) == ReplyItem(MIXED)


async def test_what_is_read_stays_where_it_is_while_the_reply_above_it_grows() -> None:
    notices = "\n".join(f"notice {number}" for number in range(60))
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        here.view.stream(key, "first words\n\n")
        here.view.add(NoticeItem(notices))
        await here.settle()
        here.view.focus()
        await here.pilot.press("pageup")
        await here.settle()
        before = read(here)
        assert any(line.startswith("notice") for line in before)
        here.view.stream(key, MIXED)
        await here.settle()
        assert read(here) == before


@pytest.mark.parametrize("words", ["step 3:", "step 77:", "reads every line once"])
async def test_words_are_found_in_any_part_of_a_long_reply(words: str) -> None:
    async with stage([ReplyItem(MIXED)]) as here:
        await here.settle()
        assert here.view.find(words)
        await here.settle()
        assert any(words in line.lower() for line in here.lines())
        assert not here.view.find("words that are not there")


async def test_a_long_selection_has_every_line() -> None:
    text = "\n\n".join(f"line {number}" for number in range(20_000))
    async with stage([ReplyItem(text)]) as here:
        await here.settle()
        selected = here.view.get_selection(SELECT_ALL)
        assert selected is not None
        assert selected[0] == text


async def test_a_long_reply_is_drawn_for_another_width_from_where_it_is_read() -> None:
    async with stage([ReplyItem(MIXED)]) as here:
        await here.settle()
        await here.pilot.resize_terminal(50, 20)
        await here.settle()
        assert here.lines()[-1].strip() == "2. read"
        here.view.focus()
        for _ in range(12):
            await here.pilot.press("pageup")
        await here.settle()
        steps = [line for line in here.lines() if "Step" in line]
        await here.pilot.resize_terminal(70, 20)
        await here.settle()
        near = {
            int(line.split("Step ")[1].split(":")[0]) for line in (*steps, *here.lines()) if "Step" in line
        }
        assert steps
        assert max(near) - min(near) <= 3
