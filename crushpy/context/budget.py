"""How full the model's window is: one answer for the status, the gauge, the checks and the inspector."""

import json

from crushpy.context.calibration import UNCALIBRATED, Calibration
from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Data

MAX_UNMARKED_SHARE = 0.03
"""Up to this share of the reading may be estimated without being marked: what was added since the report. Its
text may be of another kind than the text that the ratio was learnt from."""


class Sizes(Data, frozen=True):
    """Our own counts, in tokens."""

    fixed_tokens: int
    """System prompt and tool schemas."""
    messages: int
    """Every message of the next request."""
    added: int = 0
    """Those of them that came after the last report."""
    counted: bool = True
    """False while the vocabulary is not loaded: then these are bytes / 4 and never cause a boundary."""


class Budget(Data, frozen=True):
    """How full the window is, and how well we know that."""

    used: int
    window: int
    estimated: bool
    """Shown as `~`: an estimate, or a report and much that was added since."""
    window_known: bool
    """False if the window is a documented default; shown as `?`."""
    believed: bool = True
    """False if the provider's report was implausible and is ignored."""
    clamped: bool = False
    """The reading was above the window."""
    counted: bool = True

    @property
    def share(self) -> float:
        return self.used / self.window

    @property
    def used_pct(self) -> int:
        return self.used * 100 // self.window

    @property
    def remaining(self) -> int:
        return max(0, self.window - self.used)

    def reaches(self, threshold: float) -> bool:
        """Whether at least `threshold` is used. False for rough figures."""
        return self.counted and self.used >= threshold * self.window


def budget(
    sizes: Sizes, reported: int | None, window: int | None, calibration: Calibration = UNCALIBRATED
) -> Budget:
    """Computes how full the window is.

    `reported` are all tokens of the last model call. A believable report plus an estimate of what came since;
    without one, an estimate of everything. Estimates are our counts, converted to the provider's tokens.
    """
    from_report = reported is not None and calibration.believed
    used = guessed = calibration.scale(sizes.fixed_tokens + sizes.messages)
    if reported is not None and calibration.believed:
        guessed = calibration.scale_added(sizes.added)
        used = reported + guessed
    known = window is not None and window > 0
    size = window if window is not None and window > 0 else DEFAULT_WINDOW
    return Budget(
        used=min(used, size),
        window=size,
        estimated=guessed > MAX_UNMARKED_SHARE * used,
        window_known=known,
        believed=calibration.believed,
        clamped=used > size,
        counted=sizes.counted or from_report,
    )


def output_limit(budget: Budget, max_output_tokens: int | None) -> int | None:
    """How much output a request may ask for: never more than remains of the window."""
    room = max(1, budget.remaining)
    return room if max_output_tokens is None else min(max_output_tokens, room)


def threshold_of(value: float | str, override: float | str | None) -> float | None:
    """The share at which a session ends; None if that is switched off."""
    chosen = value if override is None else override
    return None if chosen == "off" else float(chosen)


TAG = "context_status"


def status_text(budget: Budget, moment: str = "", depth: int = 0) -> str:
    """One line of JSON in a tag. It goes with a request and is never stored. `moment` is a hint, `depth` the
    number of open branches."""
    facts: dict[str, int | str | bool] = {
        "used_pct": budget.used_pct,
        "remaining_tokens": budget.remaining,
        "context_window": budget.window,
    }
    if not budget.window_known:
        facts["window_known"] = False
    if depth:
        facts["branch_depth"] = depth
    if moment:
        facts["moment"] = moment
    return f"<{TAG}>{json.dumps(facts, separators=(',', ':'))}</{TAG}>"
