"""A long reply that is drawn over several frames: it looks, copies and is found like a short one."""

import pytest
from textual.selection import SELECT_ALL
from transcript_host import Stage, stage

from crushpy.tui.items import NoticeItem, ReplyItem

pytestmark = pytest.mark.slow

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
        here.view.remove_item(key)
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


async def test_scroll_position_stays_while_a_reply_above_grows() -> None:
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
        found: list[bool] = []
        here.view.interaction.find(words, found.append)
        await here.settle()
        assert any(words in line.lower() for line in here.lines())
        here.view.interaction.find("words that are not there", found.append)
        await here.settle()
        assert found == [True, False]


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
