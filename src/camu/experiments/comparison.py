"""A comparison of schemes on the same worlds: accuracy, and the cost of reaching it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar

from camu.config import Config
from camu.experiments.statistics import Estimate, estimate
from camu.files import to_csv
from camu.notebook import Point, html_table, line_chart
from camu.simulation.history import History, measure

Histories = Mapping[str, Sequence[History]]  # by scheme, one per seed
Column = tuple[str, str]  # its title, and the field of a row
UNGROUPED_ROWS = 14  # a table with more rows is divided by family
# What schemes are compared at, with the field of the difference at it.
AXES = {
    "rounds": "difference",
    "joules": "joules_difference",
    "seconds": "seconds_difference",
    "megabytes": "megabytes_difference",
}


def budgets_of(config: Config) -> dict[str, float | None]:
    """The least joules and seconds of every run, where they are configured, and its rounds."""
    run = config.run
    longer = run.min_joules is not None or run.min_virtual_seconds is not None
    rounds = run.rounds if longer else None
    return {"rounds": rounds, "joules": run.min_joules, "seconds": run.min_virtual_seconds}


Value = TypeVar("Value", float, Estimate)


@dataclass(frozen=True)
class _Figures(Generic[Value]):
    """The figures of a scheme; None where a run never got there.

    Differences are to the first scheme, paired by seed, at equal rounds, joules, seconds and
    megabytes.
    """

    scheme: str
    family: str
    final_score: Value
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


@dataclass(frozen=True)
class SeedRow(_Figures[float]):
    """One run: a scheme on one seed's world."""

    seed: int
    best_score: float
    rounds: int
    weights_sha256: str


@dataclass(frozen=True)
class Row(_Figures[Estimate]):
    """One scheme over all seeds."""

    reached_target: int


