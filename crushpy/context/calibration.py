"""How our own counts become the provider's tokens: what it reported against what we had counted."""

from collections.abc import Sequence

from crushpy.core.messages import Data

LOWEST, HIGHEST = 0.2, 5.0
"""No tokenizer is further from ours: a ratio beyond says that the report is about something else."""
DIGITS = 4
"""Of a ratio that is kept."""
UNCOMMON = 3.0
"""How far most tokenizers are from ours at most, either way."""
LAST = 5
"""How many replies the median looks at."""
SPREAD = 0.25
"""How far from their median replies may lie that speak of one tokenizer."""
AGREEMENT = 0.1
"""How close two implausible reports must be to be believed together."""
DISBELIEF = 0.5
"""A report below this share of the calibrated estimate of the same request is not believed."""
DISBELIEF_UNCALIBRATED = 0.2
"""The same while no ratio is known."""
NONSENSE = 0.02
"""Below this share of our count a report is as good as none, however often it comes."""
ENOUGH_GROWTH = 0.05
"""The share of a request that must be new before its ratio alone says something."""


class Report(Data, frozen=True):
    """What the provider said of one model call, and what we had counted."""

    tokens: int
    """Input, cache and output together."""
    asked: int
    """Input and cache: the request alone."""
    estimate: int
    """Our own count of the same request."""

    @property
    def ratio(self) -> float:
        return self.asked / self.estimate if self.estimate > 0 else 0.0


class Calibration(Data, frozen=True):
    """What the reports so far say of our counts."""

    ratio: float | None = None
    """Reported tokens for each one counted; None while nothing is known."""
    growth: float | None = None
    """The same of what was added lately, where that is enough to tell."""
    believed: bool = True
    """False if the last report was implausible."""
    latest: float | None = None
    """The ratio of the last report, where it is worth remembering."""
    samples: tuple[float, ...] = ()
    """Of all believed reports, the latest last."""
    restarted: bool = False
    """The last two reports agreed against all before them, which speak of another tokenizer."""

    def whole(self, tokens: int) -> int:
        """A count of ours in the provider's tokens."""
        return round(tokens * (self.ratio or 1.0))

    def added(self, tokens: int) -> int:
        """The same for what comes after the last report."""
        return round(tokens * (self.growth or self.ratio or 1.0))


UNCALIBRATED = Calibration()


def calibrate(reports: Sequence[Report], learnt: Sequence[float] = ()) -> Calibration:
    """`reports` are those of one session, the latest last; `learnt` the ratios known from before it."""
    own: list[Report] = []
    heard = {round(report.ratio, DIGITS) for report in reports}
    known = [ratio for ratio in learnt if round(ratio, DIGITS) not in heard]  # one reply is one witness
    before: Report | None = None
    believed, restarted = True, False
    for report in reports:
        believed = restarted = False
        if _makes_sense(report, _ratio_by(own) or ratio_of(known)):
            believed = True
        elif before is not None and _agree(before, report):
            believed = restarted = True
            known, own = [], [before]
        if believed:
            own.append(report)
        before = report
    samples = tuple(one.ratio for one in own if plausible(one.ratio))
    by_these = _ratio_by(own)
    ratio = by_these or ratio_of(known)
    worth = believed and by_these is not None and abs(own[-1].ratio - by_these) <= SPREAD * by_these
    return Calibration(
        ratio, _growth(own, ratio), believed, own[-1].ratio if worth else None, samples, restarted
    )


def ratio_of(samples: Sequence[float]) -> float | None:
    """The median of the latest; None if they are too few or disagree."""
    last = [sample for sample in samples if plausible(sample)][-LAST:]
    if len(last) < 2:
        return None
    middle = median(last)
    near = [sample for sample in last if abs(sample - middle) <= SPREAD * middle]
    return middle if 2 * len(near) > len(last) else None


def _ratio_by(reports: Sequence[Report]) -> float | None:
    """The ratio by a session's own reports. An uncommon one only where what was added bears it out: a report
    may be about something else than the request we know."""
    ratio = ratio_of([report.ratio for report in reports])
    if ratio is None or 1 / UNCOMMON <= ratio <= UNCOMMON:
        return ratio
    return ratio if _growth(reports, ratio) is not None else None


def median(values: Sequence[float]) -> float:
    """As `statistics.median`, whose import takes longer than all else here."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def plausible(ratio: float) -> bool:
    return LOWEST <= ratio <= HIGHEST


def _makes_sense(report: Report, ratio: float | None) -> bool:
    least = DISBELIEF_UNCALIBRATED if ratio is None else DISBELIEF * ratio
    return report.asked > 0 and report.asked >= least * report.estimate


def _agree(one: Report, other: Report) -> bool:
    low, high = sorted((one.ratio, other.ratio))
    return low >= NONSENSE and high - low <= AGREEMENT * high


def _growth(reports: Sequence[Report], ratio: float | None) -> float | None:
    """The ratio of what came between the last reports: nearer to what comes next than that of the whole,
    which also holds the system prompt and the tools."""
    if ratio is None or len(reports) < 2:
        return None
    first, last = reports[-LAST:][0], reports[-1]
    more = last.estimate - first.estimate
    if more <= 0 or more < ENOUGH_GROWTH * last.estimate:
        return None
    growth = (last.asked - first.asked) / more
    return growth if ratio / 2 <= growth <= ratio * 2 else None
