"""What a comparison shows, in sentences that are computed from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from camu.experiments.comparison import Comparison, Row, SeedRow
from camu.experiments.statistics import Estimate, estimate, show_score

_NAMED = 6  # schemes in a sentence; of more, the best ones and the baseline
_BUDGETS = {"joules": ("energy", "J"), "seconds": ("time", "s")}


def conclusions(table: Comparison) -> list[str]:
    """For each budget who is best, and whether the seeds tell the best two apart."""
    return [text for axis in _BUDGETS for text in _at(table, axis)]


def _at(table: Comparison, axis: str) -> list[str]:
    """The sentences about one budget; none where fewer than two schemes have a score there."""
    ranked = table.ranked(axis)
    if len(ranked) < 2:
        return []
    word, unit = _BUDGETS[axis]
    budget = getattr(table, f"equal_{axis}")
    best = ranked[0]
    scores = [_score(table, row, axis) for row in ranked]
    named = _named(table, ranked)
    others = [f"{row.scheme} {scores[ranked.index(row)]}" for row in named[1:]]
    more = f" (best of {len(ranked)} schemes)" if len(named) < len(ranked) else ""
    first = (
        f"At equal {word}, {budget:.3g} {unit}, {best.scheme} {_reaches(table, scores[0])}"
        f"{more}, {_listed(others)}."
    )
    return [first, _gap(table, best, ranked[1], axis)]


def _named(table: Comparison, ranked: Sequence[Row]) -> list[Row]:
    """The schemes that a sentence names: all, or the best ones and the baseline."""
    if len(ranked) <= _NAMED:
        return list(ranked)
    named = list(ranked[: _NAMED - 1])
    return named + [row for row in ranked if row.scheme == table.baseline and row not in named]


def _gap(table: Comparison, best: Row, second: Row, axis: str) -> str:
    """Whether the best scheme is ahead of the next one; both ran on the same seeds."""
    if len(table.seeds) < 2:
        return "One seed says nothing about how sure that is; several give intervals."
    gap = estimate(
        [
            table.judged.sign * (own - other)
            for own, other in zip(
                _of_seeds(table.runs, best.scheme, axis),
                _of_seeds(table.runs, second.scheme, axis),
                strict=True,
            )
        ]
    )
    shown = f"{show_score(table.judged, gap, 1)}{' points' if table.judged.share else ''}"
    if _excludes_zero(gap):
        return f"It is ahead of {second.scheme} by {shown} (95 % interval)."
    return (
        f"Its lead over {second.scheme}, {shown}, is within its 95 % interval: "
        f"{len(table.seeds)} seeds do not rank the two."
    )


def _excludes_zero(gap: Estimate) -> bool:
    return gap.low is not None and gap.high is not None and (gap.low > 0 or gap.high < 0)


def _of_seeds(runs: Sequence[SeedRow], scheme: str, axis: str) -> list[float]:
    """The scores of a scheme at a budget, seed by seed; every run has one where its row has."""
    return [getattr(run, f"at_equal_{axis}") for run in runs if run.scheme == scheme]


def _score(table: Comparison, row: Row, axis: str) -> str:
    value = getattr(row, f"at_equal_{axis}")
    mean = Estimate(value.mean, None, None, value.n)
    return show_score(table.judged, mean, 1) + (" %" if table.judged.share else "")


def _reaches(table: Comparison, score: str) -> str:
    return f"reaches {table.judged.title} {score}" if not table.judged.share else f"reaches {score}"


def _listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
