"""The context strip: the window drawn to scale, its forms, and that it says what the inspector says."""

from itertools import pairwise
from pathlib import Path

import pytest
from driving import MODEL, Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from transcript_host import stage

from crushpy.context.budget import Budget
from crushpy.context.inspect import FREE, WINDOW_PARTS, part_of, window_parts
from crushpy.core.boundary import Boundary, FactCount
from crushpy.core.messages import Usage
from crushpy.tui.items import BoundaryItem
from crushpy.tui.screens.inspector import InspectorScreen
from crushpy.tui.themes import STRIP_16, STRIP_DARK, STRIP_LIGHT
from crushpy.tui.widgets.context_strip import PREPARED, SHADED, THRESHOLD, glyphs, strip_cells, strip_spans
from crushpy.tui.widgets.row_list import RowList
from crushpy.tui.widgets.status_bar import Reading

__all__ = ["start"]

COUNTS = {"system": 500, "tool": 1_500, "pins": 100, "evidence": 333, "user": 7, "tool output": 4_001, "x": 9}


@pytest.mark.parametrize("used", [0, 1, 999, 12_345, 100_000])
def test_the_parts_sum_to_the_window_however_it_was_counted(used: int) -> None:
    parts = window_parts(COUNTS, Budget(used, 100_000, estimated=False, window_known=True))
    assert list(parts) == [*WINDOW_PARTS, FREE]
    assert sum(parts.values()) == 100_000
    assert parts[FREE] == 100_000 - used
    assert min(parts.values()) >= 0


@pytest.mark.parametrize("width", [1, 5, 38, 40, 80, 200])
@pytest.mark.parametrize("used", [0, 1, 49_999, 100_000])
def test_strip_matches_the_figures_and_marks_the_threshold(width: int, used: int) -> None:
    parts = window_parts(COUNTS, Budget(used, 100_000, estimated=False, window_known=True))
    cells = strip_cells(parts, width)
    assert len(cells) == width
    assert cells.count(FREE) == width - max(min(1, used), round(used / 100_000 * width))
    marked = strip_cells(parts, width, (0.75,))
    assert [at for at, cell in enumerate(marked) if cell == THRESHOLD] == [
        min(width - 1, round(0.75 * width))
    ]


def test_a_preparation_marks_the_way_to_the_threshold() -> None:
    cells = strip_cells({"system": 30, FREE: 70}, 100, (0.75,), prepared=True)
    assert cells[29:31] == ["system", PREPARED] and cells[74:77] == [PREPARED, THRESHOLD, FREE]


def test_neighbours_differ_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    letters = glyphs()
    text = "".join(text for text, _ in strip_spans(strip_cells(dict.fromkeys(letters, 1), 90, (0.9,))))
    assert text.isascii() and len(text) == 90
    for form in (SHADED, letters):
        assert all(left != right for left, right in pairwise([form[part] for part in (*WINDOW_PARTS, FREE)]))
    for colours in (STRIP_DARK, STRIP_LIGHT, STRIP_16):
        assert len(set(colours.values())) == len(colours)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert not "".join(glyphs().values()).isascii()


def drawn(app: Driven) -> str:
    """The line above the prompt."""
    return app.text.splitlines()[app.chat.strip.region.y]


@pytest.mark.slow
async def test_strip_agrees_with_the_inspector(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 20000\n')
    (workspace / "long.txt").write_text("one two three\n" * 500)
    llm.script(
        Reply(calls=[Call("view", {"file_path": "long.txt"})], usage=Usage(4_000, 20)),
        Reply("Read.", usage=Usage(9_000, 20)),
    )
    async with start(size=(100, 30)) as app:
        await app.until(lambda: app.chat.strip.reading.window == 20_000, "the figures")
        await app.say("read it")
        await app.sees("Read.")
        await app.rests()
        strip, context = app.chat.strip, app.conversation.context
        assert strip.reading.used == context.budget().used
        assert len(drawn(app)) == 100 and strip.cells[75] == THRESHOLD
        before = 100 - strip.cells.count(FREE)
        output = strip.cells.index("tool output")
        await app.pilot.click(strip, offset=(output, 0))
        await app.shows(InspectorScreen)
        inspection = context.inspect()
        await app.until(lambda: strip.reading.estimated == inspection.budget.estimated, "the same moment")
        parts = window_parts(inspection.by_kind(), inspection.budget)
        assert strip.reading.parts.keys() == parts.keys()
        assert all(abs(strip.reading.parts[part] - tokens) <= 2 for part, tokens in parts.items())
        rows = app.app.screen.query_one(RowList)
        assert "tool output" in rows.render_line(rows.highlighted).text
        await app.press("escape")
        await app.shows(type(app.chat))
        reading = strip.reading
        await app.say("/handoff it was read")
        await app.sees("session 2")
        await app.rests()
        assert strip.reading.used < reading.used
        assert 100 - strip.cells.count(FREE) < before
        assert "summary" in strip.cells and "tool output" not in strip.cells


async def test_strip_is_drawn_without_unicode_and_at_40_columns(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    async with start(size=(40, 12)) as app:
        parts = {"system": 1_000, "tools": 4_000, FREE: 5_000}
        reading = Reading(5_000, 10_000, parts=parts, thresholds=(0.75,))

        def is_drawn() -> bool:
            app.chat.strip.reading = reading  # the app may have replaced it with that of its conversation
            return drawn(app) == "ssss" + "t" * 16 + "." * 10 + "|" + "." * 9

        await app.until(is_drawn, "the strip in letters")
        app.app.theme = "ansi-dark"
        await app.pilot.pause()
        await app.until(is_drawn, "the strip in the terminal's colours")


def test_every_kind_the_inspector_lists_has_a_part() -> None:
    kinds = ("tool", "skill", "system", "context file", "rules", "pins", "summary", "evidence", "hook")
    assert [part_of(kind) for kind in (*kinds, "user", "assistant", "note", "tool output")] == [
        *("tools", "tools", "system", "rules", "rules", "rules", "summary", "summary", "summary"),
        *("conversation", "conversation", "conversation", "tool output"),
    ]


async def test_a_closed_card_has_a_strip_to_scale_and_one_line_with_the_facts() -> None:
    boundary = Boundary("b", "p", "c", "auto", 60_000, 15_000, facts={"paths": FactCount(48, 0, 48)})
    async with stage([BoundaryItem(boundary, "s")], (80, 30)) as here:
        lines = [line.strip(" ▌") for line in here.text().split("\n")]
        at = next(at for at, line in enumerate(lines) if "Context compacted" in line)
        assert lines[at + 1] == "▀" * 18 + "▔" * 54
        after = [strip for strip in here.strips()[at + 1] if strip.text.strip()]
        assert after[0].style != after[-1].style
        assert (
            "60,000 → ~15,000 tokens" in lines[at + 2] and "48 of 48 recorded facts carried" in lines[at + 2]
        )
