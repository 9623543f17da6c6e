"""When to ask again after a failed model call. Pure policy: the engine does the waiting."""

import os

from crushpy.llm.errors import ModelError

MAX_ATTEMPTS = 6
MAX_RETRIES = MAX_ATTEMPTS - 1
BASE = 1.0
CAP = 30.0
PATIENCE = 120.0
"""A provider that asks us to wait longer than this gets no further attempt: the user should know."""


def delay(error: ModelError, attempt: int, random: float) -> float | None:
    """Seconds to wait after the `attempt`th failure in a row (1 is the first), or None to give up.

    `random` in [0, 1) spreads clients that failed together. `CRUSHPY_RETRY_BASE` sets the first delay.
    """
    if not error.retryable or attempt >= MAX_ATTEMPTS:
        return None
    asked: float | None = getattr(error, "retry_after", None)
    if asked is not None:
        return asked if asked <= PATIENCE else None
    longest = min(CAP, _base() * 2 ** (attempt - 1))
    return longest * (0.5 + random / 2)


def _base() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_RETRY_BASE"]))
    except (KeyError, ValueError):
        return BASE
