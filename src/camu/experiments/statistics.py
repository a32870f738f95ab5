"""Means with confidence intervals, verdicts on claims, and what a number of seeds can decide.

A claim is a number per seed with a printed sign. It is reproduced when the mean over seeds has that
sign and its 95 % interval excludes 0, and contradicted when the interval excludes 0 on the other
side. Two one-sided tests ask beside it whether any effect is smaller than a margin; both answers
are shown. Where only the second one is positive there is no effect above the margin, and where
neither is, the claim is undecided. The smallest effect that so many seeds show says how sharp the
question was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from camu.learning.metrics import Metric

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
POWER = 0.8  # chance that so many seeds show an effect
MARGIN_POINTS = 1.0
REPRODUCED, CONTRADICTED, UNDECIDED = "reproduced", "contradicted", "undecided"
NO_EFFECT = "no effect above 1 point"


def student_quantile(chance: float, df: float) -> float:
    """The value that a variable of Student's t distribution is below with this chance."""
    from scipy import stats  # deferred: it takes 0.7 s, and a single run needs none of it

    return float(stats.t.ppf(chance, df))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t).

    A single seed has no interval, and nor have two with equal values: they say nothing about the
    spread of others.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    sd: float | None = None  # of the values themselves

    def show(self, scale: float = 1.0, digits: int = 2) -> str:
        """For people: mean ± half width."""
        if self.low is None or self.high is None:
            return f"{scale * self.mean:.{digits}f}"
        half = scale * (self.high - self.low) / 2
        return f"{scale * self.mean:.{digits}f} ± {half:.{digits}f}"

    def p_value(self, tests: int = 1) -> float | None:
        """Two-sided p of the t-test against 0; `tests` as for `estimate`."""
        if self.sd is None or self.low is None:
            return None
        if self.sd == 0:
            return 0.0 if self.mean else 1.0
        from scipy import stats

        t = abs(self.mean) / (self.sd / math.sqrt(self.n))
        return min(1.0, 2 * tests * float(stats.t.sf(t, self.n - 1)))

    def p_equivalent(self, margin: float, tests: int = 1) -> float | None:
        """p of the two one-sided t-tests for an effect between -margin and margin."""
        if self.sd is None or self.low is None:
            return None
        room = margin - abs(self.mean)
        if self.sd == 0:
            return 0.0 if room > 0 else 1.0
        from scipy import stats

        t = room / (self.sd / math.sqrt(self.n))
        return min(1.0, tests * float(stats.t.sf(t, self.n - 1)))

    def equivalent(self, margin: float, tests: int = 1) -> bool:
        """Whether these tests show at 5 % an effect between -margin and margin."""
        p = self.p_equivalent(margin, tests)
        return p is not None and p < ALPHA


def show_score(metric: Metric, value: Estimate | None, digits: int = 2) -> str:
    """A score, or a difference of scores; shares in % with these digits, others with four."""
    if value is None:
        return "-"
    if metric.share:
        return value.show(100, digits)
    size = max(abs(value.mean), (value.high or 0.0) - (value.low or 0.0))
    return value.show(digits=min(6, max(0, 3 - math.floor(math.log10(size)))) if size > 0 else 0)


