"""What fills the window, drawn: from made-up figures, and from a real conversation."""

import pytest
from hosting import CONTROLS, EVIL, EVIL_SHOWN, SIZES, nothing, shown
from scripted_llm.server import ScriptedLLM
from support.talk import Talks

from crushpy.context.budget import Budget
from crushpy.context.inspect import Inspection, Row
from crushpy.tui.screens.inspector import ContextControls, InspectorScreen

ROWS = (
    Row("tool", "bash", 500, True),
    Row("system", "system prompt", 1_500, True),
    Row("context file", "/work/AGENTS.md", 1_000, True),
    Row("user", "please repair it", 2_000, False, "m1"),
    Row("tool output", EVIL, 40_000, False, "m2"),
    Row("assistant", "done", 5_000, False, "m3"),
)
HALF = Inspection(Budget(50_000, 100_000, estimated=True, window_known=False), ROWS)
THRESHOLDS = {"auto": 0.75, "fallback": 0.9}


def inspector(inspection: Inspection = HALF) -> InspectorScreen:
    return InspectorScreen(lambda: inspection, "auto", THRESHOLDS, CONTROLS)


@pytest.mark.parametrize("size", SIZES)
async def test_the_figures_the_bar_and_the_keys_are_there_at_every_size(size: tuple[int, int]) -> None:
    async with shown(inspector(), size) as screen:
        assert "~50,000 of 100,000? tokens" in screen.text
        assert "auto" in screen.text
        if size[1] >= 16:  # below, the rows go before the bar
            used, free = (screen.lines[2].count(mark) for mark in "▀▔")
            assert used + free == size[0] - 4 - len(THRESHOLDS) and used > 1
            assert "75% auto" in screen.text and "90% fallback" in screen.text
            assert "Esc Close" in screen.text
        for key in ("s Largest first or in order", "k Kinds or parts", "r Refresh"):
            assert key in screen.text
        await screen.press("escape")
        assert screen.results == [None]


async def test_rows_stand_in_order_or_by_size_or_by_kind() -> None:
    async with shown(inspector()) as screen:
        assert screen.text.index("click") < screen.text.index("please repair")
        await screen.press("s")
        lines = [line for line in screen.lines if " 0.5%  tool" in line]
        assert "cached" in lines[0]
        assert screen.text.index("please repair") < screen.text.index("click")
        await screen.press("s")
        await screen.press("k")
        assert "please repair" not in screen.text
        assert "   40,000  40.0%  tool output" in screen.text
        await screen.press("t")
        assert "by kind" not in screen.text and "please repair" in screen.text


async def test_refresh_reads_anew() -> None:
    now = [HALF]
    screen_ = InspectorScreen(lambda: now[0], "llm", {}, CONTROLS)
    async with shown(screen_) as screen:
        now[0] = Inspection(Budget(1_000, 100_000, False, True), ROWS[:2])
        assert "50,000" in screen.text
        await screen.press("r")
        assert "1,000 of 100,000 tokens (1%)" in screen.text
        assert "~" not in screen.text
        assert "compaction llm" in screen.text


async def test_a_count_over_the_window_is_said() -> None:
    over = Inspection(Budget(40_000, 40_000, estimated=True, window_known=True, clamped=True), ROWS)
    async with shown(inspector(over)) as screen:
        assert "over the window: 50k counted" in screen.text


async def test_foreign_text_is_shown_and_does_nothing() -> None:
    async with shown(inspector(), (120, 24)) as screen:
        assert EVIL_SHOWN in screen.text
        assert "\x1b" not in screen.text


@pytest.mark.slow
async def test_a_real_conversation_is_shown_part_by_part(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("An answer of some words.")
    talk = await talks()
    await talk.ask("What is this about?")
    read, method = talk.conversation.context.inspect, talk.conversation.info.compaction
    async with shown(InspectorScreen(read, method, {}, CONTROLS), (80, 40)) as screen:
        await screen.press("s", "t")
        for part in ("system", "bash", "What is this about?", "An answer of some words."):
            await screen.press("end" if part not in screen.text else "home")
            assert part in screen.text


async def test_in_a_very_small_terminal_there_are_rows_to_see() -> None:
    async with shown(inspector(), (30, 8)) as screen:
        assert "50,000" in screen.text
        assert sum(f"{row.tokens:,}" in screen.text for row in ROWS) >= 3


async def test_estimates_are_shown_at_once_and_replaced_once_all_is_counted() -> None:
    reads: list[bool] = []

    async def count() -> None:
        reads.append(True)

    def read() -> Inspection:
        counted = True in reads
        reads.append(False)
        return Inspection(Budget(50 if counted else 60, 100, not counted, True), ())

    controls = ContextControls(nothing, nothing, nothing, nothing, count)
    async with shown(InspectorScreen(read, "auto", {}, controls)) as screen:
        assert reads[0] is False, "it is shown before all is counted"
        assert "50 of 100 tokens (50%)" in screen.text
