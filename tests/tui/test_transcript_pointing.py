"""Keys and mouse on the transcript: folding, the cursor, links, selected text."""

import pytest
from textual.selection import SELECT_ALL
from transcript_host import EVERYTHING, Stage, stage

from crushpy.core.boundary import Boundary
from crushpy.tui.items import BoundaryItem, NoticeItem, ReplyItem, ThinkingItem, ToolItem, UserItem
from crushpy.tui.transcript.widget import Transcript

BOUNDARY = BoundaryItem(Boundary("b1", "p", "c", "agent", 100, 10), "the summary", "the evidence")
CALL = ToolItem("1", "bash", "make all", output="the output")


async def press(here: Stage, *keys: str) -> None:
    here.view.focus()
    await here.pilot.press(*keys)
    await here.settle()


async def click(here: Stage, words: str, times: int = 1) -> None:
    await here.pilot.click(here.view, offset=here.find(words), times=times)
    await here.settle()


async def drag(here: Stage, start: tuple[int, int], end: tuple[int, int]) -> None:
    await here.pilot.mouse_down(here.view, offset=start)
    await here.pilot.hover(here.view, offset=end)
    await here.pilot.mouse_up(here.view, offset=end)
    await here.settle()


async def test_thinking_and_tool_calls_are_folded_and_a_click_opens_them() -> None:
    async with stage([ThinkingItem("the thought\n\nand more"), CALL]) as here:
        assert "and more" not in here.text()
        assert "the output" not in here.text()
        await click(here, "Thought")
        assert "and more" in here.text()
        await click(here, "make all")
        assert "the output" in here.text()
        await click(here, "make all")
        assert "the output" not in here.text()


@pytest.mark.slow
async def test_the_cursor_walks_and_enter_space_and_arrows_open_and_close() -> None:
    async with stage([CALL, UserItem("words"), ThinkingItem("thought\n\nsecond thought")]) as here:
        await press(here, "home", "enter")
        assert "the output" in here.text()
        await press(here, "left")
        assert "the output" not in here.text()
        await press(here, "right")
        assert "the output" in here.text()
        await press(here, "down", "down", "space")
        assert "second thought" in here.text()
        await press(here, "up", "up", "enter")
        assert "the output" not in here.text()


async def test_the_cursor_is_seen_only_while_the_transcript_has_focus() -> None:
    async with stage([NoticeItem("one"), NoticeItem("two")]) as here:
        assert not any(line.startswith("▌") for line in here.lines())
        await press(here, "home")
        assert here.lines()[:2] == ["▌ · one", "  · two"]
        here.app.query_one("Input").focus()
        await here.settle()
        assert here.lines()[:2] == ["  · one", "  · two"]


async def test_the_cursor_is_in_view_whatever_came_since_the_last_visit() -> None:
    async with stage([NoticeItem("one"), NoticeItem("two")]) as here:
        await press(here, "home")
        here.app.query_one("Input").focus()
        for number in range(100):
            here.view.add(NoticeItem(f"later {number}"))
        await here.settle()
        here.view.focus()
        await here.settle()
        assert [line for line in here.lines() if line.startswith("▌")] == ["▌ · later 99"]


async def test_arrows_go_through_an_item_that_is_taller_than_the_screen() -> None:
    text = "\n\n".join(f"paragraph {n}" for n in range(60))
    async with stage([UserItem("first"), ReplyItem(text), UserItem("last")], (80, 10)) as here:
        await press(here, "home", "down")
        seen = set(here.lines())
        for _ in range(60):
            here.view.interaction.step(1)
            seen.update(here.lines())
        assert {f"paragraph {n}" for n in range(60)} <= {line[2:].rstrip("│┃ ") for line in seen}
        assert here.view.following


async def test_transcript_folds_and_opens_all_at_once() -> None:
    async with stage(EVERYTHING, (100, 150)) as here:
        here.view.fold_all(False)
        await here.settle()
        assert "in 0.1 s" in here.text()
        assert "Then the tax" in here.text()
        here.view.fold_all(True)
        await here.settle()
        assert "Then the tax" not in here.text()
        assert "def price" not in here.text()


async def test_opened_item_stays_open_when_it_changes() -> None:
    async with stage([ToolItem("1", "bash", "make", "running", output="a")]) as here:
        key = here.view.keys()[0]
        here.toggle(key)
        here.view.stream(key, "\nb\n")
        await here.settle()
        assert "b" in here.text()
        here.view.replace(key, ToolItem("1", "bash", "make", output="result"))
        await here.settle()
        assert "result" in here.text()


