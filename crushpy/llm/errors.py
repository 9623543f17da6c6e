"""The errors of a model call, the same for every provider, and when to retry."""

import os

from crushpy.core.errors import CrushpyError


class ModelError(CrushpyError):
    """A model call failed. `retryable`: the same request may succeed a moment later."""

    exit_code = 5
    kind = "model_error"
    retryable = False
    way_out = ""
    """The default hint."""

    def __init__(self, message: str, hint: str = "", *, status: int | None = None) -> None:
        from crushpy.security.redact import redact

        # A server may repeat what it was sent, the key included.
        super().__init__(redact(message), redact(hint) or self.way_out)
        self.status = status


class RateLimited(ModelError):
    """429. `retry_after`: seconds the provider asked us to wait, if it did."""

    kind = "rate_limited"
    retryable = True

    def __init__(
        self, message: str, hint: str = "", *, status: int | None = 429, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint, status=status)
        self.retry_after = retry_after


class Unavailable(ModelError):
    """The server cannot be reached, or answers 5xx. `retry_after`: as for RateLimited."""

    kind = "unavailable"
    retryable = True
    way_out = "Ask again in a while, or switch the model. Nothing is lost."

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint, status=status)
        self.retry_after = retry_after


class TimedOut(ModelError):
    """Nothing came for too long."""

    kind = "timeout"
    retryable = True
    way_out = "Ask again in a while, or switch the model. Nothing is lost."


class CutStream(ModelError):
    """The reply ended before its end mark, or a piece of it could not be read."""

    kind = "cut_stream"
    retryable = True
    way_out = "Ask again; nothing of the broken reply was run."


class ReplyTooLarge(ModelError):
    """The reply did not end. It is not retried: the next one would be the same."""

    kind = "reply_too_large"
    way_out = "Nothing of it was run. Ask for less at once, or switch the model."


class EmptyReply(ModelError):
    """The reply was complete and held nothing."""

    kind = "empty_reply"
    retryable = True
    way_out = "Ask again in other words, or switch the model."


class Refused(ModelError):
    """The provider's filter stopped the reply."""

    exit_code = 1
    kind = "refused"
    way_out = "Ask in other words, or switch the model."


class ContextOverflow(ModelError):
    """The request is larger than the model's window. `limit`: the window, if the error names it."""

    exit_code = 1
    kind = "overflow"

    def __init__(
        self, message: str, hint: str = "", *, status: int | None = 400, limit: int | None = None
    ) -> None:
        super().__init__(message, hint, status=status)
        self.limit = limit


class AuthenticationFailed(ModelError):
    """No key, a wrong key, or a key without the right."""

    kind = "authentication"


class BadRequest(ModelError):
    """The provider refuses the request as it is: unknown model, unsupported parameter."""

    kind = "bad_request"


MAX_ATTEMPTS = 6
MAX_RETRIES = MAX_ATTEMPTS - 1
RETRY_BASE_S = 1.0
MAX_RETRY_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 120.0
"""If a provider asks us to wait longer than this, there is no retry: the user should know."""


def retry_delay(error: ModelError, attempt: int, random: float) -> float | None:
    """Seconds to wait after the `attempt`th failure in a row (1 is the first), or None to give up.

    `random` in [0, 1) spreads clients that failed together. `CRUSHPY_RETRY_BASE` sets the first delay.
    """
    if not error.retryable or attempt >= MAX_ATTEMPTS:
        return None
    asked: float | None = getattr(error, "retry_after", None)
    if asked is not None:
        return asked if asked <= MAX_RETRY_AFTER_S else None
    longest = min(MAX_RETRY_DELAY_S, _retry_base() * 2 ** (attempt - 1))
    return longest * (0.5 + random / 2)


def _retry_base() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_RETRY_BASE"]))
    except (KeyError, ValueError):
        return RETRY_BASE_S
