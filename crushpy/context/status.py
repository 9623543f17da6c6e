"""The text that tells the model how full its window is."""

import json

from crushpy.context.budget import Budget

TAG = "context_status"


def status_text(budget: Budget, moment: str = "") -> str:
    """One line of JSON in a tag. It goes with a request and is never stored. `moment` is a hint."""
    facts: dict[str, int | str | bool] = {
        "used_pct": budget.used_pct,
        "remaining_tokens": budget.remaining,
        "context_window": budget.window,
    }
    if not budget.window_known:
        facts["window_known"] = False
    if moment:
        facts["moment"] = moment
    return f"<{TAG}>{json.dumps(facts, separators=(',', ':'))}</{TAG}>"