async def test_the_line_that_was_clicked_stays_where_it_is() -> None:
    items = [UserItem(f"prompt {n}") for n in range(30)]
    opened = ToolItem("1", "bash", "make all", output="\n".join(f"out {n}" for n in range(40)))
    async with stage([*items, opened]) as here:
        place = here.find("make all")
        await click(here, "make all")
        assert here.find("make all") == place
        assert not here.view.following
        await click(here, "make all")
        assert here.find("make all") == place
        assert here.view.following


async def test_a_click_on_a_link_says_where_it_leads() -> None:
    async with stage([ReplyItem("see [the docs](https://example.org/d) or https://bare.org/x.")]) as here:
        await click(here, "the docs")
        await click(here, "bare.org")
        assert here.app.opened == ["https://example.org/d", "https://bare.org/x"]
        assert "(https://example.org/d)" in here.text()


async def test_a_key_opens_the_links_of_an_item_one_after_the_other() -> None:
    reply = ReplyItem("[a](https://a.org/x) and https://b.org and [a again](https://a.org/x)")
    async with stage([UserItem("no link"), reply]) as here:
        await press(here, "end", "o", "o", "o", "up", "o")
        assert here.app.opened == ["https://a.org/x", "https://b.org", "https://a.org/x"]


async def test_keys_and_clicks_on_the_card_of_a_compaction_ask_for_what_it_offers() -> None:
    async with stage([UserItem("words"), BOUNDARY]) as here:
        await press(here, "end", "p", "u", "t", "l", "c")
        key = here.view.keys()[1]
        asked = [(message.key, message.action) for message in here.heard(Transcript.ItemActivated)]
        assert asked == [(key, action) for action in ("open_parent", "undo", "edit_template", "tree", "copy")]
        here.app.heard.clear()
        await click(here, "undo")
        assert [message.action for message in here.heard(Transcript.ItemActivated)] == ["undo"]
        await press(here, "enter")
        assert "the summary" in here.text()
        assert "the evidence" in here.text()


async def test_keys_of_the_card_do_nothing_elsewhere() -> None:
    async with stage([BOUNDARY, *(UserItem(f"words {number}") for number in range(60))]) as here:
        await press(here, "end", "p", "u")  # it is out of sight
        assert here.heard(Transcript.ItemActivated) == []


async def test_dragging_selects_text_without_gutters_and_joins_broken_lines() -> None:
    words = " ".join(f"word{n}" for n in range(30))
    items = [UserItem("the prompt"), ReplyItem(f"- {words}\n\n> quoted\n\n```\ncode  here\n```")]
    async with stage(items, (60, 24)) as here:
        await drag(here, (2, 0), here.find("here"))
        expected = f"the prompt\n\n• {words}\n\nquoted\n\ncode  h"
        assert here.view.screen.get_selected_text() == expected
        assert here.app.screen.get_selected_text() == expected
        x, y = here.find("the prompt")
        selected = [segment for segment in here.strips()[y] if "prompt" in segment.text]
        plain = [segment for segment in here.strips()[y] if segment.text == "▌ "]
        assert selected[0].style is not None
        assert plain[0].style is not None
        assert selected[0].style.bgcolor != plain[0].style.bgcolor
        assert x == 2


async def test_a_selection_stays_on_its_words_while_text_arrives_and_items_above_change() -> None:
    async with stage([CALL, ReplyItem("alpha beta gamma")]) as here:
        x, y = here.find("beta")
        await drag(here, (x, y), (x + 3, y))
        assert here.view.screen.get_selected_text() == "beta"
        here.toggle(here.view.keys()[0])
        key = here.view.add(ReplyItem("", done=False))
        here.view.stream(key, "more\n\n" * 40)
        await here.settle()
        assert here.view.screen.get_selected_text() == "beta"


@pytest.mark.slow
async def test_two_clicks_select_a_word_and_three_the_whole_item() -> None:
    async with stage([UserItem("first"), ReplyItem("alpha beta-gamma delta\n\nsecond")]) as here:
        await click(here, "gamma", times=2)
        assert here.view.screen.get_selected_text() == "beta-gamma"
        await click(here, "gamma", times=3)
        assert here.view.screen.get_selected_text() == "alpha beta-gamma delta\n\nsecond"


async def test_selecting_everything_in_a_long_session_takes_the_sources() -> None:
    items = [UserItem(f"prompt {n}") for n in range(1_000)]
    async with stage(items) as here:
        selected = here.view.get_selection(SELECT_ALL)
        assert selected is not None
        assert selected[0].split("\n\n") == [f"prompt {n}" for n in range(1_000)]
        assert len(here.view.cache.drawings) < 300


async def test_wide_characters_are_selected_by_the_cell() -> None:
    async with stage([ReplyItem("漢字かな text")]) as here:
        y = here.find("漢字")[1]
        await drag(here, (4, y), (8, y))
        assert here.view.screen.get_selected_text() == "字かな"
