"""How full the model's window is: one answer for the status, the gauge, the checks and the inspector.

Our own token counts are converted into the provider's by comparing its reports with our counts.
"""

from collections.abc import Sequence

import msgspec

from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Data

MIN_RATIO, MAX_RATIO = 0.2, 5.0
"""No tokenizer differs more from ours: a ratio outside means that the report is about something else."""
RATIO_DIGITS = 4
MAX_COMMON_RATIO = 3.0
"""Most tokenizers differ from ours by less than this factor."""
MEDIAN_REPORTS = 5
"""The median is taken over this many replies."""
MAX_RATIO_SPREAD = 0.25
"""Replies of one tokenizer lie this close to their median."""
MAX_REPORT_DIFFERENCE = 0.1
"""How close two implausible reports must be to be believed together."""
MIN_BELIEVED_SHARE = 0.5
"""A report below this share of the calibrated estimate of the same request is not believed."""
MIN_BELIEVED_SHARE_UNCALIBRATED = 0.2
"""The same while no ratio is known."""
MIN_REPORTED_SHARE = 0.02
"""A report below this share of our count is ignored, however often it is repeated."""
MIN_GROWTH_SHARE = 0.05
"""The share of a request that must be new before its ratio alone is meaningful."""


class Report(Data, frozen=True):
    """The provider's figures for one model call, and our own count."""

    asked: int
    """Input and cache: the request alone."""
    estimate: int
    """Our own count of the same request."""

    @property
    def ratio(self) -> float:
        return self.asked / self.estimate if self.estimate > 0 else 0.0


class Calibration(Data, frozen=True):
    """The relation of the reports so far to our counts."""

    ratio: float | None = None
    """Reported tokens for each one counted; None while nothing is known."""
    growth: float | None = None
    """The same for recent additions; None if they are too small to tell."""
    believed: bool = True
    """False if the last report was implausible."""
    latest: float | None = None
    """The ratio of the last report; None if it is not worth storing."""
    samples: tuple[float, ...] = ()
    """Of all believed reports, the latest last."""
    restarted: bool = False
    """The last two reports agree with each other but not with earlier ones: the tokenizer changed."""

    def scale(self, tokens: int) -> int:
        """A count of ours in the provider's tokens."""
        return round(tokens * (self.ratio or 1.0))

    def scale_added(self, tokens: int) -> int:
        """The same for what comes after the last report."""
        return round(tokens * (self.growth or self.ratio or 1.0))


UNCALIBRATED = Calibration()


def calibrate(reports: Sequence[Report], learnt: Sequence[float] = ()) -> Calibration:
    """`reports` are those of one session, the latest last; `learnt` the ratios known from before it."""
    own: list[Report] = []
    heard = {round(report.ratio, RATIO_DIGITS) for report in reports}
    known = [ratio for ratio in learnt if round(ratio, RATIO_DIGITS) not in heard]  # each reply counts once
    before: Report | None = None
    believed, restarted = True, False
    for report in reports:
        ratio = _ratio_by(own) or ratio_of(known)
        least = MIN_BELIEVED_SHARE_UNCALIBRATED if ratio is None else MIN_BELIEVED_SHARE * ratio
        believed, restarted = report.asked > 0 and report.asked >= least * report.estimate, False
        if not believed and before is not None:
            low, high = sorted((before.ratio, report.ratio))
            if low >= MIN_REPORTED_SHARE and high - low <= MAX_REPORT_DIFFERENCE * high:
                believed = restarted = True
                known, own = [], [before]
        if believed:
            own.append(report)
        before = report
    samples = tuple(measured.ratio for measured in own if plausible(measured.ratio))
    by_these = _ratio_by(own)
    ratio = by_these or ratio_of(known)
    worth = believed and by_these is not None and abs(own[-1].ratio - by_these) <= MAX_RATIO_SPREAD * by_these
    return Calibration(
        ratio, _growth(own, ratio), believed, own[-1].ratio if worth else None, samples, restarted
    )


def ratio_of(samples: Sequence[float]) -> float | None:
    """The median of the latest; None if they are too few or disagree."""
    last = [sample for sample in samples if plausible(sample)][-MEDIAN_REPORTS:]
    if len(last) < 2:
        return None
    middle = median(last)
    near = [sample for sample in last if abs(sample - middle) <= MAX_RATIO_SPREAD * middle]
    return middle if 2 * len(near) > len(last) else None


def _ratio_by(reports: Sequence[Report]) -> float | None:
    """The ratio by a session's own reports. An uncommon ratio must be confirmed by the growth: a report may
    be about something other than the request we know."""
    ratio = ratio_of([report.ratio for report in reports])
    if ratio is None or 1 / MAX_COMMON_RATIO <= ratio <= MAX_COMMON_RATIO:
        return ratio
    return ratio if _growth(reports, ratio) is not None else None


def median(values: Sequence[float]) -> float:
    """Like `statistics.median`, whose import is slow."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def plausible(ratio: float) -> bool:
    return MIN_RATIO <= ratio <= MAX_RATIO


def _growth(reports: Sequence[Report], ratio: float | None) -> float | None:
    """The ratio of what was added between the last reports. It predicts additions better than the ratio of
    the whole request, which includes the system prompt and the tools."""
    if ratio is None or len(reports) < 2:
        return None
    first, last = reports[-MEDIAN_REPORTS:][0], reports[-1]
    more = last.estimate - first.estimate
    if more <= 0 or more < MIN_GROWTH_SHARE * last.estimate:
        return None
    growth = (last.asked - first.asked) / more
    return growth if ratio / 2 <= growth <= ratio * 2 else None


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

    @property
    def words(self) -> str:
        """How full it is: `~` marks an estimate, `?` an unknown window."""
        about, unknown = ("~" if self.estimated else ""), ("" if self.window_known else "?")
        return f"{about}{self.used:,} of {self.window:,}{unknown} tokens ({about}{self.used_pct}%)"

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
    believed = reported if calibration.believed else None
    used = guessed = calibration.scale(sizes.fixed_tokens + sizes.messages)
    if believed is not None:
        guessed = calibration.scale_added(sizes.added)
        used = believed + guessed
    size = window or DEFAULT_WINDOW
    return Budget(
        used=min(used, size),
        window=size,
        estimated=guessed > MAX_UNMARKED_SHARE * used,
        window_known=bool(window),
        believed=calibration.believed,
        clamped=used > size,
        counted=sizes.counted or believed is not None,
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


def status_text(budget: Budget, moment: str = "", depth: int = 0, budget_left: str = "") -> str:
    """One line of JSON in a tag. It goes with a request and is never stored. `moment` is a hint, `depth` the
    number of open branches, `budget_left` the money or tokens that may still be spent."""
    facts: dict[str, int | str | bool] = {
        "used_pct": budget.used_pct,
        "remaining_tokens": budget.remaining,
        "context_window": budget.window,
    }
    if not budget.window_known:
        facts["window_known"] = False
    more = {"branch_depth": depth, "budget_left": budget_left, "moment": moment}
    facts |= {name: value for name, value in more.items() if value}
    return f"<{TAG}>{msgspec.json.encode(facts).decode()}</{TAG}>"
