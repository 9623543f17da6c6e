"""Our counts in the provider's tokens: what its reports teach, and which of them are believed."""

import pytest

from crushpy.context.budget import Calibration, Report, calibrate


def told(*pairs: tuple[int, int]) -> list[Report]:
    """Reports of requests: what the provider said, and what we had counted."""
    return [Report(asked, estimate) for asked, estimate in pairs]


def test_two_replies_give_the_ratio_of_a_tokenizer() -> None:
    assert calibrate(told((2_000, 1_000))).ratio is None
    found = calibrate(told((2_000, 1_000), (2_420, 1_200)))
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert found.scale(500) == pytest.approx(1_000, rel=0.01)


def test_the_median_bears_one_odd_reply() -> None:
    found = calibrate(told((1_200, 1_000), (1_320, 1_100), (4_000, 1_200), (1_560, 1_300)))
    assert found.ratio == pytest.approx(1.2)


def test_replies_that_speak_of_different_things_give_no_ratio() -> None:
    assert calibrate(told((1_000, 1_900), (7_600, 2_000))).ratio is None


def test_learnt_ratio_holds_until_the_session_has_its_own() -> None:
    assert calibrate([], [1.5, 1.5]).ratio == 1.5
    assert calibrate(told((1_400, 1_000)), [1.5, 1.5]).ratio == 1.5
    assert calibrate(told((1_100, 1_000), (1_210, 1_100)), [1.5, 1.5]).ratio == pytest.approx(1.1)


def test_an_uncommon_ratio_must_be_borne_out_by_what_was_added() -> None:
    assert calibrate(told((8_000, 2_000), (8_000, 2_020), (8_010, 2_040))).ratio is None
    assert calibrate(told((8_000, 2_000), (8_000, 2_500))).ratio is None
    assert calibrate(told((8_000, 2_000), (10_000, 2_500))).ratio == pytest.approx(4.0)
    assert calibrate([], [4.0, 4.0]).ratio == 4.0


def test_ratio_is_stored_only_when_replies_agree() -> None:
    assert calibrate(told((1_200, 1_000))).latest is None
    assert calibrate(told((1_200, 1_000), (1_320, 1_100))).latest == pytest.approx(1.2)
    assert calibrate(told((1_200, 1_000), (1_320, 1_100), (4_800, 1_200))).latest is None


def test_added_messages_use_the_ratio_of_the_last_addition() -> None:
    found = calibrate(told((2_000, 1_000), (5_000, 2_000)))
    assert found.ratio == pytest.approx(2.25)
    assert found.scale_added(1_000) == 3_000
    assert found.scale(1_000) == 2_250


@pytest.mark.parametrize(
    ("asked", "learnt", "believed"),
    [
        (0, [], False),
        (190, [], False),
        (200, [], True),
        (990, [2.0, 2.0], False),
        (1_000, [2.0, 2.0], True),
        (490, [1.0, 1.0], False),
    ],
)
def test_a_report_is_believed_from_half_of_the_calibrated_estimate_on_or_a_fifth_of_an_uncalibrated_one(
    asked: int, learnt: list[float], believed: bool
) -> None:
    assert calibrate(told((asked, 1_000)), learnt).believed is believed


def test_two_low_reports_that_agree_win_and_the_ratio_is_theirs() -> None:
    known = [1.0, 1.0, 1.0]
    assert not calibrate(told((300, 1_000)), known).believed
    found = calibrate(told((450, 1_000), (500, 1_100)), known)
    assert found.believed and found.restarted
    assert found.ratio == pytest.approx(0.45, abs=0.01)
    assert calibrate(told((300, 1_000), (335, 1_100)), known).believed
    assert not calibrate(told((300, 1_000), (450, 1_100)), known).believed


def test_a_report_that_is_as_good_as_none_never_wins() -> None:
    for asked in (0, 10):
        found = calibrate(told(*[(asked, 1_000)] * 5))
        assert not found.believed and found.ratio is None and found.latest is None


def test_an_absurd_ratio_is_believed_as_a_report_and_not_learnt() -> None:
    found = calibrate(told((80_000, 1_000), (81_000, 1_100)))
    assert found.believed and found.ratio is None and found.latest is None
    assert found.scale_added(100) == 100
    assert calibrate([], [0.001, 40.0, 40.0]) == Calibration()
