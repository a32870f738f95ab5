"""A comparison of schemes on the same worlds: accuracy, and the cost of reaching it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from camu.config import Config
from camu.experiments.statistics import Estimate, estimate
from camu.notebook import Point, html_table, line_chart
from camu.simulation.history import History

Histories = Mapping[str, Sequence[History]]  # by scheme, one per seed
UNGROUPED_ROWS = 14  # a table with more rows is divided by family


@dataclass(frozen=True)
class Budgets:
    """What schemes are compared at; None: the least that any run spent."""

    rounds: int | None = None
    joules: float | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, config: Config) -> Budgets:
        """The least joules and seconds of every run, where they are configured, and its rounds."""
        run = config.run
        longer = run.min_joules is not None or run.min_virtual_seconds is not None
        rounds = run.rounds if longer else None
        return cls(rounds, run.min_joules, run.min_virtual_seconds)


@dataclass(frozen=True)
class SeedRow:
    """One run: a scheme on one seed's world; None where it never got there.

    Differences are to the first scheme on the same seed, at equal rounds, joules and seconds.
    """

    scheme: str
    family: str
    seed: int
    final_accuracy: float
    best_accuracy: float
    rounds: int
    joules: float
    virtual_seconds: float
    at_equal_rounds: float | None
    at_equal_joules: float | None
    at_equal_seconds: float | None
    difference: float | None
    joules_difference: float | None
    seconds_difference: float | None
    rounds_to_target: float | None
    joules_to_target: float | None
    seconds_to_target: float | None
    weights_sha256: str


@dataclass(frozen=True)
class Row:
    """One scheme over all seeds; None where a run never got there.

    Differences are to the first scheme, paired by seed, at equal rounds, joules and seconds.
    """

    scheme: str
    family: str
    final_accuracy: Estimate
    at_equal_rounds: Estimate | None
    difference: Estimate | None
    at_equal_joules: Estimate | None
    joules_difference: Estimate | None
    at_equal_seconds: Estimate | None
    seconds_difference: Estimate | None
    joules: Estimate
    virtual_seconds: Estimate
    rounds_to_target: Estimate | None
    joules_to_target: Estimate | None
    seconds_to_target: Estimate | None
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
    target_accuracy: float | None
    curves: dict[str, tuple[Point, ...]]  # (round, mean accuracy) at evaluations, by scheme

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)

    def to_csv(self) -> str:
        """A line per scheme and seed, with a head; accuracies are fractions."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [field.name for field in fields(SeedRow)]
        writer.writerow(names)
        for run in self.runs:
            values = (getattr(run, name) for name in names)
            writer.writerow(["" if value is None else value for value in values])
        return text.getvalue()

    def to_latex(self) -> str:
        """A LaTeX tabular (booktabs) with means and 95 % intervals; accuracies are in %."""
        head = ["scheme", *self.accuracy_columns(), *self.cost_columns()]
        target = self.target_accuracy
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
                cells = [row.scheme, *self.accuracy_cells(row), *self.cost_cells(row)]
                lines.append(" & ".join(map(_latex, cells)) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def to_markdown(self) -> str:
        """A Markdown table: accuracy in % at equal rounds, joules and seconds, and differences."""
        head = ["scheme", *(title for title, _ in self.equal_columns())]
        lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
        for family, rows in self.by_family():
            if family:
                lines.append(f"| **{family}** |" + " |" * (len(head) - 1))
            for row in rows:
                cells = [f"`{row.scheme}`", *self.equal_cells(row)]
                lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        head = ["scheme", *self.accuracy_columns(), *self.cost_columns()]
        rows = [[r.scheme, *self.accuracy_cells(r), *self.cost_cells(r)] for r in self.rows]
        caption = f"Accuracy in % (mean ± 95 % interval, {_count(len(self.seeds), 'seed')})"
        if self.target_accuracy is not None:
            caption += f", and the cost of reaching {self.target_accuracy:.0%}"
        return html_table(head, rows, caption) + line_chart(self.curves, "rounds", "accuracy")

    def by_family(self) -> list[tuple[str, list[Row]]]:
        """The rows of each family, in the order of rows; few rows are one group without a name."""
        if len(self.rows) <= UNGROUPED_ROWS:
            return [("", list(self.rows))]
        families: dict[str, list[Row]] = {}
        for row in self.rows:
            families.setdefault(row.family, []).append(row)
        return list(families.items())

    def equal_columns(self) -> list[tuple[str, str]]:
        """Title and field of the accuracies at equal rounds, joules and seconds, each followed by
        the difference to the first scheme."""
        versus = f"vs {self.rows[0].scheme}"
        columns = []
        for title, name, difference in (
            (f"at {_count(self.equal_rounds, 'round')}", "at_equal_rounds", "difference"),
            (f"at {self.equal_joules:.3g} J", "at_equal_joules", "joules_difference"),
            (f"at {self.equal_seconds:.3g} s", "at_equal_seconds", "seconds_difference"),
        ):
            columns += [(title, name), (versus, difference)]
        return columns

    def equal_cells(self, row: Row) -> list[str]:
        """Accuracies and differences of a scheme in %, as `equal_columns` names them."""
        return [_show(getattr(row, name), 100) for _, name in self.equal_columns()]

    def accuracy_columns(self) -> list[str]:
        """The titles of the accuracy columns."""
        return [
            f"at {_count(self.equal_rounds, 'round')}",
            f"vs {self.rows[0].scheme}",
            f"at {self.equal_joules:.3g} J",
            f"at {self.equal_seconds:.3g} s",
        ]

    def accuracy_cells(self, row: Row) -> list[str]:
        """Accuracies of a scheme in %, as `accuracy_columns` names them."""
        values = (row.at_equal_rounds, row.difference, row.at_equal_joules, row.at_equal_seconds)
        return [_show(value, 100) for value in values]

    def cost_columns(self) -> list[str]:
        """The titles of the columns about reaching the target; none without a target."""
        if self.target_accuracy is None:
            return []
        return ["reached", "rounds", "joules", "virtual seconds"]

    def cost_cells(self, row: Row) -> list[str]:
        """The cost of reaching the target, as `cost_columns` names it."""
        if self.target_accuracy is None:
            return []
        return [
            f"{row.reached_target} of {len(self.seeds)}",
            _show(row.rounds_to_target, 1, 1),
            _show(row.joules_to_target),
            _show(row.seconds_to_target),
        ]


def tabulate(
    histories: Histories,
    seeds: Sequence[int],
    target_accuracy: float | None = None,
    families: Mapping[str, str] | None = None,
    budgets: Budgets | None = None,
) -> Comparison:
    """The comparison of a set of histories; the first scheme is the baseline.

    Budgets that are not given are the least that any run spent, so that every run got that far. A
    run that ended before a given budget counts with its final accuracy. The target defaults to the
    accuracy that the weakest run still reached, if that is more than every run had before training;
    otherwise there is no target.
    """
    everyone = [history for own in histories.values() for history in own]
    given = budgets or Budgets()
    at = {
        "rounds": given.rounds or min(history.final.round for history in everyone),
        "joules": given.joules or min(history.final.total_joules for history in everyone),
        "seconds": given.seconds or min(history.final.virtual_seconds for history in everyone),
    }
    if target_accuracy is None:
        target_accuracy = _default_target(everyone)
    families = families or {}
    first = [_at(history, at) for history in next(iter(histories.values()))]
    runs = [
        _seed_row(name, families.get(name, ""), seed, history, at, base, target_accuracy)
        for name, own in histories.items()
        for seed, history, base in zip(seeds, own, first, strict=True)
    ]
    by_scheme = {name: [run for run in runs if run.scheme == name] for name in histories}
    rows = [_row(own, own is by_scheme[next(iter(by_scheme))]) for own in by_scheme.values()]
    curves = {name: _curve(own) for name, own in histories.items()}
    return Comparison(
        tuple(rows),
        tuple(runs),
        tuple(seeds),
        int(at["rounds"]),
        at["joules"],
        at["seconds"],
        target_accuracy,
        curves,
    )


def _at(history: History, budgets: Mapping[str, float]) -> dict[str, float | None]:
    """The accuracy of a run at each budget."""
    return {key: history.accuracy_within(key, value) for key, value in budgets.items()}


def _default_target(histories: Sequence[History]) -> float | None:
    """The whole percentage that every run reached; None if an untrained model has it already."""
    target = int(100 * min(history.best_accuracy for history in histories)) / 100
    untrained = [history.records[0].accuracy or 0.0 for history in histories]
    return target if target > max(untrained) else None


def _seed_row(
    scheme: str,
    family: str,
    seed: int,
    history: History,
    budgets: Mapping[str, float],
    baseline: Mapping[str, float | None],
    target: float | None,
) -> SeedRow:
    own = _at(history, budgets)

    def cost(key: str) -> float | None:
        return None if target is None else history.needed_for(key, target)

    def difference(key: str) -> float | None:
        here, there = own[key], baseline[key]
        return None if here is None or there is None else here - there

    return SeedRow(
        scheme=scheme,
        family=family,
        seed=seed,
        final_accuracy=history.final_accuracy,
        best_accuracy=history.best_accuracy,
        rounds=history.final.round,
        joules=history.final.total_joules,
        virtual_seconds=history.final.virtual_seconds,
        at_equal_rounds=own["rounds"],
        at_equal_joules=own["joules"],
        at_equal_seconds=own["seconds"],
        difference=difference("rounds"),
        joules_difference=difference("joules"),
        seconds_difference=difference("seconds"),
        rounds_to_target=cost("rounds"),
        joules_to_target=cost("joules"),
        seconds_to_target=cost("seconds"),
        weights_sha256=history.weights_sha256,
    )


def _row(own: Sequence[SeedRow], is_first: bool) -> Row:
    def over_seeds(name: str) -> Estimate | None:
        return _all([getattr(run, name) for run in own])

    def difference(name: str) -> Estimate | None:
        return None if is_first else over_seeds(name)

    return Row(
        scheme=own[0].scheme,
        family=own[0].family,
        final_accuracy=estimate([run.final_accuracy for run in own]),
        at_equal_rounds=over_seeds("at_equal_rounds"),
        difference=difference("difference"),
        at_equal_joules=over_seeds("at_equal_joules"),
        joules_difference=difference("joules_difference"),
        at_equal_seconds=over_seeds("at_equal_seconds"),
        seconds_difference=difference("seconds_difference"),
        joules=estimate([run.joules for run in own]),
        virtual_seconds=estimate([run.virtual_seconds for run in own]),
        rounds_to_target=over_seeds("rounds_to_target"),
        joules_to_target=over_seeds("joules_to_target"),
        seconds_to_target=over_seeds("seconds_to_target"),
        reached_target=sum(run.rounds_to_target is not None for run in own),
    )


def _all(values: Sequence[float | None]) -> Estimate | None:
    """The estimate if every run has a value: leaving runs out would flatter the scheme."""
    known = [value for value in values if value is not None]
    return estimate(known) if len(known) == len(values) else None


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


def _show(value: Estimate | None, scale: float = 1.0, digits: int = 2) -> str:
    return "-" if value is None else value.show(scale, digits)


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"}
    special |= {"^": r"\textasciicircum{}", **{char: "\\" + char for char in "&%$#_{}"}}
    return "".join(special.get(char, char) for char in text)