def estimate(values: Sequence[float], tests: int = 1) -> Estimate:
    """The mean of independent values and its interval.

    Where the values are the best of several candidates, `tests` is how many there were: the
    interval is widened (Bonferroni) so that choosing does not pass for evidence.
    """
    data = np.asarray(values, dtype=float)
    mean, n = float(data.mean()), len(data)
    if n < 2:
        return Estimate(mean, None, None, n)
    sd = float(data.std(ddof=1))
    if sd == 0 and n < 3:
        return Estimate(mean, None, None, n, sd)
    half = sd / math.sqrt(n) * student_quantile(1 - ALPHA / (2 * tests), n - 1)
    return Estimate(mean, mean - half, mean + half, n, sd)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values of a family: one below 5 % holds for the family as a whole."""
    p, order = np.asarray(p_values, dtype=float), np.argsort(p_values, kind="stable")
    steps = np.minimum(1.0, np.arange(len(p), 0, -1) * p[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted.tolist()


def chance_to_differ(mean: float, sd: float, n: int, tests: int = 1) -> float:
    """Power of the two-sided t-test at 5 % with n seeds, if this is the true mean and sd."""
    from scipy import stats

    edge = student_quantile(1 - ALPHA / (2 * tests), n - 1)
    shift = mean / sd * math.sqrt(n)
    tails = stats.nct.sf(edge, n - 1, shift), stats.nct.cdf(-edge, n - 1, shift)
    return float(np.nansum(tails))  # scipy has no number for some tails that are nearly 0


def detectable(sd: float, n: int, tests: int = 1) -> float:
    """The smallest true mean that the t-test shows in 80 % of studies with n seeds of this sd."""
    from scipy.optimize import brentq

    def short(shift: float) -> float:
        return POWER - chance_to_differ(shift / math.sqrt(n), 1.0, n, tests)

    edge = student_quantile(1 - ALPHA / (2 * tests), n - 1)
    return float(brentq(short, 0.0, 6 * edge)) * sd / math.sqrt(n)


@dataclass(frozen=True)
class Verdict:
    """One claim on one data set."""

    claim: str
    dataset: str
    statement: str
    unit: str
    mean: float
    low: float | None
    high: float | None
    n: int
    verdict: str  # reproduced, contradicted, no effect above 1 point, or undecided
    paper: float | str | None
    sd: float | None = None  # of the differences
    p: float | None = None  # two-sided, before Holm's correction
    p_equivalent: float | None = None  # of an effect within the margin, before Holm's correction
    holm: str | None = None  # the verdict after Holm's correction over the family of claims
    detectable: float | None = None  # the smallest effect that these seeds show in 80 % of studies
    average: float | None = None  # the same difference between the servers' running averages
    average_verdict: str | None = None

    @property
    def spread(self) -> str:
        """The standard deviation over seeds, for people."""
        return "" if self.sd is None else f"{self.sd:.2f}"

    @property
    def is_within(self) -> bool | None:
        """Whether the effect is shown to be within the margin; None: there is no margin."""
        return None if self.p_equivalent is None else self.p_equivalent < ALPHA

    def cells(self) -> dict[str, str]:
        """The verdict for people: the cells of a table by the title of their column."""
        measured = Estimate(self.mean, self.low, self.high, self.n).show()
        within = {None: "", True: "yes", False: "no"}[self.is_within]
        average = "" if self.average is None else f"{self.average:.2f} ({self.average_verdict})"
        return {
            "claim": self.claim,
            "data set": self.dataset,
            "verdict": self.verdict,
            "after Holm": self.holm or "",
            "measured": f"{measured} {self.unit}",
            "sd": self.spread,
            "n": str(self.n),
            "within 1 point": within,
            "detects": "" if self.detectable is None else f"{self.detectable:.2f}",
            "by server average": average,
            "paper": "" if self.paper is None else str(self.paper),
            "statement": self.statement,
        }


def judge(
    claim: str,
    dataset: str,
    statement: str,
    values: Sequence[float],
    sign: int,
    paper: float | str | None = None,
    unit: str = "points",
    tests: int = 1,
) -> Verdict:
    """The verdict on per-seed values; `tests` is how many candidates the best was chosen from."""
    found = estimate(values, tests)
    margin = MARGIN_POINTS if unit == "points" else None
    word = UNDECIDED
    if found.low is not None and found.high is not None and (found.low > 0 or found.high < 0):
        word = REPRODUCED if (found.low > 0) == (sign > 0) else CONTRADICTED
    elif margin is not None and found.equivalent(margin, tests):
        word = NO_EFFECT
    return Verdict(
        claim=claim,
        dataset=dataset,
        statement=statement,
        unit=unit,
        verdict=word,
        paper=paper,
        p=found.p_value(tests),
        p_equivalent=None if margin is None else found.p_equivalent(margin, tests),
        detectable=detectable(found.sd, found.n, tests) if found.sd else None,
        **asdict(found),
    )


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with those that remain after Holm's correction.

    The claims are one family, over all data sets; details of a claim, whose names contain @ or a
    comma (one h, one threshold, one variation), are another. Differences and equivalences are
    corrected each for itself, and a difference that is lost may leave an equivalence that is not.
    """
    found = list(verdicts)
    for detail in (False, True):
        family = [
            place
            for place, row in enumerate(found)
            if row.p is not None and ("@" in row.claim or "," in row.claim) == detail
        ]
        same = [place for place in family if found[place].p_equivalent is not None]
        differs = dict(zip(family, holm([found[i].p or 0.0 for i in family]), strict=True))
        alike = dict(zip(same, holm([found[i].p_equivalent or 0.0 for i in same]), strict=True))
        for place in family:
            row, word = found[place], UNDECIDED
            if row.verdict in (REPRODUCED, CONTRADICTED) and differs[place] < ALPHA:
                word = row.verdict
            elif alike.get(place, 1.0) < ALPHA:
                word = NO_EFFECT
            found[place] = replace(row, holm=word)
    return found


def with_averages(verdicts: Sequence[Verdict], averages: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with what the servers' running averages say about the same claims."""
    return [
        replace(row, average=other.mean, average_verdict=other.verdict)
        for row, other in zip(verdicts, averages, strict=True)
    ]
