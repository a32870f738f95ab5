"""What hostile devices cost: attacks, by rules of the server, by shares of the devices.

The devices of every unit train one local update at a time, and the server averages them, as nodes
and server do in granularity `device`: limits and rules are those of `camu deploy run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from camu import __version__
from camu.arrays import sum_of_squares
from camu.config import Config, load_config
from camu.experiments.statistics import Estimate, estimate
from camu.files import read_json, write_json, write_text
from camu.learning.job import Evaluation, Job, Trained, one_update
from camu.learning.kernel import Provenance
from camu.learning.weights import Weights, weighted_mean
from camu.planning.plan import Plan
from camu.schemes import make_scheme, plans
from camu.schemes.limits import Change, RoundLimits, part_of, with_limited_weights
from camu.schemes.standing import Standing
from camu.schemes.view import Oracle
from camu.seeding import derive
from camu.simulation.result import build_trainer, run_rounds
from camu.simulation.run import Outcome, Run, Trainer
from camu.simulation.uplink import refuse
from camu.work import Progress, silent
from camu.world import World, build_world, with_data

CLIP = 2.0  # the default of `camu deploy run --clip`
NO_LIMITS = "no limits"
RULES = {  # by name: --clip and scheme.aggregation
    NO_LIMITS: (0.0, "mean"),
    "limits": (CLIP, "mean"),
    "limits, median": (CLIP, "median"),
    "limits, trimmed-mean": (CLIP, "trimmed-mean"),
    "limits, multi-krum": (CLIP, "multi-krum"),
}
ATTACKS = {  # by name: what bad devices send
    "scale": "10 times its update",
    "flip": "-5 times its update",
    "constant": "the same number for every parameter, with the median norm",
    "nan": "nan",
    "label flip": "an honest update on wrong labels",
    "claims": "-5 times its update, and it claims 10 times its samples",
    "colluding": "all send minus the mean of the honest updates, with the median norm",
    "buffers": "variances and means of batch norm far below zero",
}
WORLDS: Mapping[str, Mapping[str, object]] = {
    "14 of 20 devices have two labels": {},  # preset demo
    "all devices have two labels": {"data.noniid_devices": 20, "data.with_replacement": True},
}
HARDER = ("flip", "constant", "colluding")  # attacks in the second world
DEVICES = 20
AIMS = {1: 2.0, 4: 10.0}  # points that so many bad devices may cost
FACTOR = {"scale": 10.0, "flip": -5.0, "claims": -5.0}
CLAIMED = 10.0  # times the samples, of "claims"
BELOW = 1000.0  # of "buffers"
ROUNDS = 40
VALUES = "trust-values.json"


@dataclass(frozen=True)
class Cell:
    """What one attack costs under one rule, in points of accuracy, paired by seed."""

    world: str
    rule: str
    attack: str  # "" for honest devices
    bad: int  # of 20 devices
    accuracy: tuple[float, ...]  # in percent, by seed
    loss: Estimate  # against honest devices without limits

    @property
    def met(self) -> bool | None:
        """Whether the mean loss is within the aim; None where there is none."""
        return self.loss.mean <= AIMS[self.bad] if self.attack else None


@dataclass(frozen=True, eq=False)
class _Part:
    """What one device does in one local update of its unit."""

    unit: int
    place: int  # among the members
    start: Weights
    job: Job


@dataclass(eq=False)
class Attacked:
    """A trainer some of whose devices are hostile, and a server that limits and averages."""

    inner: Trainer
    config: Config
    bad: frozenset[int]
    attack: str
    rule: str
    wrong: Trainer | None = None  # trains on wrong labels
    limits: RoundLimits = field(default_factory=RoundLimits)
    standing: Standing = field(default_factory=Standing)

    @property
    def initial(self) -> Weights:
        """The weights that the run starts from."""
        return self.inner.initial

    @property
    def provenance(self) -> Provenance:
        """That of the honest trainer."""
        return self.inner.provenance

    @property
    def oracle(self) -> Oracle | None:
        """A server knows no exact losses."""
        return None

    def evaluate(self, weights: Weights) -> Evaluation:
        """Accuracy and loss on the test samples."""
        return self.inner.evaluate(weights)

    def evaluate_devices(
        self, weights: Weights, own: Mapping[int, Weights]
    ) -> list[tuple[float, float]]:
        """Accuracy and loss of each device."""
        return self.inner.evaluate_devices(weights, own)

    def iterate(
        self,
        start: Weights | Sequence[Weights],
        jobs: Iterable[Job],
        round_number: int,
        deliver: Callable[[int, Trained], Outcome],
    ) -> Iterator[Outcome | None]:
        """The outcome of each unit, whose members average after every local update."""
        jobs = list(jobs)
        first = [start] * len(jobs) if isinstance(start, Weights) else list(start)
        states: list[Weights | None] = list(first)
        gone: set[int] = set()  # devices that were refused in this round
        for update in range(max((job.updates for job in jobs), default=0)):
            parts = [
                _Part(number, place, state, one_update(job, device, update, state))
                for number, (job, state) in enumerate(zip(jobs, states, strict=True))
                if state is not None and update < job.updates
                for place, device in enumerate(job.members)
                if device not in gone
            ]
            used = self._used(parts, round_number)
            refused = (part for part, one in zip(parts, used, strict=True) if one is None)
            gone |= {part.job.members[0] for part in refused}
            for number in {part.unit for part in parts}:
                own = [
                    (jobs[number].weights[part.place], result)
                    for part, result in zip(parts, used, strict=True)
                    if part.unit == number
                ]
                usable = [(weight, one) for weight, one in own if one is not None]
                total = sum(weight for weight, _ in usable)
                states[number] = weighted_mean(usable) if total > 0 else None
        for number, state in enumerate(states):
            yield None if state is None else deliver(number, Trained(state, math.nan))

    def _used(self, parts: Sequence[_Part], round_number: int) -> list[Weights | None]:
        """What the server uses of each device, limited as on nodes; None: nothing."""
        clip, starts = RULES[self.rule][0], [part.start for part in parts]
        sent = self._sent(parts, round_number)
        pairs = list(zip(sent, starts, strict=True))
        found = [Change.of(one, start) for one, start in pairs]
        limits = self.limits.of(found, clip, round_number)
        used = [limits.apply(Trained(one, math.nan), start).weights for one, start in pairs]
        changes = [one.parameters - start.parameters for one, start in pairs]
        senders = [part.job.members[0] for part in parts]
        shares = self.standing.judge(senders, changes) if clip else [1.0] * len(parts)
        return [
            part_of(one, start, share) if share > 0 and not self._is_refused(one, start) else None
            for one, start, share in zip(used, starts, shares, strict=True)
        ]

    def _is_refused(self, result: Weights, start: Weights) -> bool:
        squares = sum_of_squares(result.parameters - start.parameters)
        limit = self.config.training.max_update_norm
        return refuse(squares, result.buffers - start.buffers, limit) is not None

    def _sent(self, parts: Sequence[_Part], round_number: int) -> list[Weights]:
        """What the devices send."""

        def trained_by(trainer: Trainer, own: Sequence[_Part]) -> list[Weights]:
            def copied(_: int, trained: Trained) -> Weights:
                return trained.weights.copied()

            starts, jobs = [part.start for part in own], [part.job for part in own]
            return [
                one
                for one in trainer.iterate(starts, jobs, round_number, copied)
                if one is not None
            ]

        results = trained_by(self.inner, parts) if parts else []
        places = [n for n, part in enumerate(parts) if part.job.members[0] in self.bad]
        if self.wrong is not None and places:
            others = trained_by(self.wrong, [parts[n] for n in places])
            for n, other in zip(places, others, strict=True):
                results[n] = other
        starts = [part.start for part in parts]
        return spoil(self.attack, results, starts, places) if places else results


def spoil(
    attack: str, results: Sequence[Weights], starts: Sequence[Weights], places: Sequence[int]
) -> list[Weights]:
    """The results with those at `places` as bad devices send them."""
    changes = [
        one.parameters.astype(np.float64) - start.parameters
        for one, start in zip(results, starts, strict=True)
    ]
    others = [change for n, change in enumerate(changes) if n not in places] or changes
    usual = float(np.median([np.linalg.norm(change) for change in others]))
    sent = list(results)
    for n in places:
        own, start = changes[n], starts[n]
        if attack in FACTOR:
            own = FACTOR[attack] * own
        elif attack == "constant":
            own = np.full(own.size, usual / math.sqrt(own.size))
        elif attack == "nan":
            own = np.full(own.size, np.nan)
        elif attack == "colluding":
            mean = np.mean(others, axis=0)
            own = -usual / max(float(np.linalg.norm(mean)), 1e-30) * mean
        elif attack == "buffers":
            sent[n] = replace(sent[n], buffers=start.buffers - np.float32(BELOW))
            continue
        else:  # an honest update, on wrong labels
            continue
        sent[n] = sent[n].with_parameters(start.parameters + own)
    return sent


def claimed(plan: Plan, bad: frozenset[int]) -> Plan:
    """The plan where bad devices claim more samples than they have."""
    own = [
        [
            unit.weight * share * (CLAIMED if device in bad else 1.0)
            for device, share in zip(unit.members, unit.member_weights, strict=True)
        ]
        for unit in plan.units
    ]
    everything = math.fsum(weight for unit in own for weight in unit)
    return plan.with_columns(
        weight=[math.fsum(unit) / everything for unit in own],
        member_weights=[tuple(w / math.fsum(unit) for w in unit) for unit in own],
    )


def world_of(seed: int, rounds: int, aggregation: str, name: str = next(iter(WORLDS))) -> World:
    """A world of the table, like preset `demo`; updates arrive as they are sent."""
    keys = {
        "run.seed": seed,
        "run.rounds": rounds,
        "run.eval_every": rounds,
        "run.eval_last": 5,
        "scheme.aggregation": aggregation,
        "radio.uplink": "digital",
        "machine.workers": 1,
        **WORLDS[name],
    }
    return with_data(build_world(load_config(preset="demo", overrides=keys)))


def on_wrong_labels(world: World) -> World:
    """The same world with other labels: each is as far from the last as it was from the first."""
    assert world.federation is not None
    dataset = world.federation.dataset
    targets = dataset.spec.classes - 1 - dataset.train_targets
    federation = replace(world.federation, dataset=replace(dataset, train_targets=targets))
    return replace(world, federation=federation)


def bad_devices(seed: int, count: int, devices: int) -> frozenset[int]:
    """So many devices, drawn by the seed."""
    order = derive(seed, "own-hostile").numpy().permutation(devices)
    return frozenset(order[:count].tolist())


def attacked(world: World, rule: str, attack: str, count: int) -> Run:
    """A run with so many bad devices; attack "" is none."""
    config, scheme = world.config, make_scheme(world.config)
    bad = bad_devices(world.seed, count, world.devices.count)
    plan = plans.plan(scheme, world)
    if attack == "claims":
        plan = claimed(plan, bad)
    plan = with_limited_weights(plan, RULES[rule][0])
    with ExitStack() as stack:
        wrong = None
        if attack == "label flip":
            wrong = stack.enter_context(build_trainer(on_wrong_labels(world)))
        inner = stack.enter_context(build_trainer(world))
        trainer = Attacked(inner, config, bad, attack, rule, wrong)
        run = Run.new(world, plan, trainer.initial)
        run_rounds(run, scheme, trainer)
        return run


def wanted_cells() -> list[tuple[str, str, str, int]]:
    """The world, the rule, the attack and the number of bad devices of each cell."""
    found = []
    for name, attacks in zip(WORLDS, (ATTACKS, HARDER), strict=True):
        found += [(name, rule, "", 0) for rule in RULES]
        found += [(name, rule, own, bad) for own in attacks for bad in AIMS for rule in RULES]
    return found


def compute(seeds: int, out: Path, progress: Progress = silent, rounds: int = ROUNDS) -> list[Cell]:
    """All cells, in a fixed order; runs that `out` has from before are not made again."""
    wanted, stamp = wanted_cells(), {"version": __version__, "rounds": rounds}
    known = _known(out / VALUES, stamp)
    for seed in range(seeds):
        worlds: dict[tuple[str, str], World] = {}
        for number, (name, rule, attack, bad) in enumerate(wanted):
            key, place = _key(name, rule, attack, bad, seed), (name, RULES[rule][1])
            if key not in known:
                if place not in worlds:
                    worlds[place] = world_of(seed, rounds, place[1], name)
                run = attacked(worlds[place], rule, attack, bad)
                known[key] = 100.0 * run.history().tail_score()
                write_json(out / VALUES, {**stamp, "accuracy": known})
            progress("runs", seed * len(wanted) + number + 1, seeds * len(wanted))
    cells = []
    for name, rule, attack, bad in wanted:
        honest = [known[_key(name, NO_LIMITS, "", 0, seed)] for seed in range(seeds)]
        found = tuple(known[_key(name, rule, attack, bad, seed)] for seed in range(seeds))
        lost = [best - own for best, own in zip(honest, found, strict=True)]
        cells.append(Cell(name, rule, attack, bad, found, estimate(lost)))
    return cells


def _key(*parts: str | int) -> str:
    return "; ".join(map(str, parts))


def _known(path: Path, stamp: Mapping[str, object]) -> dict[str, float]:
    """What an earlier call of this version has computed for so many rounds."""
    if not path.exists():
        return {}
    kept = read_json(path, "values of this command")
    same = isinstance(kept, dict) and stamp.items() <= kept.items()
    return dict(kept["accuracy"]) if same else {}


def write(cells: Sequence[Cell], out: Path) -> None:
    """Keep the table as trust.json and trust.md."""
    rows = [{**asdict(cell), "met": cell.met} for cell in cells]
    facts = {"version": __version__, "devices": DEVICES, "aims": AIMS, "attacks": ATTACKS}
    write_json(out / "trust.json", {**facts, "cells": rows})
    write_text(out / "trust.md", as_markdown(cells))


def as_markdown(cells: Sequence[Cell]) -> str:
    """Points that attacks cost, with 95 % intervals; bold where the mean misses the aim."""
    lines = []
    for name in WORLDS:
        shown: dict[tuple[str, int], list[str]] = {}
        for cell in cells:
            if cell.world == name:
                text = cell.loss.show(digits=1)
                row = shown.setdefault((cell.attack or "none", cell.bad), [])
                row.append(f"**{text}**" if cell.met is False else text)
        lines += [
            f"{name[0].upper()}{name[1:]}:\n",
            f"| attack | bad | {' | '.join(RULES)} |",
            "|---|---|" + "---|" * len(RULES),
            *(
                f"| {own} | {bad}/{DEVICES} | {' | '.join(row)} |"
                for (own, bad), row in shown.items()
            ),
            "",
        ]
    return "\n".join(lines)
