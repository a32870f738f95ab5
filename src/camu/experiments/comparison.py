"""A comparison of schemes on the same worlds: how good they are, and the cost of a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Generic, TypeVar

from camu.experiments.statistics import Estimate, show_score
from camu.files import to_csv
from camu.learning.metrics import Metric, find_metric
from camu.notebook import Point, html_table, line_chart
from camu.simulation.history import data_frame

Column = tuple[str, str]  # its title, and the field of a row
UNGROUPED_ROWS = 14  # a table with more rows is divided by family
# What schemes are compared at, with the field of the difference at it.
AXES = {
    "rounds": "difference",
    "joules": "joules_difference",
    "seconds": "seconds_difference",
    "megabytes": "megabytes_difference",
}


Value = TypeVar("Value", float, Estimate)


@dataclass(frozen=True)
class Figures(Generic[Value]):
    """The figures of a scheme; None where a run never got there, or its model has blown up.

    Differences are to the first scheme, paired by seed, at equal rounds, joules, seconds and
    megabytes.
    """

    scheme: str
    family: str
    final_score: Value | None
    joules: Value
    virtual_seconds: Value
    megabytes: Value
    at_equal_rounds: Value | None
    at_equal_joules: Value | None
    at_equal_seconds: Value | None
    at_equal_megabytes: Value | None
    difference: Value | None
    joules_difference: Value | None
    seconds_difference: Value | None
    megabytes_difference: Value | None
    rounds_to_target: Value | None
    joules_to_target: Value | None
    seconds_to_target: Value | None
    megabytes_to_target: Value | None
    metrics: dict[str, Value | None]  # besides the score, at the end


@dataclass(frozen=True)
class SeedRow(Figures[float]):
    """One run: a scheme on one seed's world."""

    seed: int
    best_score: float | None
    rounds: int
    weights_sha256: str


@dataclass(frozen=True)
class Row(Figures[Estimate]):
    """One scheme over all seeds."""

    reached_target: int


