"""Converts the error response of a provider into a ModelError. Pure; loaded only after a failure."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from crushpy.core.messages import Json
from crushpy.llm import errors
from crushpy.util.data_table import read_table
from crushpy.util.lazy_pattern import lazy_pattern

TEXT_LIMIT = 600


class ErrorTable(msgspec.Struct):
    """The content of `error_patterns.toml`."""

    status_of_code: dict[str, int]
    limits: list[str]
    patterns: dict[str, list[str]]


_FLAGS = re.IGNORECASE | re.DOTALL
_TABLE = read_table(__file__, "error_patterns", ErrorTable)
_PATTERNS = {meaning: lazy_pattern("|".join(texts), _FLAGS) for meaning, texts in _TABLE.patterns.items()}
_LIMITS = [lazy_pattern(text.replace("#", r"(\d[\d,_]{0,20})"), _FLAGS) for text in _TABLE.limits]


class ErrorSource(msgspec.Struct, frozen=True):
    """The model and server of a request, for messages and hints."""

    model: str
    where: str
    """The address, or the provider's name."""
    key_variable: str = ""
    """The environment variable that holds the key, or the command that stored it."""
    key_sent: bool = True


class ErrorBody(msgspec.Struct, frozen=True):
    """The content of an error response."""

    text: str
    """A short text for the user."""
    code: str = ""
    """The provider's own name or number of the error."""
    raw: str = ""
    """The complete response, to be searched for patterns."""

    def says(self, meaning: str) -> bool:
        """Whether it contains one of the patterns with this meaning."""
        return _PATTERNS[meaning].search(self.raw) is not None


def read_body(body: bytes | str | Json) -> ErrorBody:
    """Extract the message from the known formats of servers; any other response is plain text."""
    if isinstance(body, dict):
        value, raw = cast(Any, body), msgspec.json.encode(body).decode()
    else:
        raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return ErrorBody(_short(_plain(raw)), raw=raw)
    while isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    if not isinstance(value, dict):
        return ErrorBody(_short(raw), raw=raw)
    outer = cast(Json, value)
    inner = outer.get("error", outer)
    if isinstance(inner, dict):
        error = cast(Json, inner)
        text = next((error[k] for k in ("message", "detail", "error", "msg") if error.get(k)), raw)
        codes = (error.get(k) for k in ("code", "type", "status"))
        code = next((str(code) for code in codes if code), "")
    else:
        text, code = inner, ""
    return ErrorBody(_short(text if isinstance(text, str) else raw), code, raw)


def classify(
    status: int | None, body: ErrorBody, source: ErrorSource, headers: Mapping[str, str] | None = None
) -> errors.ModelError:
    """The error to raise for a response with `status`; None: for an error object inside a stream."""
    if status is None:
        number = int(body.code) if body.code.isdigit() else 0
        status = number if 400 <= number < 600 else _TABLE.status_of_code.get(body.code.lower(), 500)
    said = f"{source.where} ({status}): {body.text}" if body.text else f"{source.where} ({status})"
    if body.says("no_credit") or status == 402:
        return errors.AuthenticationFailed(
            f"no credit left for {source.model} at {said}",
            "Add credit to the account the key belongs to, or switch the model.",
            status=status,
        )
    if status in (400, 500) and body.says("filtered"):
        return errors.Refused(f"{source.model} refused to answer: {said}", status=status)
    if body.says("too_large_for_rate"):
        return errors.ContextOverflow(f"the request is larger than the rate limit of {said}", status=status)
    if status not in (401, 403, 429) and (status == 413 or body.says("overflow")):
        return errors.ContextOverflow(
            f"the request is larger than the window of {source.model} at {said}",
            "Start a new session, or choose a model with a larger window.",
            status=status,
            limit=read_limit(body.raw),
        )
    if status in (401, 403) or (status == 400 and body.says("wrong_key")):
        return errors.AuthenticationFailed(f"the key is refused by {said}", _key_hint(source), status=status)
    if status == 429:
        wait = retry_after(headers or {}, body.raw)
        long = f"{wait:,.0f} seconds" if wait else "a while"
        return errors.RateLimited(
            f"rate limited by {said}", f"Wait {long}, or switch the model.", retry_after=wait
        )
    if status == 404:
        return errors.BadRequest(
            f"{source.model} was not found at {said}",
            "`crushpy models` lists the models that can be used. Also check the server's address.",
            status=status,
        )
    if status >= 500 and body.says("no_memory"):
        return errors.BadRequest(
            f"{source.model} does not fit in the memory of {said}",
            "Choose a smaller model, or a smaller window: "
            f"crushpy config set 'models.\"{source.model}\".context_window' 16384",
            status=status,
        )
    if status == 408:
        return errors.TimedOut(f"timed out at {said}", status=status)
    if status in (409, 425) or status >= 500:
        wait = retry_after(headers or {}, "")
        return errors.Unavailable(f"not available: {said}", status=status, retry_after=wait)
    return errors.BadRequest(
        f"the request for {source.model} is refused by {said}",
        "Check the model's name and settings; `crushpy doctor` shows them.",
        status=status,
    )


