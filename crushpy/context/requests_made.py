"""How large the requests of a conversation were, one after the other."""

from collections.abc import Sequence
from itertools import pairwise

from crushpy.core.messages import Data, Usage


class RequestMade(Data, frozen=True):
    """One request, as the provider reported it."""

    tokens: int
    cached: int = 0
    opens: bool = False
    """It is the first one after a fresh start."""


def requests_made(reported: Sequence[tuple[str, Usage]]) -> list[RequestMade]:
    """Requests from what was reported for each, with the session it was made in, in order."""
    before = ["", *(session for session, _ in reported)]
    return [
        RequestMade(usage.total - usage.output_tokens, usage.cache_read_tokens, last not in ("", session))
        for (last, session), (_, usage) in zip(pairwise(before), reported, strict=True)
        if usage.total
    ]
