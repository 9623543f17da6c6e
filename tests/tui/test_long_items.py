"""One huge item: every row of it can be scrolled to, copied and found."""

from collections.abc import Sequence

import pytest
from textual.selection import SELECT_ALL
from transcript_host import is_busy, stage

from crushpy.tui.items import ReplyItem
from crushpy.tui.transcript.render.canvas import COPY, TextRow

pytestmark = pytest.mark.slow

CODE = "```python\nclass Price:\n    tax = 'all'  # of it\n```"
PARAGRAPHS = [f"paragraph **{number}** of [many](https://example.org/{number})" for number in range(1_600)]
TEXT = "\n\n".join([CODE, *PARAGRAPHS])
PLAIN = ["class Price:", "    tax = 'all'  # of it"]
COPIED = [f"paragraph {number} of many (https://example.org/{number})" for number in range(1_600)]


def bare(lines: Sequence[str]) -> list[str]:
    """Without the cursor, the scrollbar and the word that copies."""
    return [line.lstrip("▌").rstrip(" │┃").removesuffix(COPY).strip() for line in lines]


async def test_a_huge_reply_shows_its_first_rows_when_scrolled_to() -> None:
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        for start in range(0, len(TEXT), 4_000):
            here.view.stream(key, TEXT[start : start + 4_000])
        here.view.finish(key)
        await here.settle()
        assert here.lines()[-1].strip().startswith("paragraph 1599 of many")

        here.view.focus()
        await here.pilot.press("home")
        await here.settle()
        first = bare(here.lines())
        assert first[:3] == [*(line.strip() for line in PLAIN), ""]
        assert first[3].startswith("paragraph 0 of many")
        for _ in range(40):
            await here.pilot.press("pagedown")
        await here.settle()
        shown = [line.split()[1] for line in bare(here.lines()) if line.startswith("paragraph")]
        assert shown == [str(number) for number in range(int(shown[0]), int(shown[0]) + len(shown))]
        assert int(shown[0]) > 100


async def test_code_far_above_the_end_has_its_colours() -> None:
    def look(rows: Sequence[TextRow]) -> list[list[tuple[str, object]]]:
        return [[(piece.text, piece.style) for piece in row.segments] for row in rows]

    async with stage([ReplyItem(CODE)]) as short:
        await short.settle()
        assert not is_busy(short.view)
        expected = look(short.view.cache.rows(0)[:2])
    assert len({style for row in expected for _, style in row}) > 3
    async with stage([ReplyItem(TEXT)]) as here:
        await here.settle()
        rows = here.view.cache.rows(0)
        assert look(rows[:2]) == expected


async def test_huge_reply_is_copied_whole() -> None:
    async with stage([ReplyItem(TEXT)]) as here:
        await here.settle()
        copied = here.view.get_selection(SELECT_ALL)
        assert copied is not None
        assert copied[0].split("\n\n") == ["\n".join(PLAIN), *COPIED]


@pytest.mark.parametrize("words", ["paragraph 3 ", "paragraph 1300 "])
async def test_words_are_found_in_any_part_of_it(words: str) -> None:
    async with stage([ReplyItem(TEXT)]) as here:
        await here.settle()
        here.view.interaction.reveal(here.view.keys()[0], [words])
        await here.settle()
        assert any(words in line for line in here.lines())
