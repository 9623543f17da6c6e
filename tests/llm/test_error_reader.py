"""What providers say when they fail, in their own words, and what we make of it."""

import time
import tomllib
from email.utils import formatdate
from pathlib import Path

import pytest

from crushpy.llm.error_reader import (
    ErrorSource,
    classify,
    read_body,
    read_limit,
    refuses_late_system,
    retry_after,
)
from crushpy.llm.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    RateLimited,
    TimedOut,
    Unavailable,
)

SOURCE = ErrorSource("openai/x", "http://there/v1", "OPENAI_API_KEY")


def error(status: int | None, body: bytes | str | dict, headers: dict | None = None):
    return classify(status, read_body(body), SOURCE, headers)


OVERFLOWS = tomllib.loads(Path(__file__).with_name("overflows.toml").read_text())["overflow"]


@pytest.mark.parametrize("said", OVERFLOWS, ids=[said["who"] for said in OVERFLOWS])
def test_an_overflow_is_known_by_its_words_and_its_limit_is_read(said):
    found = error(said["status"], said["body"])
    assert isinstance(found, ContextOverflow)
    assert found.limit == said.get("limit")
    assert not found.retryable


NO_OVERFLOWS = [
    (400, "Unknown parameter: 'context_window'."),
    (400, "Invalid value for 'max_tokens': must be positive"),
    (429, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."),
    (429, "Too many tokens, please wait before trying again."),
    (500, "The server had an error while processing your request"),
]


@pytest.mark.parametrize(("status", "body"), NO_OVERFLOWS)
def test_words_that_only_sound_like_an_overflow_are_none(status, body):
    assert not isinstance(error(status, body), ContextOverflow)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "nope", BadRequest),
        (401, "nope", AuthenticationFailed),
        (402, "pay first", AuthenticationFailed),
        (403, "nope", AuthenticationFailed),
        (404, "nope", BadRequest),
        (405, "nope", BadRequest),
        (408, "slow", TimedOut),
        (409, "again", Unavailable),
        (422, "nope", BadRequest),
        (429, "slow down", RateLimited),
        (500, "oops", Unavailable),
        (503, "Loading model", Unavailable),
        (529, "Overloaded", Unavailable),
        (400, '{"error":{"message":"API key not valid. Pass a valid one."}}', AuthenticationFailed),
        (400, "Your credit balance is too low to access the Anthropic API.", AuthenticationFailed),
        (429, '{"error":{"message":"over your quota","code":"insufficient_quota"}}', AuthenticationFailed),
        (429, '{"error":{"message":"over your quota","status":"RESOURCE_EXHAUSTED"}}', RateLimited),
        (None, '{"error":{"message":"slow","type":"rate_limit_error"}}', RateLimited),
        (None, '{"error":{"message":"busy","type":"overloaded_error"}}', Unavailable),
        (None, '{"error":{"message":"bad","code":400}}', BadRequest),
        (None, '{"error":"?"}', Unavailable),
    ],
)
def test_each_failure_has_one_of_our_errors(status, body, kind):
    assert type(error(status, body)) is kind


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"error":{"message":"a b"}}', "a b"),
        ('{"error":"plain"}', "plain"),
        ('{"detail":"from FastAPI"}', "from FastAPI"),
        ('{"message":"bare"}', "bare"),
        ('[{"error":{"message":"in a list"}}]', "in a list"),
        ("just text", "just text"),
        ("<html><head><title>502 Bad\n Gateway</title></head><body>x</body></html>", "502 Bad Gateway"),
        ("<p>no <b>title</b></p>", "no title"),
        (b"\xff broken", "\ufffd broken"),
        ("[]", "[]"),
        ("", ""),
    ],
)
def test_the_message_is_found_in_every_shape(body, text):
    assert read_body(body).text == text


def test_a_long_body_is_cut_for_people():
    assert len(read_body("x" * 10_000).text) < 700


def test_errors_name_the_model_the_place_and_the_words():
    found = error(400, '{"error":{"message":"no such knob"}}')
    assert all(word in found.message for word in ("openai/x", "http://there/v1", "400", "no such knob"))


def test_a_missing_key_and_a_wrong_one_have_different_hints():
    wrong = classify(401, read_body("no"), SOURCE)
    missing = classify(401, read_body("no"), ErrorSource("m", "w", "THE_KEY", key_sent=False))
    assert "Check OPENAI_API_KEY" in wrong.hint
    assert missing.hint.startswith("No key was sent. Set THE_KEY")


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, "", 0.25),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, "", 30),
        ({"retry-after": formatdate(NOW - 30, usegmt=True)}, "", 0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-3"}, "", None),
        ({"retry-after": "inf"}, "", None),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "Please try again in 300ms.", 0.3),
        ({}, '"retryDelay": "34s"', 34),
        ({}, "", None),
    ],
)
def test_the_wait_is_read_from_headers_and_words(headers, text, seconds, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW)
    assert retry_after(headers, text) == (None if seconds is None else pytest.approx(seconds))


def test_an_unavailable_server_may_name_a_wait_too():
    assert error(503, "busy", {"retry-after": "3"}).retry_after == 3


def test_error_without_a_figure_gives_no_limit():
    assert read_limit("too long") is None


@pytest.mark.parametrize(
    ("status", "words", "refuses"),
    [
        (500, "Jinja Exception: System message must be at the beginning.", True),
        (400, "Conversation roles must alternate user/assistant/user/assistant/...", True),
        (
            500,
            "After the optional system message, conversation roles must alternate user and assistant",
            True,
        ),
        (500, "Only user, assistant and tool roles are supported, got system.", True),
        (500, "out of memory", False),
        (401, "System message must be at the beginning.", False),
    ],
)
def test_a_refused_system_message_is_known_by_its_words(status, words, refuses):
    assert refuses_late_system(status, read_body(words)) is refuses
