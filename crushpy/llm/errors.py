"""The errors of a model call, the same for every provider, and when to retry."""

import os
from contextlib import suppress

from crushpy.core.errors import CrushpyError


class ModelError(CrushpyError):
    """A model call failed. `retryable`: the same request may succeed a moment later."""

    exit_code = 5
    kind = "model_error"
    retryable = False
    default_hint = ""
    default_status: int | None = None

    def __init__(
        self, message: str, hint: str = "", *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        """`retry_after`: the delay in seconds that the provider asked for."""
        from crushpy.security.redact import redact

        # A server may repeat parts of the request, such as the key.
        super().__init__(redact(message), redact(hint) or self.default_hint)
        self.status = self.default_status if status is None else status
        self.retry_after = retry_after


class RateLimited(ModelError):
    """The server answered 429."""

    kind = "rate_limited"
    retryable = True
    default_status = 429


class Unavailable(ModelError):
    """The server cannot be reached, or answers 5xx."""

    kind = "unavailable"
    retryable = True
    default_hint = "Try again in a while, or switch the model. Nothing is lost."


class TimedOut(ModelError):
    """The server sent nothing for too long."""

    kind = "timeout"
    retryable = True
    default_hint = "Try again in a while, or switch the model. Nothing is lost."


class CutStream(ModelError):
    """The reply ended before its end mark, or could not be parsed."""

    kind = "cut_stream"
    retryable = True
    default_hint = "Try again; no tool call of the broken reply was run."


class ReplyTooLarge(ModelError):
    """The reply did not end. It is not retried: the next one would be the same."""

    kind = "reply_too_large"
    default_hint = "No tool call of it was run. Ask for less at once, or switch the model."


class EmptyReply(ModelError):
    """The reply was complete and empty."""

    kind = "empty_reply"
    retryable = True
    default_hint = "Rephrase the prompt, or switch the model."


class Refused(ModelError):
    """The provider's filter stopped the reply."""

    exit_code = 1
    kind = "refused"
    default_hint = "Rephrase the prompt, or switch the model."


class ContextOverflow(ModelError):
    """The request is larger than the model's window. `limit`: the window, if the error names it."""

    exit_code = 1
    kind = "overflow"
    default_status = 400

    def __init__(
        self, message: str, hint: str = "", *, status: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message, hint, status=status)
        self.limit = limit


class AuthenticationFailed(ModelError):
    """The key is missing, wrong, or lacks a permission."""

    kind = "authentication"


class BadRequest(ModelError):
    """The provider refuses the request: unknown model, unsupported parameter."""

    kind = "bad_request"


MAX_ATTEMPTS = 6
MAX_RETRIES = MAX_ATTEMPTS - 1
RETRY_BASE_S = 1.0
MAX_RETRY_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 120.0
"""If a provider asks for a longer delay, the request is not retried and the error is shown."""


def retry_delay(error: ModelError, attempt: int, random: float) -> float | None:
    """Seconds to wait after the `attempt`th failure in a row (1 is the first), or None to give up.

    `random` in [0, 1) spreads clients that failed together. `CRUSHPY_RETRY_BASE` sets the first delay.
    """
    if not error.retryable or attempt >= MAX_ATTEMPTS:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= MAX_RETRY_AFTER_S else None
    base = RETRY_BASE_S
    with suppress(KeyError, ValueError):
        base = max(0.0, float(os.environ["CRUSHPY_RETRY_BASE"]))
    return min(MAX_RETRY_DELAY_S, base * 2 ** (attempt - 1)) * (0.5 + random / 2)
