"""What happened: one record per round, and the whole run."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.config import Config
from camu.errors import InputError
from camu.learning.chance import balanced_accuracy, chance_words
from camu.learning.metrics import Metric, find_metric, finite
from camu.notebook import html_table, line_chart
from camu.planning.carbon import Grid
from camu.simulation.ledger import JOULES, KINDS, LINKS, DeviceEnergy

_SHOWN_ROUNDS = 5
FAULTS = ("absent", "leader_failures", "outages", "lost_packets", "truncated", "refused")


@dataclass(frozen=True)
class Record:
    """One aggregation; seconds, joules and bits are totals since the start of the run.

    Attributes:
        round: number of aggregations; 0 is the state before training.
        accuracy: on the test samples, 0 to 1; None where nothing was evaluated, or where targets
            are numbers.
        loss: on the test samples; None where nothing was evaluated.
        virtual_seconds: time on the virtual clock.
        joules: energy of all devices, for `compute`, `transmit`, `receive` and `idle`; and that of
            the `base_station`, which is not part of the total.
        bits: what was sent: over the `uplink` by leaders, over the `downlink` by the base station,
            which broadcasts the model once for all units that start, and to `gather` by members to
            their leaders. None in records of earlier versions.
        units: number of updates that were aggregated.
        steps: local steps (or epochs) of their mean, weighted as they are.
        faults: number of faults in this round, by kind.
        waiting_seconds: for each unit that took part, how long it neither computed nor sent.
        metric: what the model is judged by, the first of `training.metrics`.
        metrics: the metrics besides accuracy and loss; None where the model has blown up.
        label_accuracy: accuracy of each label; None where no test sample has it, empty where
            nothing was evaluated.
        average_score: of the running average of the global model (`run.server_average`).
        launch_seconds: when its units were sent to nodes, where real arrivals are waited for.
        arrivals: these arrivals in their order: unit, seconds, staleness, weight and outcome.
        empty: number of devices whose battery is empty.
        wall_seconds: time on the wall clock, on nodes.
        epsilon: of the differential privacy of the device that has released most, at
            `training.dp_delta`; None where there is none, or nothing was evaluated.
        nodes: what happened on nodes: the devices that are `online`, and the names of those that
            were `silent`, `refused`, or that `joined` the plan.
    """

    round: int
    accuracy: float | None
    loss: float | None
    virtual_seconds: float
    joules: dict[str, float]
    units: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    waiting_seconds: tuple[float, ...] = ()
    label_accuracy: tuple[float | None, ...] = ()
    launch_seconds: float | None = None
    arrivals: tuple[dict[str, Any], ...] = ()
    empty: int = 0
    wall_seconds: float | None = None
    nodes: dict[str, Any] | None = None
    bits: dict[str, int] | None = None
    epsilon: float | None = None
    metric: str = "accuracy"
    metrics: dict[str, float | None] = field(default_factory=dict)
    average_score: float | None = None
    steps: float = 0.0

    @property
    def judged(self) -> Metric:
        """The metric that decides which model is better."""
        return find_metric(self.metric)

    @property
    def score(self) -> float | None:
        """The value of that metric; None where nothing was evaluated, its worst after a blow-up."""
        if self.accuracy is None and not self.metrics:
            return None
        known = {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}
        value = known.get(self.metric)
        return self.judged.worst if value is None else value

    def reached(self, target: float) -> bool:
        """Whether the model was found to be as good as this."""
        return self.score is not None and self.judged.reached(self.score, target)

    @property
    def total_bits(self) -> int | None:
        """All bits that were sent since the start."""
        return None if self.bits is None else sum(self.bits.values())

    @property
    def megabytes(self) -> float:
        """What was sent since the start; 0 where an earlier version counted no bits."""
        return (self.total_bits or 0) / 8e6

    @property
    def total_joules(self) -> float:
        """Energy of all devices since the start."""
        return sum(self.joules.get(kind, 0.0) for kind in KINDS)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data."""
        # Not `asdict`, which copies number by number.
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.launch_seconds is None:  # no real arrivals
            del data["launch_seconds"], data["arrivals"]
        if self.nodes is None:  # a simulation
            del data["wall_seconds"], data["nodes"]
        if self.bits is None:  # written by an earlier version
            del data["bits"]
        if self.epsilon is None:
            del data["epsilon"]
        if self.metric == "accuracy" and not self.metrics:
            del data["metric"], data["metrics"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        """The record from plain data; TypeError where a number is none."""
        spent = {f"joules.{kind}": value for kind, value in dict(data["joules"]).items()}
        for name, value in {"virtual_seconds": data["virtual_seconds"], **spent}.items():
            _check_number(name, value)
        scores = {"accuracy": data["accuracy"], **data.get("metrics", {})}
        for name, value in scores.items():
            if value is not None:
                _check_number(name, value)
        if "average_accuracy" in data:  # written by an earlier version
            data = {**data, "average_score": data["average_accuracy"]}
            del data["average_accuracy"]
        names = ("waiting_seconds", "label_accuracy", "arrivals")
        lists = {name: tuple(data.get(name, ())) for name in names}
        return cls(**{**data, **lists})


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{name} is {value}, not a finite number")


@dataclass(frozen=True)
class History:
    """A run that ended, round by round.

    Attributes:
        records: a record per round, from round 0 on.
        weights_sha256: digest of the final weights; equal digests mean equal bits.
        stopped: why the run ended: rounds, target, energy budget, batteries empty,
            interrupted, ...
        notes: what happened besides, for example that a damaged checkpoint was passed over.
        devices: what each device spent, and what is left in its battery.
    """

    records: tuple[Record, ...]
    weights_sha256: str
    stopped: str
    notes: tuple[str, ...] = ()
    devices: DeviceEnergy | None = field(default=None, compare=False)

    @property
    def evaluated(self) -> list[Record]:
        """The records of rounds in which the model was evaluated."""
        return [record for record in self.records if record.score is not None]

    @property
    def metric(self) -> Metric:
        """What the model is judged by."""
        return self.final.judged

    @property
    def final(self) -> Record:
        """The last record."""
        return self.records[-1]

    @property
    def final_score(self) -> float:
        """The metric at the last evaluation; the accuracy unless `training.metrics` says more."""
        score = self.evaluated[-1].score
        assert score is not None
        return score

    @property
    def other_metrics(self) -> dict[str, float | None]:
        """What was measured besides the score at the last evaluation."""
        last = self.evaluated[-1]
        known = {**last.metrics, **({} if last.accuracy is None else {"accuracy": last.accuracy})}
        return {name: value for name, value in known.items() if name != last.metric}

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean accuracy over the classes at the last evaluation; None where there are none."""
        return balanced_accuracy(self.evaluated[-1].label_accuracy)

    @property
    def chance(self) -> str | None:
        """A sentence if the model names one class only at the last evaluation; None otherwise."""
        last = self.evaluated[-1]
        return chance_words(last.accuracy, last.label_accuracy)

    @property
    def best_score(self) -> float:
        """The best value of the metric in all evaluations."""
        scores = [record.score for record in self.evaluated]
        return self.metric.best([score for score in scores if score is not None])

    def tail_score(self, evaluations: int = 5) -> float:
        """The mean score of the last evaluations; round 0 counts only where it is alone."""
        return float(np.mean([record.score for record in self._last(evaluations)]))

    def tail_label_accuracy(self, evaluations: int = 5) -> npt.NDArray[np.float64]:
        """The mean accuracy of each label over the last evaluations; nan: no such test sample."""
        rows = [record.label_accuracy for record in self._last(evaluations)]
        return np.asarray(np.array(rows, dtype=float).mean(axis=0))

    @property
    def average_score(self) -> float | None:
        """Score of the running average of the model at the last evaluation, if there is one."""
        return self.evaluated[-1].average_score

    @property
    def uplink_bits(self) -> int | None:
        """Bits that leaders sent to the base station; None if an earlier version wrote the run."""
        return None if self.final.bits is None else self.final.bits["uplink"]

    @property
    def downlink_bits(self) -> int | None:
        """Bits that the base station broadcast."""
        return None if self.final.bits is None else self.final.bits["downlink"]

    @property
    def gather_bits(self) -> int | None:
        """Bits that members sent to their leaders."""
        return None if self.final.bits is None else self.final.bits["gather"]

    def _last(self, evaluations: int) -> list[Record]:
        trained = [record for record in self.evaluated if record.round > 0]
        return trained[-evaluations:] or self.evaluated

    def score_within(self, key: str, budget: float) -> float | None:
        """Score after a budget of `joules`, `seconds`, `megabytes` or `rounds`.

        Interpolated between evaluations. A run that spent less has its final score. None where
        the first evaluation cost more than the budget, or the model had blown up by then.
        """
        evaluated = self.evaluated
        if not evaluated or measure(evaluated[0], key) > budget:
            return None
        return finite(float(score_at(evaluated, key, np.array([budget]))[0]))

    def rows(self) -> list[dict[str, float | int | None]]:
        """A flat dict per round: totals of seconds, joules and bits, faults, mean waiting."""
        return [
            {
                "round": record.round,
                "accuracy": record.accuracy,
                "loss": record.loss,
                **record.metrics,
                **({} if record.epsilon is None else {"epsilon": record.epsilon}),
                "virtual_seconds": record.virtual_seconds,
                "joules": record.total_joules,
                **{f"joules_{kind}": record.joules.get(kind, 0.0) for kind in JOULES},
                **{f"{link}_bits": (record.bits or {}).get(link) for link in LINKS},
                "units": record.units,
                "steps": record.steps,
                "empty": record.empty,
                "mean_waiting_seconds": (
                    sum(record.waiting_seconds) / len(record.waiting_seconds)
                    if record.waiting_seconds
                    else None
                ),
                **record.faults,
            }
            for record in self.records
        ]

    def to_frame(self) -> Any:
        """The rows as a pandas data frame, or a polars one where only polars is installed."""
        return data_frame(self.rows())

    def __repr__(self) -> str:
        final = self.final
        return (
            f"History({final.round} rounds: {self.metric.title} "
            f"{self.metric.show(self.final_score)}, {final.virtual_seconds:.4g} virtual seconds, "
            f"{final.total_joules:.4g} J; stopped by: {self.stopped})"
        )

    def _repr_html_(self) -> str:
        metric = self.metric
        scores = [(float(record.round), finite(record.score)) for record in self.records]
        curve = [(number, score) for number, score in scores if score is not None]
        shown = [
            [
                str(record.round),
                metric.show(record.score),
                f"{record.virtual_seconds:.4g}",
                f"{record.total_joules:.4g}",
                "" if record.total_bits is None else f"{record.total_bits / 8e6:.4g}",
                str(sum(record.faults.values())),
            ]
            for record in self.records[-_SHOWN_ROUNDS:]
        ]
        head = ["round", metric.title, "virtual seconds", "joules", "megabytes", "faults"]
        caption = f"The last {len(shown)} of {self.final.round} rounds; stopped by: {self.stopped}"
        chart = line_chart({metric.title: curve}, "rounds", metric.title)
        return chart + html_table(head, shown, caption)

    def co2_grams(self, config: Config) -> float | None:
        """Grams of CO2 that came with the energy of all devices; None: nothing is known of it."""
        if (grid := Grid.of(config)) is None:
            return None
        moments = [record.virtual_seconds for record in self.records]
        return grid.grams(moments, [record.total_joules for record in self.records])

    @property
    def epsilon(self) -> float | None:
        """Epsilon of the differential privacy after the last evaluation; None without any."""
        known = [record.epsilon for record in self.records if record.epsilon is not None]
        return known[-1] if known else None

    def needed_for(self, key: str, target: float) -> float | None:
        """Cost until the first evaluation at this score or better; None if there is none."""
        for record in self.evaluated:
            if record.reached(target):
                return measure(record, key)
        return None


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as a pandas data frame, or a polars one where only polars is installed."""
    for name in ("pandas", "polars"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        return library.DataFrame(list(rows))
    raise InputError("to_frame needs pandas or polars; install one of them, or use rows()")


def score_at(
    evaluated: Sequence[Record], key: str, places: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Scores at these joules, seconds, megabytes or rounds, linear between evaluations.

    Next to an evaluation at which the model had blown up it has.
    """
    known = [(measure(r, key), r.score) for r in evaluated if r.score is not None]
    x, y = np.array(known, dtype=float).T
    blown = ~np.isfinite(y)
    found = np.interp(places, x, np.where(blown, 0.0, y))
    if blown.any():
        found[np.interp(places, x, blown.astype(float)) > 0] = y[blown][0]
    return np.asarray(found)


def measure(record: Record, key: str) -> float:
    """Total `joules`, virtual `seconds`, `megabytes` or `rounds` at a record."""
    if key == "megabytes" and record.total_bits is None:
        raise InputError("megabytes: an earlier version made this run and counted no bits")
    values = {
        "joules": record.total_joules,
        "seconds": record.virtual_seconds,
        "megabytes": record.megabytes,
        "rounds": float(record.round),
    }
    if key not in values:
        raise InputError(f"{key}: measure by joules, seconds, megabytes or rounds")
    return values[key]
