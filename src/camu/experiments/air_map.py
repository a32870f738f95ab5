"""The map of the air: where over-the-air aggregation is ahead of digital uplinks, and in what.

In each world of the map all schemes take the same local steps. The budgets of a world are what some
rounds of one digital scheme cost there: joules, seconds, and hertz times seconds of the uplink.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from camu.config import Config
from camu.errors import InputError
from camu.experiments.claims import accuracy_around
from camu.experiments.design import DATASETS, LEARNING_RATES
from camu.experiments.scheduler import Executor, FinishedRun, study_config
from camu.experiments.statistics import MARGIN_POINTS, Estimate, estimate
from camu.experiments.tables import air_page
from camu.files import write_json, write_text
from camu.planning.plan import Plan
from camu.schemes import make_scheme, plans
from camu.schemes.variants import read_variants
from camu.simulation.dry_run import round_cost
from camu.world import build_world

NOISE_DBM = (-110.0, -90.0, -70.0, -50.0)
DEVICES = (10, 30, 100)
BANDWIDTHS_HZ = (1e5, 1e6, 1e7)
SAMPLES = 200  # per device
STEPS = 5  # local updates per round, of every scheme
DIGITAL = (f"local-sgd@local_updates={STEPS}", f"fedpaq@share=1@local_updates={STEPS}")
OVER_THE_AIR = (f"cotaf@local_updates={STEPS}", f"least-error-air@local_updates={STEPS}")
BUDGETS = ("joules", "seconds", "hertz seconds")
ROUNDS = 3  # of the first digital scheme: the budgets
MOST_ROUNDS = 40  # of any scheme, also where its budget would buy more
EVALUATIONS = 10
SWEEP_ROUNDS = 20
SWEEP_SEED = 1000  # never used for a comparison
AHEAD, BEHIND, LEVEL, UNDECIDED = "over the air", "digital", "level", "undecided"


@dataclass(frozen=True, order=True)
class Place:
    """A kind of world on the map, without its seed."""

    devices: int
    bandwidth_hz: float
    noise_dbm: float

    def config(self, dataset: str, rate: float, seed: int) -> Config:
        """Its configuration: all devices have two labels, and links as in the paper."""
        half = self.devices // 2
        regions = [
            {"name": name, "devices": half, "x": [x, x + 10.0], "y": [-5.0, 5.0]}
            for name, x in (("Region I", -10.0), ("Region II", 10.0))
        ]
        changes = {
            "data.dataset": dataset,
            "data.samples_per_device": SAMPLES,
            "data.noniid_devices": self.devices,
            "fleet.regions": regions,
            "radio.noise_dbm": self.noise_dbm,
            "radio.bandwidth_hz": self.bandwidth_hz,
            "training.batch_samples": 10,
            "training.learning_rate": rate,
            "machine.workers": 1,
            "run.seed": seed,
        }
        return study_config(changes)

    def __str__(self) -> str:
        return f"{self.devices}-devices-{self.bandwidth_hz:g}-Hz-{self.noise_dbm:g}-dBm"


MAP = tuple(Place(*one) for one in product(DEVICES, BANDWIDTHS_HZ, NOISE_DBM))


@dataclass(frozen=True)
class Answer:
    """Who is ahead at one place for one budget."""

    devices: int
    bandwidth_hz: float
    snr_db: float  # median of the fleet over the whole band
    budget: str
    scheme: str  # the best over the air
    rival: str  # the digital scheme that is best against it
    points: float  # how far the scheme is above its rival
    low: float | None
    high: float | None
    n: int
    answer: str


@dataclass(frozen=True)
class Entry:
    """A run of the map before it is trained."""

    config: Config
    budgets: Mapping[str, float]  # joules, seconds, and rounds that use the hertz seconds
    snr_db: float


Key = tuple[Place, str, int]  # place, scheme, seed


def run_map(dataset: str | None, seeds: int, executor: Executor) -> list[Answer]:
    """Run what is missing; write air.json and air.md."""
    dataset = dataset or DATASETS[0]
    if dataset not in DATASETS:
        raise InputError(f"--dataset {dataset}: choose {' or '.join(DATASETS)}")
    rate = _rate(dataset, executor)
    entries: dict[Key, Entry] = {}
    for number, (place, seed) in enumerate(product(MAP, range(seeds))):
        entries |= entries_of(place, dataset, rate, seed)
        executor.progress("planning", number + 1, len(MAP) * seeds)
    found = executor.run(
        {key: entry.config for key, entry in entries.items()},
        lambda key: f"{key[0]}-{key[1].partition('@')[0]}-seed{key[2]}",
    )
    answers = [
        answer_of(place, budget, seeds, entries, found) for place, budget in product(MAP, BUDGETS)
    ]
    document = {"dataset": dataset, "learning_rate": rate, "seeds": seeds}
    write_json(executor.out / "air.json", document | {"answers": [asdict(a) for a in answers]})
    write_text(executor.out / "air.md", air_page([asdict(a) for a in answers]))
    return answers


def _rate(dataset: str, executor: Executor) -> float:
    """The learning rate with which the first digital scheme is best in the middle of the map."""
    place = Place(DEVICES[1], BANDWIDTHS_HZ[1], NOISE_DBM[0])
    configs = {
        rate: _variant(place.config(dataset, rate, SWEEP_SEED), DIGITAL[0], SWEEP_ROUNDS)
        for rate in LEARNING_RATES
    }
    found = executor.run(configs, lambda rate: f"rate{rate:g}", "sweep", "learning-rate sweep")
    return max(configs, key=lambda rate: found[rate].history.final_score)


def _variant(config: Config, scheme: str, rounds: int) -> Config:
    """A scheme in this world, with so many rounds, evaluated often enough to read a curve."""
    every = max(1, rounds // EVALUATIONS)
    limits = {"run.rounds": rounds, "run.eval_every": every, "machine.checkpoint_every": rounds}
    return read_variants(config.replace(limits), [scheme])[0].config


def entries_of(place: Place, dataset: str, rate: float, seed: int) -> dict[Key, Entry]:
    """The runs of all schemes at a place, each as long as its budgets last."""
    base = place.config(dataset, rate, seed)
    costs = {name: _costs(base, name) for name in (*DIGITAL, *OVER_THE_AIR)}
    budgets = {budget: ROUNDS * costs[DIGITAL[0]][budget] for budget in BUDGETS}
    snr_db = float(np.median(10 * np.log10(build_world(base).links.uplink_snr())))
    found = {}
    for name, each in costs.items():
        rounds = {budget: budgets[budget] / each[budget] for budget in BUDGETS}
        most = min(MOST_ROUNDS, math.ceil(max(rounds.values())))
        read = {**budgets, "rounds": rounds["hertz seconds"]}
        found[place, name, seed] = Entry(_variant(base, name, most), read, snr_db)
    return found


def _costs(config: Config, scheme: str) -> dict[str, float]:
    """What a round of a scheme costs on average, by budget."""
    own = _variant(config, scheme, ROUNDS)
    world, made = build_world(own), make_scheme(own)
    plan = plans.plan(made, world)
    cost = round_cost(world, made, plan, 1)
    band = own.radio.bandwidth_hz * uplink_seconds(plan)
    return {"joules": cost.joules, "seconds": cost.seconds, "hertz seconds": band}


def uplink_seconds(plan: Plan) -> float:
    """How long the whole band is used for uplinks in a round of all units."""
    air = plan.column("uplink_seconds")
    return float(air.sum() if plan.access == "tdma" else air.max())


def answer_of(
    place: Place,
    budget: str,
    seeds: int,
    entries: Mapping[Key, Entry],
    found: Mapping[Key, FinishedRun],
) -> Answer:
    """The best scheme over the air against the digital one that is best against it."""

    def accuracies(scheme: str) -> list[float]:
        keys = [(place, scheme, seed) for seed in range(seeds)]
        axis = "rounds" if budget == "hertz seconds" else budget
        return [
            100 * accuracy_around(found[key].history, axis, entries[key].budgets[axis])
            for key in keys
        ]

    scheme, rival, gains = strongest_pair(
        {name: accuracies(name) for name in OVER_THE_AIR},
        {name: accuracies(name) for name in DIGITAL},
    )
    result = estimate(gains, tests=len(OVER_THE_AIR) * len(DIGITAL))
    return Answer(
        place.devices,
        place.bandwidth_hz,
        round(float(np.mean([entries[place, scheme, s].snr_db for s in range(seeds)])), 2),
        budget,
        scheme.partition("@")[0],
        rival.partition("@")[0],
        result.mean,
        result.low,
        result.high,
        result.n,
        word_of(result),
    )


def strongest_pair(
    mine: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]
) -> tuple[str, str, list[float]]:
    """Whose lead over its strongest rival is largest, that rival, and the lead by seed."""

    def leads(pair: tuple[str, str]) -> float:
        return float(np.subtract(mine[pair[0]], others[pair[1]]).mean())

    hardest = [min(((name, other) for other in others), key=leads) for name in mine]
    best, rival = max(hardest, key=leads)
    return best, rival, np.subtract(mine[best], others[rival]).tolist()


def word_of(result: Estimate) -> str:
    """Who is ahead, by an interval that is widened for the pairs that were chosen from."""
    tests = len(OVER_THE_AIR) * len(DIGITAL)
    if result.low is not None and result.low > 0:
        return AHEAD
    if result.high is not None and result.high < 0:
        return BEHIND
    return LEVEL if result.equivalent(MARGIN_POINTS, tests) else UNDECIDED
