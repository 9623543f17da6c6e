"""How full the window is: one function, whatever the provider says."""

from hypothesis import given
from hypothesis import strategies as st

from crushpy.context.budget import (
    Calibration,
    Report,
    Sizes,
    budget,
    calibrate,
    output_limit,
    status_text,
    threshold_of,
)
from crushpy.core.defaults import DEFAULT_WINDOW


def test_a_report_counts_and_what_came_since_is_added() -> None:
    reading = budget(Sizes(1_000, 9_000, added=200), 10_000, 100_000)
    assert (reading.used, reading.estimated, reading.window_known) == (10_200, False, True)


def test_much_that_came_since_is_an_estimate_whatever_its_ratio_was_learnt_from() -> None:
    known = Calibration(ratio=1.2, growth=1.2)
    assert not budget(Sizes(1_000, 9_000, added=250), 10_000, 100_000, known).estimated
    assert budget(Sizes(1_000, 9_000, added=270), 10_000, 100_000, known).estimated


def test_budget_is_estimated_without_a_usage_report() -> None:
    reading = budget(Sizes(1_000, 9_000), None, 100_000)
    assert (reading.used, reading.estimated) == (10_000, True)


def test_a_report_that_is_not_believed_gives_way_to_the_calibrated_estimate() -> None:
    reading = budget(Sizes(1_000, 9_000), 100, 100_000, Calibration(ratio=1.5, believed=False))
    assert (reading.used, reading.believed, reading.estimated) == (15_000, False, True)


def test_every_estimate_is_scaled_and_a_report_is_not() -> None:
    known = Calibration(ratio=2.0, growth=2.5)
    assert budget(Sizes(1_000, 9_000), None, 100_000, known).used == 20_000
    assert budget(Sizes(1_000, 9_000, added=400), 15_000, 100_000, known).used == 16_000


def test_a_reading_above_the_window_is_clamped() -> None:
    reading = budget(Sizes(1_000, 9_000), 150_000, 100_000)
    assert (reading.used, reading.clamped, reading.remaining) == (100_000, True, 0)


def test_an_unknown_window_is_a_documented_default_and_marked() -> None:
    for window in (None, 0):
        reading = budget(Sizes(1_000, 9_000), None, window)
        assert (reading.window, reading.window_known) == (DEFAULT_WINDOW, False)


def test_a_threshold_fires_at_exactly_its_share_and_never_on_a_guess() -> None:
    exact = budget(Sizes(0, 75_000), None, 100_000)
    assert exact.reaches(0.75) and not exact.reaches(0.7501)
    rough = budget(Sizes(0, 99_000, counted=False), None, 100_000)
    assert not rough.reaches(0.75)


def test_a_request_asks_for_no_more_output_than_there_is_room_for() -> None:
    reading = budget(Sizes(0, 95_000), None, 100_000)
    assert output_limit(reading, 8_000) == 5_000
    assert output_limit(reading, 1_000) == 1_000


def test_the_status_says_what_the_gauge_says() -> None:
    reading = budget(Sizes(0, 100_000), None, 200_000)
    assert status_text(reading) == (
        '<context_status>{"used_pct":50,"remaining_tokens":100000,"context_window":200000}</context_status>'
    )


def test_the_status_says_that_nobody_knows_the_window() -> None:
    assert status_text(budget(Sizes(0, 64_000), None, None)) == (
        '<context_status>{"used_pct":50,"remaining_tokens":64000,"context_window":128000,'
        '"window_known":false}</context_status>'
    )


def test_a_models_own_threshold_wins_and_off_is_off() -> None:
    assert threshold_of(0.75, None) == 0.75
    assert threshold_of(0.75, 0.5) == 0.5
    assert threshold_of("off", None) is None
    assert threshold_of(0.75, "off") is None


reports = st.lists(st.builds(Report, st.integers(0, 10**7), st.integers(0, 10**6)), max_size=8)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    reports,
    st.lists(st.floats(0, 10), max_size=5),
    st.one_of(st.none(), st.integers(0, 10**6)),
)
def test_budget_stays_within_the_window_for_any_figures(
    fixed: int, messages: int, told: list[Report], learnt: list[float], window: int | None
) -> None:
    reported = told[-1].asked if told else None
    reading = budget(Sizes(fixed, messages), reported, window, calibrate(told, learnt))
    assert 0 <= reading.used <= reading.window
    assert 0 <= reading.used_pct <= 100
    assert reading.used + reading.remaining == reading.window
