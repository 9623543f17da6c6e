"""Where the transcript stands: it follows the end, stays where the user put it, and never jumps."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.geometry import Size
from transcript_host import EVERYTHING, Host, Stage, is_busy, stage

from crushpy.tui.items import NoticeItem, ReplyItem, ToolItem, TranscriptItem, UserItem
from crushpy.tui.textual_adapter import AdaptedApp
from crushpy.tui.transcript.render_cache import MAX_ITEMS
from crushpy.tui.transcript.transcript_model import Heights
from crushpy.tui.transcript.widget import LEAP_S, Transcript

LONG = [ReplyItem("\n\n".join(f"paragraph {n} of reply {m}" for n in range(10))) for m in range(10)]


def session(count: int) -> list[TranscriptItem]:
    """A long session whose heights nobody can guess: every line of it is unlike all others."""
    choose = random.Random(3)
    items: list[TranscriptItem] = []
    for number in range(count):
        words = " ".join(f"w{number}.{n}" for n in range(choose.choice([3, 30, 90])))
        match number % 4:
            case 0:
                items.append(UserItem(f"prompt {number} {words}"))
            case 1:
                items.append(ToolItem(str(number), "bash", f"command {number}", output=words))
            case 2:
                items.append(
                    ReplyItem(f"## reply {number}\n\n{words}\n\n- a{number}\n- b{number}\n\n    {words}")
                )
            case _:
                items.append(NoticeItem(f"notice {number}"))
    return items


async def press(here: Stage, *keys: str) -> None:
    here.view.focus()
    await here.pilot.press(*keys)
    await here.settle()


async def test_transcript_follows_the_end_of_a_stream() -> None:
    async with stage(LONG) as here:
        key = here.view.add(ReplyItem("", done=False))
        for number in range(40):
            here.view.stream(key, f"new line {number}\n\n")
        await here.settle()
        assert here.view.following
        assert here.lines()[-2:] == ["  new line 39", ""] or here.lines()[-1] == "  new line 39"
        assert here.heard(Transcript.Scrolled)[-1].more_below == 0


class SlowHost(Host, AdaptedApp):
    """Its terminal wants frames far apart."""

    def frame_pause(self) -> float:
        return 2 * LEAP_S if self.slow else 0.0

    slow = True


async def test_transcript_follows_the_end_in_leaps_if_the_terminal_is_slow() -> None:
    async with stage(LONG, host=SlowHost) as here:
        key = here.view.add(ReplyItem("", done=False))
        tops = [here.view.top_row]
        for number in range(5):
            here.view.stream(key, f"new line {2 * number}\n\nnew line {2 * number + 1}\n\n")
            while f"new line {2 * number + 1}" not in here.text():
                await here.pilot.pause(0.01)
            tops.append(here.view.top_row)
        assert here.view.following
        steps = [after - before for before, after in pairwise(tops) if after != before]
        assert 1 <= len(steps) <= 3
        assert min(steps) > 10
        assert not here.lines()[-3].strip()
        SlowHost.slow = False
        await here.settle()
        assert [line for line in here.lines()[-2:] if line] == ["  new line 9"]


async def test_transcript_keeps_the_scroll_position_and_counts_rows_below() -> None:
    async with stage(LONG) as here:
        await press(here, "pageup")
        assert not here.view.following
        before = [line[:-1].rstrip() for line in (line.ljust(80) for line in here.lines())]
        below = here.heard(Transcript.Scrolled)[-1].more_below
        assert below > 0
        key = here.view.add(ReplyItem("", done=False))
        for number in range(10):
            here.view.stream(key, f"new line {number}\n\n")
        here.view.finish(key)
        await here.settle()
        assert [line[:-1].rstrip() for line in (line.ljust(80) for line in here.lines())] == before
        assert here.heard(Transcript.Scrolled)[-1].more_below == below + 20
        here.view.following = True
        await here.settle()
        assert here.lines()[-1] == "  new line 9"
        assert here.heard(Transcript.Scrolled)[-1].more_below == 0


async def test_scrolling_back_to_the_end_follows_again() -> None:
    async with stage(LONG) as here:
        await press(here, "pageup")
        assert not here.view.following
        await press(here, "pagedown")
        assert here.view.following


async def test_the_scrollbar_is_there_only_away_from_the_end() -> None:
    async with stage(LONG) as here:
        assert here.view.styles.scrollbar_visibility == "hidden"
        await press(here, "home")
        bar = here.view.vertical_scrollbar
        assert (here.view.styles.scrollbar_visibility, bar.position) == ("visible", 0)
        assert bar.region == (79, 0, 1, here.view.size.height)
        await here.pilot.mouse_down(here.view, offset=(79, 0))
        await here.pilot.hover(here.view, offset=(79, 23))
        await here.pilot.mouse_up(here.view, offset=(79, 23))
        await here.settle()
        assert here.view.following


@pytest.mark.slow
async def test_a_session_of_10_000_items_opens_at_its_end_and_pages_up_without_a_jump() -> None:
    async with stage(session(10_000)) as here:
        assert here.lines()[-1] == "  · notice 9999"
        assert len(here.view.cache.drawings) < 100, "only what is near is drawn"
        pages: list[list[str]] = []
        for _ in range(120):
            pages.append([strip.text[1:-1] for strip in here.strips()])
            here.view.interaction.page(-1)
        for lower, upper in pairwise(pages):
            assert upper[-2:] == lower[:2], "two lines of the page below stay in view"
        assert len(here.view.cache.drawings) <= MAX_ITEMS
        read = [line for page in reversed(pages) for line in (page if page is pages[0] else page[:-2])]
        numbers = [int(line.split()[2]) for line in read if line.startswith(" · notice")]
        assert numbers == list(range(numbers[0], 10_000, 4)), "nothing was skipped and nothing came twice"


async def test_home_and_paging_down_from_there_show_everything_in_order() -> None:
    items = session(200)
    async with stage(items) as here:
        await press(here, "home")
        assert here.lines()[0].startswith("▌ prompt 0")
        seen: list[str] = []
        while not here.view.following:
            seen.extend(here.lines())
            here.view.interaction.page(1)
        seen.extend(here.lines())
        shown = " ".join(seen)
        assert all(f"notice {number}" in shown for number in range(3, 200, 4))


@pytest.mark.parametrize("width", [20, 21, 37, 80, 119, 120, 300])
async def test_transcript_fits_every_width(width: int) -> None:
    async with stage(EVERYTHING, (width, 150)) as here:
        here.view.fold_all(False)
        await here.settle()
        for strip in here.strips():
            assert sum(segment.cell_length for segment in strip) == width, strip.text
        shown = ("Fix the bug", "Thought", "passed", "half full", "refused", "Done")
        for words in (*shown, "tokens") if width > 21 else shown:
            assert words in here.text()


@pytest.mark.slow
async def test_resizing_keeps_the_end_in_view_or_the_item_at_the_top() -> None:
    async with stage(session(400), (80, 24)) as here:
        for width in (20, 300, 61, 80):
            await here.pilot.resize_terminal(width, 27)
            await here.settle()
            assert here.view.following
            assert here.lines()[-1] == "  · notice 399"
            assert here.view.virtual_size == Size(width, here.view.virtual_size.height)
        await press(here, "pageup", "pageup", "pageup")
        top = next(line for line in here.lines() if "notice" in line)
        for width in (20, 300, 61, 80):
            await here.pilot.resize_terminal(width, 27)
            await here.settle()
            assert not here.view.following
        words = top.split()[2]
        near = [str(int(words) + step) for step in (-8, -4, 0, 4, 8)]
        assert any(f"notice {number}" in here.text() for number in near)


async def test_growing_reply_is_drawn_after_a_resize() -> None:
    async with stage([ToolItem("1", "bash", "make", state="running")], (80, 24)) as here:
        here.view.stream(here.view.keys()[0], "compiling\n")
        here.view.stream(here.view.add(ReplyItem("", done=False)), "half a reply")
        await here.settle()
        for width in (60, 80):
            await here.pilot.resize_terminal(width, 27)
            await here.settle()
            assert "compiling" in here.text()
            assert "half a reply" in here.text()


async def test_an_item_that_grows_above_does_not_move_what_is_seen() -> None:
    items: list[TranscriptItem] = [ToolItem("1", "bash", "make"), *LONG]
    async with stage(items) as here:
        await press(here, "pageup")
        before = [strip.text[:-1] for strip in here.strips()]
        here.view.replace(here.view.keys()[0], ErrorItemWithManyLines)
        await here.settle()
        assert [strip.text[:-1] for strip in here.strips()] == before
        here.view.remove_item(here.view.keys()[1])
        await here.settle()
        assert [strip.text[:-1] for strip in here.strips()] == before


ErrorItemWithManyLines = NoticeItem("\n".join(f"line {n}" for n in range(50)))


async def test_items_are_replaced_and_removed() -> None:
    async with stage([UserItem("one"), UserItem("two"), UserItem("three")]) as here:
        first, second, _ = here.view.keys()
        here.view.replace(first, UserItem("changed"))
        here.view.remove_item(second)
        await here.settle()
        assert here.all_text() == "changed\n\nthree"
        here.view.remove_item(second)
        here.view.stream(second, "too late")
        here.view.finish(second)
        here.toggle(second)
        await here.settle()
        assert here.all_text() == "changed\n\nthree"
        assert here.view.add(UserItem("four")) not in (first, second)
        await here.settle()
        assert here.all_text() == "changed\n\nthree\n\nfour"


async def test_keys_of_another_session_do_nothing() -> None:
    async with stage([UserItem("one")]) as here:
        old = here.view.keys()[0]
        here.view.set_items([UserItem("other")])
        here.view.replace(old, UserItem("wrong"))
        here.view.remove_item(old)
        await here.settle()
        assert here.all_text() == "other"


async def test_the_wheel_scrolls() -> None:
    async with stage(LONG) as here:
        top = here.view.scroll_y
        await here.pilot._post_mouse_events(_wheel(), widget=here.view, offset=(5, 5))
        await here.settle()
        assert here.view.scroll_y < top
        assert not here.view.following


def _wheel() -> list[type]:
    from textual.events import MouseScrollUp

    return [MouseScrollUp]


@pytest.mark.slow
async def test_streaming_causes_no_layout_and_leaves_no_timer() -> None:
    async with stage(LONG) as here:
        layouts: list[object] = []
        here.app.screen.screen_layout_refresh_signal.subscribe(here.app, layouts.append)
        key = here.view.add(ReplyItem("", done=False))
        for number in range(200):
            here.view.stream(key, f"line {number}\n\n")
            if number % 20 == 0:
                await here.settle()
        here.view.finish(key)
        await here.settle()
        assert layouts == []
        assert not is_busy(here.view)


@pytest.mark.slow
async def test_the_first_piece_is_shown_at_once() -> None:
    async with stage() as here:
        key = here.view.add(ReplyItem("", done=False))
        await here.settle()
        here.view._last_frame = 0.0  # long ago: a slow frame is followed by a longer pause
        here.view.stream(key, "Hello")
        assert here.lines()[0] == "  Hello"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "set"]), st.integers(0, 50), st.integers(0, 9)), max_size=60
    )
)
def test_heights_are_found_as_by_counting(changes: list[tuple[str, int, int]]) -> None:
    tree, plain = Heights([3, 0, 2]), [3, 0, 2]
    for what, index, height in changes:
        if what == "append":
            tree.append(height)
            plain.append(height)
        else:
            tree[index % len(plain)] = height
            plain[index % len(plain)] = height
    assert tree.total == sum(plain)
    assert [tree.before(index) for index in range(len(plain))] == [sum(plain[:n]) for n in range(len(plain))]
    owners = [(index, row) for index, height in enumerate(plain) for row in range(height)]
    assert [tree.find(row) for row in range(sum(plain))] == owners