@dataclass(frozen=True)
class Comparison:
    """The table, with its budgets and its target, and the runs that it rests on.

    The target is None, and there are no costs of reaching it, if no default makes sense.
    """

    rows: tuple[Row, ...]
    runs: tuple[SeedRow, ...]
    seeds: tuple[int, ...]
    equal_rounds: int
    equal_joules: float
    equal_seconds: float
    equal_megabytes: float
    target: float | None
    curves: dict[str, tuple[Point, ...]]  # (round, mean accuracy) at evaluations, by scheme

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)

    def to_csv(self) -> str:
        """A line per scheme and seed, with a head; accuracies are fractions."""
        first = ("scheme", "seed")
        names = [*first, *(f.name for f in fields(SeedRow) if f.name not in first)]
        rows = ([getattr(run, name) for name in names] for run in self.runs)
        return to_csv([names, *rows])

    def to_latex(self) -> str:
        """A LaTeX tabular (booktabs) with means and 95 % intervals; accuracies are in %."""
        columns = [*self.accuracy_columns(), *self.cost_columns()]
        head, target = ["scheme", *(title for title, _ in columns)], self.target
        lines = [
            rf"% Mean and 95 % interval over {len(self.seeds)} seed(s)"
            + ("." if target is None else f"; target accuracy {100 * target:g} %."),
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
        """A Markdown table: accuracies in % at equal cost on every axis, and differences."""
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
        columns = [*self.accuracy_columns(), *self.cost_columns()]
        head = ["scheme", *(title for title, _ in columns)]
        rows = [[row.scheme, *self.cells(row, columns)] for row in self.rows]
        caption = f"Accuracy in % (mean ± 95 % interval, {_count(len(self.seeds), 'seed')})"
        if self.target is not None:
            caption += f", and the cost of reaching {self.target:.0%}"
        return html_table(head, rows, caption) + line_chart(self.curves, "rounds", "accuracy")

    def by_family(self) -> list[tuple[str, list[Row]]]:
        """The rows of each family, in the order of rows; few rows are one group without a name."""
        if len(self.rows) <= UNGROUPED_ROWS:
            return [("", list(self.rows))]
        families: dict[str, list[Row]] = {}
        for row in self.rows:
            families.setdefault(row.family, []).append(row)
        return list(families.items())

    def equal_columns(self) -> list[Column]:
        """Accuracies at equal cost, each followed by the difference to the first scheme."""
        titles = {
            "rounds": f"at {_count(self.equal_rounds, 'round')}",
            "joules": f"at {self.equal_joules:.3g} J",
            "seconds": f"at {self.equal_seconds:.3g} s",
            "megabytes": f"at {self.equal_megabytes:.3g} MB",
        }
        versus = f"vs {self.rows[0].scheme}"
        return [
            column
            for axis, difference in AXES.items()
            for column in ((titles[axis], f"at_equal_{axis}"), (versus, difference))
        ]

    def accuracy_columns(self) -> list[Column]:
        """Accuracies at equal cost; of the differences, only that at equal rounds."""
        hidden = list(AXES.values())[1:]
        return [column for column in self.equal_columns() if column[1] not in hidden]

    def cost_columns(self) -> list[Column]:
        """The cost of reaching the target; none without a target."""
        if self.target is None:
            return []
        titles = ("rounds", "joules", "virtual seconds", "megabytes")
        costs = zip(titles, (f"{axis}_to_target" for axis in AXES), strict=True)
        return [("reached", "reached_target"), *costs]

    def cells(self, row: Row, columns: Sequence[Column]) -> list[str]:
        """A scheme in these columns, for people; accuracies are in %."""
        return [self._cell(name, getattr(row, name)) for _, name in columns]

    def _cell(self, name: str, value: Any) -> str:
        if name == "reached_target":
            return f"{value} of {len(self.seeds)}"
        if value is None:
            return "-"
        if name.endswith("_to_target"):
            return str(value.show(digits=1 if name == "rounds_to_target" else 2))
        return str(value.show(100))


def tabulate(
    histories: Histories,
    seeds: Sequence[int],
    target: float | None = None,
    families: Mapping[str, str] | None = None,
    budgets: Mapping[str, float | None] | None = None,
) -> Comparison:
    """The comparison of a set of histories; the first scheme is the baseline.

    Budgets that are not given are the least that any run spent, so that every run got that far. A
    run that ended before a given budget counts with its final accuracy. The target defaults to the
    accuracy that the weakest run still reached, if that is more than every run had before training;
    otherwise there is no target.
    """
    everyone = [history for own in histories.values() for history in own]
    at = {
        axis: (budgets or {}).get(axis) or min(measure(one.final, axis) for one in everyone)
        for axis in AXES
    }
    if target is None:
        target = _default_target(everyone)
    baseline = next(iter(histories.values()))
    runs = {
        name: [
            SeedRow(
                scheme=name,
                family=(families or {}).get(name, ""),
                seed=seed,
                **_figures(history, first, at, target),
            )
            for seed, history, first in zip(seeds, own, baseline, strict=True)
        ]
        for name, own in histories.items()
    }
    return Comparison(
        rows=tuple(_row(own, number == 0) for number, own in enumerate(runs.values())),
        runs=tuple(run for own in runs.values() for run in own),
        seeds=tuple(seeds),
        equal_rounds=int(at["rounds"]),
        equal_joules=at["joules"],
        equal_seconds=at["seconds"],
        equal_megabytes=at["megabytes"],
        target=target,
        curves={name: _curve(own) for name, own in histories.items()},
    )


def _default_target(histories: Sequence[History]) -> float | None:
    """The whole percentage that every run reached; None if an untrained model has it already."""
    target = int(100 * min(history.best_score for history in histories)) / 100
    untrained = [history.records[0].accuracy or 0.0 for history in histories]
    return target if target > max(untrained) else None


def _figures(
    history: History, baseline: History, budgets: Mapping[str, float], target: float | None
) -> dict[str, Any]:
    """The figures of a run, beside the first scheme's run with the same seed."""
    found = {
        "final_score": history.final_score,
        "best_score": history.best_score,
        "rounds": history.final.round,
        "joules": history.final.total_joules,
        "virtual_seconds": history.final.virtual_seconds,
        "megabytes": measure(history.final, "megabytes"),
        "weights_sha256": history.weights_sha256,
    }
    for axis, budget in budgets.items():
        own, first = (one.score_within(axis, budget) for one in (history, baseline))
        found[f"at_equal_{axis}"] = own
        found[AXES[axis]] = None if own is None or first is None else own - first
        found[f"{axis}_to_target"] = None if target is None else history.needed_for(axis, target)
    return found


def _row(own: Sequence[SeedRow], is_first: bool) -> Row:
    """The means over seeds; a scheme has no difference to itself.

    A mean needs a value of every run: leaving runs out would flatter the scheme.
    """
    means: dict[str, Any] = {}
    for name in [field.name for field in fields(_Figures)][2:]:
        values = [getattr(run, name) for run in own]
        missing = None in values or (is_first and name in AXES.values())
        means[name] = None if missing else estimate(values)
    reached = sum(run.rounds_to_target is not None for run in own)
    return Row(own[0].scheme, own[0].family, reached_target=reached, **means)


def _curve(own: Sequence[History]) -> tuple[Point, ...]:
    """Mean accuracy at the evaluations that all runs have."""
    known: dict[int, list[float]] = {}
    for history in own:
        for record in history.evaluated:
            if record.accuracy is not None:
                known.setdefault(record.round, []).append(record.accuracy)
    return tuple(
        (float(number), sum(values) / len(values))
        for number, values in sorted(known.items())
        if len(values) == len(own)
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"}
    special |= {"^": r"\textasciicircum{}", **{char: "\\" + char for char in "&%$#_{}"}}
    return "".join(special.get(char, char) for char in text)
