"""The verdict on a claim: a number per seed with a printed sign.

A claim is reproduced when the mean over seeds has that sign and its 95 % interval excludes 0, and
contradicted when the interval excludes 0 on the other side. Otherwise two one-sided tests ask
whether any effect is smaller than a margin; if so there is no effect above it, and if not the claim
is undecided, with the number of seeds that would probably decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from camu.experiments.statistics import ALPHA, Estimate, estimate, holm, seeds_to_decide

MARGIN_POINTS = 1.0
REPRODUCED, CONTRADICTED, UNDECIDED = "reproduced", "contradicted", "undecided"
NO_EFFECT = "no effect above 1 point"


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
    holm: str | None = None  # the verdict after Holm's correction over the family of claims
    seeds_needed: int | None = None  # to decide with a chance of 80 %; None: decided, or over 1000
    average: float | None = None  # the same difference between the servers' running averages
    average_verdict: str | None = None

    @property
    def measured(self) -> str:
        """Mean ± half the width of the interval, for people."""
        return Estimate(self.mean, self.low, self.high, self.n).show()

    @property
    def spread(self) -> str:
        """The standard deviation over seeds, for people."""
        return "" if self.sd is None else f"{self.sd:.2f}"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)


def judge(
    claim: str,
    dataset: str,
    statement: str,
    values: Sequence[float],
    sign: int,
    paper: float | str | None,
    unit: str = "points",
    tests: int = 1,
) -> Verdict:
    """The verdict on per-seed values; `tests` is how many candidates the best was chosen from."""
    found = estimate(values, tests)
    margin = MARGIN_POINTS if unit == "points" else None
    word = _word(found, sign)
    if word == UNDECIDED and margin is not None and found.equivalent(margin, tests):
        word = NO_EFFECT
    needed = None
    if word == UNDECIDED and found.sd is not None:
        needed = seeds_to_decide(found.mean, found.sd, margin)
    return Verdict(
        claim=claim,
        dataset=dataset,
        statement=statement,
        unit=unit,
        mean=found.mean,
        low=found.low,
        high=found.high,
        n=found.n,
        verdict=word,
        paper=paper,
        sd=found.sd,
        p=found.p_value(tests),
        seeds_needed=needed,
    )


def _word(found: Estimate, sign: int) -> str:
    if found.low is None or found.high is None:
        return UNDECIDED
    if (found.low > 0 and sign > 0) or (found.high < 0 and sign < 0):
        return REPRODUCED
    if (found.low > 0 and sign < 0) or (found.high < 0 and sign > 0):
        return CONTRADICTED
    return UNDECIDED


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with those that remain after Holm's correction.

    The claims are one family, over all data sets; details of a claim, whose names contain @ or a
    comma (one h, one threshold, one variation), are another.
    """
    found = list(verdicts)
    for detail in (False, True):
        family = [
            (place, row.p)
            for place, row in enumerate(found)
            if row.p is not None and _is_detail(row) == detail
        ]
        for (place, _), p in zip(family, holm([p for _, p in family]), strict=True):
            row = found[place]
            lost = p >= ALPHA and row.verdict in (REPRODUCED, CONTRADICTED)
            found[place] = replace(row, holm=UNDECIDED if lost else row.verdict)
    return found


def _is_detail(row: Verdict) -> bool:
    return "@" in row.claim or "," in row.claim


def beside(verdicts: Sequence[Verdict], averages: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with what the servers' running averages say about the same claims."""
    return [
        replace(row, average=other.mean, average_verdict=other.verdict)
        for row, other in zip(verdicts, averages, strict=True)
    ]
