"""The line that is always in view: what it says at which width, and what gives way first."""

import re

from crushpy.context.budget import Budget
from crushpy.tui.widgets.status_bar import Reading, StatusBarState, fitted

BUSY = StatusBarState(
    model="anthropic/claude-sonnet-4-5-20250929",
    method="llm",
    reading=Reading(151_000, 200_000, estimated=False),
    cost=1.234,
    asks=True,
    generation=2,
    below=1_234,
)


def line(state: StatusBarState, width: int) -> str:
    text = fitted(state, width).plain
    assert len(text) <= width
    return re.sub(r" {2,}", "  ", text)


def test_status_bar_shows_everything_when_wide() -> None:
    assert line(BUSY, 200) == (
        "asks you  ↓ 1,234 more lines (Ctrl+End)  anthropic/claude-sonnet-4-5-20250929  "
        "compaction llm  75% 151k/200k  session 3  $1.23"
    )


def test_status_bar_keeps_window_method_and_cost_when_narrow() -> None:
    for text in (line(BUSY, width) for width in range(46, 140)):
        for part in ("asks you", "↓ 1,234", "llm", "75%", "$1.23"):
            assert part in text


def test_status_bar_says_what_is_left_of_a_budget_and_keeps_it_longer_than_the_cost() -> None:
    idle = StatusBarState(model="m", reading=BUSY.reading, cost=1.2, budget="3.80usd")
    assert line(idle, 80).endswith("$1.20  3.80usd left")
    assert "3.80usd left" in line(idle, 30) and "$1.20" not in line(idle, 20)
    assert "75%" in line(idle, 12)


def test_status_bar_keeps_the_window_when_very_narrow() -> None:
    idle = StatusBarState(model=BUSY.model, method="llm", reading=BUSY.reading)
    assert all("75%" in line(idle, width) for width in range(10, 46))


def test_an_idle_line_of_forty_columns_has_the_gauge() -> None:
    idle = StatusBarState(model="openai/test-model", reading=Reading(1_700, 128_000, window_known=False))
    assert line(idle, 38) == "test-model  auto  ~1% 1.7k/128k?"


def test_an_unknown_window_is_marked_in_every_form() -> None:
    idle = StatusBarState(model="openai/test-model", reading=Reading(1_700, 128_000, window_known=False))
    assert all("?" in line(idle, width) for width in range(5, 80))


def test_a_compaction_that_is_prepared_is_said_beside_the_figures() -> None:
    reading = Reading(6_400, 10_000, estimated=False, preparation="ready")
    idle = StatusBarState(model="openai/test-model", reading=reading)
    assert line(idle, 60) == "openai/test-model  compaction auto  64% 6.4k/10k ready"
    assert line(StatusBarState(reading=reading), 10) == "auto  64%"


def test_a_line_of_the_user_is_cut_only_if_it_is_long_and_gives_way_to_the_model() -> None:
    reading = Reading(1_700, 128_000)
    short = StatusBarState(model="openai/test-model", reading=reading, line="on battery", folder="~/src/shop")
    assert line(short, 45) == "test-model  auto  on battery  ~1% 1.7k/128k"
    assert line(short, 40) == "test-model  auto  ~1% 1.7k/128k"
    long = StatusBarState(model="openai/test-model", reading=reading, line="x" * 50)
    assert f"  {'x' * 29}…  " in line(long, 80)


def test_a_million_is_1m() -> None:
    from crushpy.core.messages import short_count as short

    figures = {999: "999", 1_000: "1.0k", 12_345: "12k", 999_999: "999k", 1_000_000: "1M", 1_048_576: "1M"}
    assert {tokens: short(tokens) for tokens in figures} == figures
    assert short(2_500_000) == "2.5M"


def test_status_bar_has_three_parts() -> None:
    state = StatusBarState(
        model="openai/test-model",
        reading=Reading(50_000, 200_000, estimated=False),
        folder="~/work/shop",
        branch="main",
    )
    text = fitted(state, 120).plain
    assert len(text) == 120
    assert text.startswith("openai/test-model  compaction auto")
    assert text.endswith("25% 50k/200k")
    middle = text.index("~/work/shop · main")
    assert abs(middle + len("~/work/shop · main") / 2 - 60) <= 2
    assert "shop · main" in fitted(state, 90).plain
    assert "25%" in fitted(state, 30).plain and "shop" not in fitted(state, 30).plain


def test_a_missing_sandbox_is_said() -> None:
    state = StatusBarState(model="openai/test-model", unconfined=True)
    assert line(state, 80).endswith("no sandbox") and "no sandbox" in line(state, 30)
    assert "sandbox" not in line(StatusBarState(model="openai/test-model"), 80)


def test_the_percentage_is_the_one_that_the_inspector_and_the_status_say() -> None:
    used = Budget(3_486, 40_000, estimated=False, window_known=True)
    idle = StatusBarState(model="m", reading=Reading(used.used, used.window, estimated=False))
    assert f" {used.used_pct}% " in line(idle, 80)