def read_limit(text: str) -> int | None:
    """The window that an overflow error names."""
    for pattern in _LIMITS:
        if found := pattern.search(text):
            return int(found[1].replace(",", "").replace("_", "")) or None
    return None


def retry_after(headers: Mapping[str, str], text: str) -> float | None:
    """The delay in seconds that the provider asks for: in a header (seconds, milliseconds or a date), in the
    message, or the time until an exhausted limit is reset."""
    if (millis := _number(headers.get("retry-after-ms", ""))) is not None:
        return millis / 1000
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return seconds
    if value:
        from email.utils import parsedate_to_datetime

        with suppress(ValueError):
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    found = re.search(r"(?:try again in |retryDelay\"?: ?\"?)([\d.]+) ?(ms|s|m)\b", text, re.IGNORECASE)
    if found and (amount := _number(found[1])) is not None:
        return amount * _UNITS[found[2].lower()]
    # Every exhausted limit must be reset.
    limits = [name for name in headers if "ratelimit" in name and "remaining" in name]
    exhausted = [name.replace("remaining", "reset") for name in limits if headers[name].strip() == "0"]
    waits = [_until(headers.get(name, "")) for name in exhausted]
    return max((max(0.0, wait) for wait in waits if wait is not None), default=None)


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _until(text: str) -> float | None:
    """Seconds until a reset given as a duration (17, 6m0s, 120ms) or a time (2026-01-31T12:00:00Z)."""
    if (number := _number(text)) is not None:
        return number
    if re.fullmatch(r"(?:\d+(?:\.\d+)?(?:ms|[hms]))+", text):
        spans = re.findall(r"([\d.]{1,20})(ms|[hms])", text)
        return sum(float(amount) * _UNITS[unit] for amount, unit in spans)
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp() - time.time()
    except ValueError:
        return None


def refuses_late_system(status: int, body: ErrorBody) -> bool:
    """Whether a server refuses a system message that is not the first: some chat templates do."""
    return status in (400, 422, 500) and body.says("late_system")


def _key_hint(source: ErrorSource) -> str:
    name = source.key_variable
    if not source.key_sent:
        return f"No key was sent. Set {name or 'the key of the provider'} in the environment."
    if " " in name:
        return f"Check the stored key: `{name}` stores another."
    where = f"{name} in the environment" if name else "the key in the environment"
    return f"Check {where}; `crushpy doctor` shows which keys are found."


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _plain(text: str) -> str:
    """The title or text of an HTML page that a proxy or gateway sent instead of JSON."""
    if not text.lstrip().startswith("<"):
        return text
    lower = text.lower()
    start = lower.find(">", lower.find("<title")) + 1 if "<title" in lower else 0
    end = lower.find("</title>", start)
    return text[start:end] if 0 < start <= end else re.sub(r"<[^<>]*>", " ", text)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + " ..."