@dataclass(frozen=True)
class Comparison:
    """The table, with its budgets and its target, and the runs that it rests on.

    The target is None, and there are no costs of reaching it, if no default makes sense.
    """

    rows: tuple[Row, ...]
    runs: tuple[SeedRow, ...]
    baseline: str  # the scheme that differences are to
    seeds: tuple[int, ...]
    equal_rounds: int
    equal_joules: float
    equal_seconds: float
    equal_megabytes: float
    target: float | None
    metric: str  # what models are judged by
    curves: dict[str, tuple[Point, ...]]  # (round, mean score) at evaluations, by scheme

    def __repr__(self) -> str:
        best = [(row.scheme, row.at_equal_joules) for row in self.ranked("joules")]
        shown = [f"{name} {self.judged.show(score.mean)}" for name, score in best[:3] if score]
        return (
            f"Comparison({len(self.rows)} schemes, {len(self.seeds)} seeds; {self.judged.title} "
            f"at {self.equal_joules:.4g} J: {', '.join(shown)}{', …' if len(best) > 3 else ''})"
        )

    @property
    def judged(self) -> Metric:
        """What models are judged by."""
        return find_metric(self.metric)

    @property
    def heading(self) -> str:
        """What the scores are: "Accuracy in %"."""
        heading = self.judged.heading
        return heading if self.judged.higher_is_better else f"{heading}, lower is better"

    @property
    def shown_target(self) -> str:
        """The target for people; "" if there is none."""
        if self.target is None:
            return ""
        return f"{self.target:.0%}" if self.judged.share else f"{self.judged.title} {self.target:g}"

    def ranked(self, axis: str) -> list[Row]:
        """The schemes that have a score at this budget (`joules`, …), best first."""
        rows = [(row, getattr(row, f"at_equal_{axis}")) for row in self.rows]
        known = [(row, value.mean) for row, value in rows if value is not None]
        return [row for row, _ in sorted(known, key=lambda one: -self.judged.sign * one[1])]

    def best_first(self, axis: str) -> Comparison:
        """The same comparison with the best scheme at this budget in its first row."""
        ranked = self.ranked(axis)
        without = [row for row in self.rows if row not in ranked]
        return replace(self, rows=(*ranked, *without))

    @property
    def blown_up(self) -> str:
        """A sentence about schemes without a score at the end; "" if all have one."""
        lost = [row.scheme for row in self.rows if row.final_score is None]
        return f"A model has blown up and has no score: {', '.join(lost)}." if lost else ""

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)

    def run_rows(self) -> list[dict[str, Any]]:
        """A row per scheme and seed; shares are from 0 to 1."""
        rows = [asdict(run) for run in self.runs]
        return [row | row.pop("metrics") for row in rows]

    def to_frame(self) -> Any:
        """A row per scheme and seed as a pandas (or polars) data frame; shares are from 0 to 1."""
        return data_frame(self.run_rows())

    def to_csv(self) -> str:
        """A line per scheme and seed, with a head; shares are from 0 to 1."""
        first = ("scheme", "seed")
        left = (*first, "metrics")
        names = [*first, *(f.name for f in fields(SeedRow) if f.name not in left)]
        others = list(self.rows[0].metrics)
        rows = (
            [*(getattr(run, name) for name in names), *map(run.metrics.get, others)]
            for run in self.runs
        )
        return to_csv([[*names, *others], *rows])

    def to_latex(self) -> str:
        """A LaTeX tabular (booktabs) with means and 95 % intervals; shares are in %."""
        columns = [*self.score_columns(), *self.cost_columns()]
        head, judged, target = ["scheme", *(title for title, _ in columns)], self.judged, ""
        if self.target is not None:
            unit = " %" if judged.share else ""
            target = f"; target {judged.title} {judged.scale * self.target:g}{unit}"
        lines = [
            rf"% Mean and 95 % interval over {len(self.seeds)} seed(s){target}.",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(map(_latex, head)) + r" \\",
        ]
        for family, rows in self.by_family():
            lines.append(r"\midrule")
            if family:
                lines.append(rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{_latex(family)}}}}} \\")
            for row in rows:
                cells = [row.scheme, *self.cells(row, columns)]
                lines.append(" & ".join(map(_latex, cells)) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def to_markdown(self) -> str:
        """A Markdown table: scores at equal cost on every axis, and differences."""
        columns = self.equal_columns()
        head = ["scheme", *(title for title, _ in columns)]
        lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
        for family, rows in self.by_family():
            if family:
                lines.append(f"| **{family}** |" + " |" * (len(head) - 1))
            for row in rows:
                cells = [f"`{row.scheme}`", *self.cells(row, columns)]
                lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        columns = [*self.score_columns(), *self.cost_columns()]
        head = ["scheme", *(title for title, _ in columns)]
        rows = [[row.scheme, *self.cells(row, columns)] for row in self.rows]
        caption = f"{self.heading} (mean ± 95 % interval, {_count(len(self.seeds), 'seed')})"
        if self.target is not None:
            caption += f", and the cost of reaching {self.shown_target}"
        return html_table(head, rows, caption) + line_chart(
            self.curves, "rounds", self.judged.title
        )

    def by_family(self) -> list[tuple[str, list[Row]]]:
        """The rows of each family, in the order of rows; few rows are one group without a name."""
        if len(self.rows) <= UNGROUPED_ROWS:
            return [("", list(self.rows))]
        families: dict[str, list[Row]] = {}
        for row in self.rows:
            families.setdefault(row.family, []).append(row)
        return list(families.items())

    def equal_columns(self) -> list[Column]:
        """Scores at equal cost, each followed by the difference to the first scheme."""
        titles = {
            "rounds": f"at {_count(self.equal_rounds, 'round')}",
            "joules": f"at {self.equal_joules:.3g} J",
            "seconds": f"at {self.equal_seconds:.3g} s",
            "megabytes": f"at {self.equal_megabytes:.3g} MB",
        }
        versus = f"vs {self.baseline}"
        return [
            column
            for axis, difference in AXES.items()
            for column in ((titles[axis], f"at_equal_{axis}"), (versus, difference))
        ]

    def score_columns(self) -> list[Column]:
        """Scores at equal cost; of the differences, only that at equal rounds."""
        hidden = list(AXES.values())[1:]
        return [column for column in self.equal_columns() if column[1] not in hidden]

    def cost_columns(self) -> list[Column]:
        """The cost of reaching the target; none without a target."""
        if self.target is None:
            return []
        titles = ("rounds", "joules", "virtual seconds", "megabytes")
        costs = zip(titles, (f"{axis}_to_target" for axis in AXES), strict=True)
        return [("reached", "reached_target"), *costs]

    def other_columns(self) -> list[Column]:
        """The other metrics at the end; none if the score is the only one."""
        return [(find_metric(name).title, name) for name in self.rows[0].metrics]

    def cells(self, row: Row, columns: Sequence[Column]) -> list[str]:
        """A scheme in these columns, for people; shares are in %."""
        own = row.metrics
        return [
            show_score(find_metric(name), own[name])
            if name in own
            else self._cell(name, getattr(row, name))
            for _, name in columns
        ]

    def _cell(self, name: str, value: Any) -> str:
        if name == "reached_target":
            return f"{value} of {len(self.seeds)}"
        if value is None:
            return "-"
        if name.endswith("_to_target"):
            return str(value.show(digits=1 if name == "rounds_to_target" else _digits(value.mean)))
        return show_score(self.judged, value)


def _digits(cost: float) -> int:
    """Two decimals of a cost; of small models and fleets, three digits of it."""
    return 2 if cost >= 0.1 or cost <= 0 else min(9, 2 - math.floor(math.log10(cost)))


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"}
    special |= {"^": r"\textasciicircum{}", **{char: "\\" + char for char in "&%$#_{}"}}
    return "".join(special.get(char, char) for char in text)
