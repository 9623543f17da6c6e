"""When a failed model call is tried again."""

import pytest

from crushpy.llm.errors import (
    MAX_ATTEMPTS,
    MAX_RETRY_DELAY_S,
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    CutStream,
    EmptyReply,
    RateLimited,
    TimedOut,
    Unavailable,
    retry_delay,
)


@pytest.mark.parametrize("kind", [RateLimited, Unavailable, TimedOut, CutStream, EmptyReply])
def test_temporary_errors_are_retried(kind):
    assert retry_delay(kind("x"), 1, 0.5) is not None


@pytest.mark.parametrize("kind", [AuthenticationFailed, BadRequest, ContextOverflow])
def test_permanent_errors_are_not_retried(kind):
    assert retry_delay(kind("x"), 1, 0.5) is None


def test_waits_grow_are_spread_and_stay_below_the_cap(monkeypatch):
    longest = [retry_delay(Unavailable("x"), attempt, 0.999) for attempt in range(1, MAX_ATTEMPTS)]
    shortest = [retry_delay(Unavailable("x"), attempt, 0.0) for attempt in range(1, MAX_ATTEMPTS)]
    assert longest == sorted(longest)
    assert all(short < long for short, long in zip(shortest, longest, strict=True))
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "1000")
    assert retry_delay(Unavailable("x"), 5, 1.0) == MAX_RETRY_DELAY_S


def test_retries_end():
    assert retry_delay(Unavailable("x"), MAX_ATTEMPTS - 1, 0.5) is not None
    assert retry_delay(Unavailable("x"), MAX_ATTEMPTS, 0.5) is None


@pytest.mark.parametrize(("asked", "waited"), [(0, 0), (7, 7), (120, 120), (121, None)])
def test_the_wait_a_provider_asks_for_is_honoured_up_to_two_minutes(asked, waited):
    assert retry_delay(RateLimited("x", retry_after=asked), 1, 0.5) == waited
    assert retry_delay(Unavailable("x", retry_after=asked), 1, 0.5) == waited


def test_the_first_wait_can_be_set(monkeypatch):
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "0.01")
    assert retry_delay(Unavailable("x"), 1, 1.0) == pytest.approx(0.01)
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "nonsense")
    assert retry_delay(Unavailable("x"), 1, 1.0) == pytest.approx(1.0)
