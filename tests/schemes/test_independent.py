"""Every scheme against an implementation of its own in plain numpy, on devices of unequal data.

Each function below is a scheme as its paper has it, for a digital uplink: it returns the global
model after a few rounds. Camu trains in single precision, the functions in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import camu
from camu.allocation.measured import Look, measured
from camu.allocation.p2_exact import solve_p2
from camu.learning.job import LocalRule
from camu.schemes import SCHEMES
from camu.schemes.auto_pilot import pilot_plan
from camu.schemes.designs import cohorts_of
from camu.schemes.p2_problem import problem_of_plan
from camu.seeding import derive
from helpers.own_federation import Federation, Vector

Reference = Callable[[Federation], Vector]
REFERENCES: dict[str, tuple[Reference, int, dict[str, Any]]] = {}
QUIET = {"radio.noise_dbm": -300.0, "radio.device_gain_dbi": 100.0}
ODD = [{"name": "I", "devices": 7, "x": [-10.0, 10.0], "y": [-5.0, 5.0]}]  # no vote is even
KEYS: dict[str, dict[str, Any]] = {  # of the worlds in which a scheme differs from simpler ones
    "width-scaled": {"training.model": "helpers.own_models:Hidden"},
    "fedper": {"training.model": "helpers.own_models:Hidden"},
    "fedrep": {"training.model": "helpers.own_models:Hidden"},
    "best-channel": {"radio.fading": "rayleigh"},
    "proportional-fair": {"radio.fading": "rayleigh"},
    "a-dsgd": QUIET,
    "beamforming-air": {
        "radio.noise_dbm": -300.0,
        "radio.fading": "rayleigh",
        "radio.antennas": 2,
    },
    "cotaf": QUIET,
    "least-error-air": QUIET,
    "broadband-analog": {**QUIET, "radio.fading": "rayleigh", "radio.antennas": 1},
    "one-bit-air": {**QUIET, "fleet.regions": ODD, "data.noniid_devices": 5},
    "camu-air": QUIET,
    "cluster-air": {**QUIET, "radio.carrier_sense_dbm": -300.0},
    "camu-p2": {"run.max_joules": 40.0, "run.max_virtual_seconds": 40.0},
}


def reference(name: str, rounds: int = 3, **parameters: Any) -> Callable[[Reference], Reference]:
    """Registers a function as the independent implementation of a scheme with parameters."""

    def register(function: Reference) -> Reference:
        REFERENCES[name] = function, rounds, parameters
        return function

    return register


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_the_model_is_that_of_an_independent_implementation(name: str) -> None:
    function, rounds, parameters = REFERENCES[name]
    federation = Federation(SCHEMES[name](**parameters), rounds, **KEYS.get(name, {}))
    expected = function(federation)
    moved = np.abs(expected - federation.initial).max()
    assert moved > 1e-3
    assert np.abs(federation.simulated() - expected).max() < 2e-6 * max(1.0, moved)


def mean_rounds(
    fed: Federation, train: Callable[[Vector, int, int], Vector], shares: Any
) -> Vector:
    """Rounds in which the server takes the mean of all models, with shares of its own."""
    weights = fed.initial
    for round_ in range(fed.rounds):
        models = [train(weights, round_, unit) for unit in range(len(shares))]
        weights = sum(share * model for share, model in zip(shares, models, strict=True))
    return weights


def devices_alone(fed: Federation, updates: Any, **options: Any) -> Vector:
    """Every device for itself, weighted by its samples."""

    def train(weights: Vector, round_: int, device: int) -> Vector:
        return fed.train(weights, round_, device, updates[device], **options)[0]

    return mean_rounds(fed, train, fed.shares)


def in_clusters(fed: Federation, updates: Any, shares: Vector, inside: Any = None) -> Vector:
    """Clusters whose members average after every step."""

    def train(weights: Vector, round_: int, unit: int) -> Vector:
        members = fed.members[unit]
        own = fed.inside(members) if inside is None else inside[unit]
        return fed.cluster(weights, round_, members, own, updates[unit])

    return mean_rounds(fed, train, shares)


def softmax(values: Vector) -> Vector:
    return np.asarray(np.exp(values - values.max()) / np.exp(values - values.max()).sum())


def gated(fed: Federation) -> tuple[Vector, list[int]]:
    """G_c and N_c of CAMU: those from the lower median contribution on fill the waiting time."""
    theta = fed.contributions(fed.members)
    chosen = theta >= sorted(theta)[(len(theta) - 1) // 2]
    return softmax(theta), [n if may else 1 for n, may in zip(fed.fitting(4), chosen, strict=True)]


@reference("fedsgd")
def fedsgd(fed: Federation) -> Vector:
    return devices_alone(fed, [1] * len(fed.devices))


@reference("local-sgd", local_updates=3)
@reference("ofdma-energy", local_updates=3)  # these change what devices spend, not the model
@reference("ofdma-time", local_updates=3)
@reference("fedl", local_updates=3)
@reference("cotaf", local_updates=3, norm="last")
@reference("least-error-air", local_updates=3)
def local_sgd(fed: Federation) -> Vector:
    return devices_alone(fed, [3] * len(fed.devices))


@reference("broadband-analog", truncation=0.5)
def broadband_analog(fed: Federation) -> Vector:
    """One antenna: a device is silent where its fading factor is below the threshold."""
    weights = fed.initial
    for round_ in range(fed.rounds):
        loud = np.flatnonzero(fed.world.links.fading(round_) >= 0.5)
        assert 0 < len(loud) < len(fed.devices)
        models = [fed.train(weights, round_, device, 1)[0] for device in loud]
        shares = fed.shares[loud] / fed.shares[loud].sum()
        weights = sum(share * model for share, model in zip(shares, models, strict=True))
    return weights


@reference("one-bit-air", step=0.01)
def one_bit_air(fed: Federation) -> Vector:
    weights = fed.initial
    for round_ in range(fed.rounds):
        changes = [fed.train(weights, round_, device, 1)[0] - weights for device in fed.devices]
        votes = sum(np.where(change < 0, -1.0, 1.0) for change in changes)
        weights = weights + 0.01 * np.sign(votes)
    return weights


@reference("local-sgd-decay", local_updates=3, shift=5.0)
def local_sgd_decay(fed: Federation) -> Vector:
    def train(weights: Vector, round_: int, device: int) -> Vector:
        return fed.train(weights, round_, device, 3, factor=5 / (5 + 3 * round_))[0]

    return mean_rounds(fed, train, fed.shares)


@reference("pr-sgd")
def pr_sgd(fed: Federation) -> Vector:
    return devices_alone(fed, fed.fitting(4))


@reference("fedprox", local_updates=3, proximal=1.0)
def fedprox(fed: Federation) -> Vector:
    return devices_alone(fed, [3] * len(fed.devices), proximal=1.0)


@reference("wasserstein")
def wasserstein(fed: Federation) -> Vector:
    def train(weights: Vector, round_: int, device: int) -> Vector:
        return fed.train(weights, round_, device, 1)[0]

    return mean_rounds(fed, train, softmax(fed.contributions([[k] for k in fed.devices])))


@reference("clustered")
@reference("cluster-air")
def clustered(fed: Federation) -> Vector:
    shares = softmax(fed.contributions(fed.members))
    return in_clusters(fed, [1] * len(shares), shares)


@reference("camu")
@reference("camu-air")
@reference("random-clusters")
@reference("label-kmeans")
def camu_(fed: Federation) -> Vector:
    shares, updates = gated(fed)
    return in_clusters(fed, updates, shares)


def test_the_controls_form_other_clusters_of_the_same_number() -> None:
    sizes = {}
    for name in ("camu", "random-clusters", "label-kmeans"):
        fed = Federation(SCHEMES[name](), 1)
        assert sorted(itertools.chain(*fed.members)) == list(fed.devices)
        sizes[name] = sorted(map(len, fed.members)), fed.members
    assert sizes["random-clusters"][0] == sizes["camu"][0]
    assert sizes["random-clusters"][1] != sizes["camu"][1]
    assert len(sizes["label-kmeans"][0]) == len(sizes["camu"][0])
    alike = Federation(SCHEMES["label-kmeans"](), 1)
    labels = alike.counts / alike.counts.sum(axis=1, keepdims=True)
    centres = np.array([labels[list(own)].mean(axis=0) for own in alike.members])
    nearest = np.square(labels[:, None] - centres).sum(axis=2).argmin(axis=1)
    assert all((nearest[list(own)] == c).all() for c, own in enumerate(alike.members))


@reference("compute-rounds")
def compute_rounds(fed: Federation) -> Vector:
    return in_clusters(fed, fed.fitting(4), softmax(fed.contributions(fed.members)))


@reference("dsc")
def dsc(fed: Federation) -> Vector:
    theta = fed.contributions([[k] for k in fed.devices])
    inside = [softmax(theta[list(own)]) for own in fed.members]
    shares = np.array([fed.shares[list(own)].sum() for own in fed.members])
    return in_clusters(fed, [1] * len(shares), shares, inside)


def spread(fed: Federation, updates: Any) -> float:
    """Seconds between the first and the last arrival, one cluster after another on the channel."""
    units, free, arrivals = fed.plan.units, 0.0, []
    steps = [u.per_update.compute_seconds + u.per_update.gather_seconds for u in units]
    ready = [n * step for n, step in zip(updates, steps, strict=True)]
    for unit in sorted(range(len(units)), key=lambda unit: (ready[unit], unit)):
        free = max(free, ready[unit]) + units[unit].uplink_seconds
        arrivals.append(free)
    return arrivals[-1] - arrivals[0]


@reference("hti", max_extra_updates=2)
@reference("hti-dynamic", max_extra_updates=2)
def hti(fed: Federation) -> Vector:
    """The counts with the smallest spread within what `compute-rounds` spends, by trying all."""
    budget = camu.plan(SCHEMES["compute-rounds"](max_extra_updates=2), fed.world).round_joules
    units = fed.plan.units
    each = [u.per_update.compute_joules + u.per_update.gather_joules for u in units]
    fixed = sum(unit.uplink_joules for unit in units)
    tries = [
        counts
        for counts in itertools.product(range(1, 4), repeat=len(units))
        if fixed + np.dot(counts, each) <= budget * (1 + 1e-12)
    ]
    chosen = [unit.local_updates for unit in units]
    assert tuple(chosen) in tries
    assert spread(fed, chosen) == pytest.approx(min(spread(fed, one) for one in tries))
    return in_clusters(fed, chosen, softmax(fed.contributions(fed.members)))


@reference("hti-total", local_updates=3)
def hti_total(fed: Federation) -> Vector:
    """The split of 3 K updates in which the last device is ready soonest, over all limits."""
    units = fed.plan.units
    step, air = (
        np.array([unit.per_update.compute_seconds for unit in units]),
        np.array([unit.uplink_seconds for unit in units]),
    )
    limits = np.unique([n * a + b for a, b in zip(step, air, strict=True) for n in range(1, 200)])
    most = lambda limit: np.maximum(1, np.floor((limit - air) / step + 1e-9)).sum()  # noqa: E731
    soonest = next(limit for limit in limits if most(limit) >= 3 * len(units))
    updates = [unit.local_updates for unit in units]
    assert sum(updates) == 3 * len(units)
    last = max(n * a + b for n, a, b in zip(updates, step, air, strict=True))
    assert last == pytest.approx(max(soonest, (step + air).max()))
    return devices_alone(fed, updates)


@reference("camu-joint")
def camu_joint(fed: Federation) -> Vector:
    """Only clusters that pass the gate may update more; the optimum itself has tests of its own."""
    shares, most = gated(fed)
    updates = [unit.local_updates for unit in fed.plan.units]
    assert all(1 <= n <= limit for n, limit in zip(updates, most, strict=True))
    budget = camu.plan(SCHEMES["compute-rounds"](), fed.world).round_joules
    assert fed.plan.round_joules <= budget * (1 + 1e-9)
    return in_clusters(fed, updates, shares)


@reference("camu-p2", models=3)
def camu_p2(fed: Federation) -> Vector:
    """Gradients at three models and the scatter of batches give P2; the optimum has other tests."""
    shares = [fed.shares[list(own)].sum() for own in fed.members]
    weights, looks = fed.initial, []
    for _ in range(3):
        gradients, noisy, losses = [], [], []
        for own in fed.members:
            whole = [fed.loss_and_gradient(weights, fed.held[device]) for device in own]
            drawn = [fed.loss_and_gradient(weights, fed.draw(0, device, 0))[1] for device in own]
            inside = fed.inside(own)
            losses.append(sum(g * loss for g, (loss, _) in zip(inside, whole, strict=True)))
            gradients.append(sum(g * one for g, (_, one) in zip(inside, whole, strict=True)))
            noisy.append(sum(g * one for g, one in zip(inside, drawn, strict=True)))
        scatter = np.square(np.subtract(noisy, gradients)).sum(axis=1)
        looks.append(Look(weights, np.array(losses), np.array(gradients), scatter))
        weights = weights - fed.rate * np.dot(shares, gradients)
    found = measured(looks, np.array(shares))
    step = fed.plan
    whole = step.with_columns(rule=[LocalRule(batch=1.0)] * len(shares)).repriced(fed.world)
    joules, seconds = (
        40.0 - 3 * (getattr(step, name) + getattr(whole, name))
        for name in ("round_joules", "round_seconds")
    )
    left = (joules, seconds)
    answer = solve_p2(problem_of_plan(fed.plan, fed.world, found, left, 5))
    assert answer.rounds >= fed.rounds
    weights = looks[-1].weights
    for round_ in range(fed.rounds):
        models = [
            fed.cluster(weights, round_, own, fed.inside(own), n)
            for own, n in zip(fed.members, answer.updates, strict=True)
        ]
        weights = sum(share * model for share, model in zip(shares, models, strict=True))
    return weights


@reference(
    "camu-auto",
    structure="devices",
    cohorts=2,
    gathers=1,
    steps=2,
    bits=32,
    rate=0.5,
    momentum=0.6,
)
def camu_auto(fed: Federation) -> Vector:
    """A pilot of two steps on the same batches, then cohorts in turn; designs have other tests."""
    members = [unit.members[0] for unit in pilot_plan(fed.scheme, fed.world).units]
    weights, shares = fed.initial, fed.samples[members] / fed.samples[members].sum()
    for _ in range(2):
        weights = shares @ np.array([fed.train(weights, 0, k, 1)[0] for k in members])
    cohort = cohorts_of(fed.world, [(k,) for k in fed.devices], 2)
    velocity = np.zeros_like(weights)
    for round_ in range(fed.rounds):
        turn = [k for k in fed.devices if cohort[k] == round_ % 2]
        shares = fed.samples[turn] / fed.samples[turn].sum()
        ends = np.array([fed.train(weights, round_, k, 2, factor=0.5)[0] for k in turn])
        velocity = 0.6 * velocity + shares @ ends - weights
        weights = weights + velocity
    return weights


@reference("talk-or-work", ratio=9.0)
def talk_or_work(fed: Federation) -> Vector:
    """H with the least joules, by trying all."""
    work = sum(unit.per_update.compute_joules for unit in fed.plan.units)
    talk = sum(unit.uplink_joules for unit in fed.plan.units)
    best = min(range(1, 100), key=lambda h: (9 / h + h) * (h * work + talk))
    return devices_alone(fed, [best] * len(fed.devices))


@reference("hierfavg", local_updates=3, steps=2)
def hierfavg(fed: Federation) -> Vector:
    def train(weights: Vector, round_: int, unit: int) -> Vector:
        own = fed.members[unit]
        return fed.cluster(weights, round_, own, fed.inside(own), 3, steps=2)

    shares = [fed.shares[list(own)].sum() for own in fed.members]
    return mean_rounds(fed, train, shares)


def normalised(fed: Federation, updates: Any, shares: Any) -> Vector:
    """FedNova: x - tau_eff sum_k p_k (x - y_k) / tau_k, with tau_eff = sum_k p_k tau_k."""
    weights, mean = fed.initial, float(np.dot(shares, updates))
    for round_ in range(fed.rounds):
        steps = 0.0
        for unit, (share, count) in enumerate(zip(shares, updates, strict=True)):
            own = fed.members[unit]
            model = fed.cluster(weights, round_, own, fed.inside(own), count)
            steps = steps + share * (weights - model) / count
        weights = weights - mean * steps
    return weights


@reference("fednova")
def fednova(fed: Federation) -> Vector:
    return normalised(fed, fed.fitting(4), fed.shares)


@reference("cluster-nova")
def cluster_nova(fed: Federation) -> Vector:
    return normalised(fed, fed.fitting(4), softmax(fed.contributions(fed.members)))


@reference("camu-nova")
def camu_nova(fed: Federation) -> Vector:
    shares, updates = gated(fed)
    return normalised(fed, updates, shares)


@reference("scaffold", local_updates=3)
@reference("cluster-scaffold", local_updates=3)
def scaffold(fed: Federation) -> Vector:
    """Option II: c_i <- c_i - c + (x - y_i) / (K eta); c is the mean of all c_i."""
    shares = [fed.shares[list(own)].sum() for own in fed.members]
    weights, mean = fed.initial, np.zeros_like(fed.initial)
    control = [np.zeros_like(mean) for _ in shares]
    for round_ in range(fed.rounds):
        models = [
            fed.cluster(weights, round_, own, fed.inside(own), 3, correction=mean - control[unit])
            for unit, own in enumerate(fed.members)
        ]
        for unit, model in enumerate(models):
            control[unit] = control[unit] - mean + (weights - model) / (3 * fed.rate)
        mean = sum(share * own for share, own in zip(shares, control, strict=True))
        weights = sum(share * model for share, model in zip(shares, models, strict=True))
    return weights


@reference("feddyn", local_updates=3, strength=0.1)
def feddyn(fed: Federation) -> Vector:
    weights, h = fed.initial, np.zeros_like(fed.initial)
    own = [np.zeros_like(h) for _ in fed.devices]
    for round_ in range(fed.rounds):
        models = [
            fed.train(weights, round_, k, 3, proximal=0.1, correction=-own[k])[0]
            for k in fed.devices
        ]
        own = [g - 0.1 * (model - weights) for g, model in zip(own, models, strict=True)]
        mean = sum(share * model for share, model in zip(fed.shares, models, strict=True))
        h = h - 0.1 * (mean - weights)
        weights = mean - h / 0.1
    return weights


def mean_update(fed: Federation, weights: Vector, round_: int, updates: int) -> Vector:
    models = [fed.train(weights, round_, k, updates)[0] for k in fed.devices]
    return np.asarray(fed.shares @ np.array(models) - weights)


@reference("fedavgm", local_updates=2, momentum=0.9, server_rate=0.7)
def fedavgm(fed: Federation) -> Vector:
    weights, velocity = fed.initial, np.zeros_like(fed.initial)
    for round_ in range(fed.rounds):
        velocity = 0.9 * velocity + mean_update(fed, weights, round_, 2)
        weights = weights + 0.7 * velocity
    return weights


@reference("fedadam", local_updates=2)
def fedadam(fed: Federation) -> Vector:
    weights, first, second = fed.initial, 0.0, 1e-6
    for round_ in range(fed.rounds):
        step = mean_update(fed, weights, round_, 2)
        first, second = 0.9 * first + 0.1 * step, 0.99 * second + 0.01 * step**2
        weights = weights + 0.03 * first / (np.sqrt(second) + 1e-3)
    return weights


@reference("fedexp", rounds=4, local_updates=4, small=1e-4)
def fedexp(fed: Federation) -> Vector:
    """The server's rate is max(1, sum ||d_i||^2 / (2 M (||mean d||^2 + epsilon)))."""
    weights, rates_ = fed.initial, []
    for round_ in range(fed.rounds):
        moves = [fed.train(weights, round_, k, 4)[0] - weights for k in fed.devices]
        mean = np.mean(moves, axis=0)
        squares = sum(float(one @ one) for one in moves)
        rates_.append(max(1.0, squares / (2 * len(moves) * (float(mean @ mean) + 1e-4))))
        weights = weights + rates_[-1] * mean
    assert max(rates_) > 1  # where all agree it would be local SGD
    return weights


def drawn(fed: Federation, round_: int, count: int) -> list[int]:
    """The devices that the server draws, without replacement."""
    order = derive(fed.world.seed, "own-scheme", round_).numpy().permutation(len(fed.devices))
    return sorted(order[:count].tolist())


@reference("two-sided", local_updates=2, share=0.3, server_rate=1.5)
def two_sided(fed: Federation) -> Vector:
    weights = fed.initial
    for round_ in range(fed.rounds):
        who = drawn(fed, round_, 6)
        mean = np.mean([fed.train(weights, round_, k, 2)[0] for k in who], axis=0)
        weights = weights + 1.5 * (mean - weights)
    return weights


def test_two_sided_by_samples_is_fedavg_with_participation() -> None:
    """McMahan et al.: the models of the drawn devices, weighted by their samples."""
    scheme = SCHEMES["two-sided"](local_updates=2, share=0.3, sample_weights=True)
    fed = Federation(scheme, 3)
    assert len(set(fed.samples.tolist())) > 1
    weights = fed.initial
    for round_ in range(fed.rounds):
        who = drawn(fed, round_, 6)
        weights = fed.inside(who) @ np.array([fed.train(weights, round_, k, 2)[0] for k in who])
    assert np.abs(fed.simulated() - weights).max() < 2e-6


@reference("fedavg-epochs", epochs=2, share=0.3)
def fedavg_epochs(fed: Federation) -> Vector:
    """McMahan et al.: every drawn device passes twice over its data."""
    weights = fed.initial
    steps = [2 * math.ceil(len(own) / size) for own, size in zip(fed.held, fed.batch, strict=True)]
    assert min(steps) > 2
    for round_ in range(fed.rounds):
        who = drawn(fed, round_, 6)
        models = [fed.train(weights, round_, k, steps[k])[0] for k in who]
        weights = fed.inside(who) @ np.array(models)
    return weights


@reference("cost-effective", participants=7, updates=3)
def cost_effective(fed: Federation) -> Vector:
    """With given K and E; what the pilots would choose has tests of its own."""
    weights = fed.initial
    for round_ in range(fed.rounds):
        who = drawn(fed, round_, 7)
        models = [fed.train(weights, round_, k, 3)[0] for k in who]
        weights = fed.inside(who) @ np.array(models)
    return weights


@reference("fedpaq", local_updates=2, share=0.5, levels=7)
def fedpaq(fed: Federation) -> Vector:
    """QSGD: each entry is rounded to one of the two levels around it, unbiased."""
    weights = fed.initial
    for round_ in range(fed.rounds):
        who, total = drawn(fed, round_, 10), np.zeros_like(weights)
        for k in who:
            change = fed.train(weights, round_, k, 2)[0] - weights
            norm = np.linalg.norm(change)
            exact = 7 * np.abs(change) / norm
            chance = derive(fed.world.seed, "codec", round_, k).numpy().random(len(change))
            level = np.floor(exact) + (chance < exact - np.floor(exact))
            total += np.sign(change) * level * norm / 7
        weights = weights + total / len(who)
    return weights


@reference("hier-local-qsgd", local_updates=3, steps=2, levels=5)
def hier_local_qsgd(fed: Federation) -> Vector:
    weights = fed.initial
    for round_ in range(fed.rounds):
        total = np.zeros_like(weights)
        for unit, own in zip(fed.plan.units, fed.members, strict=True):
            model = fed.cluster(weights, round_, own, fed.inside(own), 3, steps=2)
            change = model - weights
            norm = np.linalg.norm(change)
            exact = 5 * np.abs(change) / norm
            chance = derive(fed.world.seed, "codec", round_, unit.leader).numpy()
            level = np.floor(exact) + (chance.random(len(change)) < exact - np.floor(exact))
            total += fed.shares[list(own)].sum() * np.sign(change) * level * norm / 5
        weights = weights + total
    return weights


@reference("ef21", rounds=4, sent_share=0.05, local_updates=2)
def ef21(fed: Federation) -> Vector:
    """g_i <- g_i + C(d_i - g_i) at device and server, x <- x + sum w_i g_i."""
    weights, kept = fed.initial, round(0.05 * len(fed.initial))
    estimates = np.zeros((len(fed.devices), len(weights)))
    for round_ in range(fed.rounds):
        for k in fed.devices:
            error = fed.train(weights, round_, k, 2)[0] - weights - estimates[k]
            largest = np.argsort(-np.abs(error.astype(np.float32)), kind="stable")[:kept]
            estimates[k, largest] += error[largest]
        weights = weights + fed.shares @ estimates
    return weights


@reference("fedlamp", rounds=1)
def fedlamp(fed: Federation) -> Vector:
    """tau by pace, the largest entries of v tau q are sent, weights by sqrt(tau)."""
    size = len(fed.initial)
    bits = 32 + math.ceil(math.log2(size))
    compute = np.array([unit.per_update.compute_seconds for unit in fed.plan.units])
    air = np.array([u.uplink_seconds * size * bits / u.payload_bits for u in fed.plan.units])
    pace = compute + 0.1 * air
    tau = np.maximum(1, np.floor(5 * pace.min() / pace + 1e-9)).astype(int)
    weights = fed.initial
    for k in fed.devices:
        change = fed.train(fed.initial, 0, k, tau[k])[0] - fed.initial
        kept = np.argsort(-np.abs(change.astype(np.float32)), kind="stable")
        kept = kept[: round(0.1 * tau[k] * size)]
        sent = np.zeros_like(change)
        sent[kept] = change[kept]
        weights = weights + np.sqrt(tau[k]) / np.sqrt(tau).sum() * sent
    return weights


@reference("adaptive-batch", local_updates=2, most=16, least=3)
def adaptive_batch(fed: Federation) -> Vector:
    """The fastest device takes its largest batch, the others what fits into its time."""
    devices = fed.world.devices
    sample = 2 * devices.cycles_per_sample / devices.cpu_hz
    air = np.array([unit.uplink_seconds for unit in fed.plan.units])
    limit = np.minimum(16, fed.samples)
    end = (sample * limit + air).min()
    sizes = np.minimum(np.maximum(np.floor((end - air) / sample + 1e-9), 3), limit).astype(int)

    def train(weights: Vector, round_: int, k: int) -> Vector:
        factor = sizes[k] / sizes.max()
        return fed.train(weights, round_, k, 2, size=int(sizes[k]), factor=factor)[0]

    return mean_rounds(fed, train, fed.shares)


@reference("camu-balanced", rounds=4)
def camu_balanced(fed: Federation) -> Vector:
    """Equal work for all clusters, weights by samples, momentum 0.7; the design has own tests."""
    (work,) = {(unit.local_updates, unit.rule.steps) for unit in fed.plan.units}
    weights, velocity = fed.initial, np.zeros_like(fed.initial)
    for round_ in range(fed.rounds):
        mean = 0.0
        for own in fed.members:
            model = fed.cluster(weights, round_, own, fed.inside(own), work[0], steps=work[1])
            mean = mean + fed.shares[list(own)].sum() * model
        velocity = 0.7 * velocity + mean - weights
        weights = weights + velocity
    return weights


@reference("oort", rounds=5, local_updates=2, share=0.4)
def oort(fed: Federation) -> Vector:
    """As in the authors' training selector, with fixed T and mean losses."""
    count, wanted = len(fed.devices), 8
    last, losses = np.full(count, -1), np.zeros(count)
    seconds = np.array([unit.ready_seconds + unit.uplink_seconds for unit in fed.plan.units])
    slow = np.array([(np.quantile(seconds, 0.5) / s) ** 2 if s > np.quantile(seconds, 0.5) else 1.0
                     for s in seconds])  # fmt: skip
    weights = fed.initial
    for round_ in range(fed.rounds):
        generator = derive(fed.world.seed, "own-scheme", round_).numpy()
        known, fresh = np.flatnonzero(last >= 0), np.flatnonzero(last < 0)
        explore = round(max(0.2, 0.9 * 0.98**round_) * wanted)
        new = min(len(fresh), max(explore, wanted - len(known)))
        who = []
        if (old := min(len(known), wanted - new)) > 0:
            rewards = sorted(fed.samples[k] * losses[k] for k in known)
            clip = rewards[min(int(0.95 * len(rewards)), len(rewards) - 1)]
            least = rewards[0] * 0.999
            scores = np.array([
                ((min(fed.samples[k] * losses[k], clip) - least) / (rewards[-1] - least)
                 + math.sqrt(0.1 * math.log(round_ + 1) / (last[k] + 1))) * slow[k]
                for k in known
            ])  # fmt: skip
            odds = np.where(scores >= 0.95 * sorted(scores)[-old], scores, 0)
            who += generator.choice(known, old, replace=False, p=odds / odds.sum()).tolist()
        if new > 0:
            first = fed.samples[fresh] * slow[fresh]
            best = sorted(first)[::-1][: 5 * new][-1]
            odds = np.where(first >= best, first, 0)
            who += generator.choice(fresh, new, replace=False, p=odds / odds.sum()).tolist()
        trained = {k: fed.train(weights, round_, k, 2) for k in sorted(who)}
        weights = fed.inside(list(trained)) @ np.array([model for model, _ in trained.values()])
        for k, (_, loss) in trained.items():
            last[k], losses[k] = round_ + 1, loss
    return weights


@reference("age-scheduling", rounds=4, local_updates=2, share=0.4)
def age_scheduling(fed: Federation) -> Vector:
    count = len(fed.devices)
    age, slope, weights = np.zeros(count), np.full(count, np.nan), fed.initial
    for round_ in range(fed.rounds):
        usual = 1.0 if np.isnan(slope).all() else np.nanmean(slope)
        priority = fed.samples * np.where(np.isnan(slope), usual, slope) * (1 + age)
        who = sorted(np.argsort(-priority, kind="stable")[:8].tolist())
        factor = (1 + age) ** -0.5
        models = [fed.train(weights, round_, k, 2, factor=factor[k])[0] for k in who]
        age += 1
        for k, model in zip(who, models, strict=True):
            slope[k], age[k] = np.linalg.norm(model - weights) / (2 * factor[k]), 0
        weights = fed.inside(who) @ np.array(models)
    return weights


def trained_by(fed: Federation, chosen: Callable[[int], list[int]]) -> Vector:
    """Rounds of two local updates of those who are chosen, averaged by their samples."""
    weights = fed.initial
    for round_ in range(fed.rounds):
        who = sorted(chosen(round_))
        models = [fed.train(weights, round_, k, 2)[0] for k in who]
        weights = fed.inside(who) @ np.array(models)
    return weights


def rates(fed: Federation, factor: Any) -> Vector:
    """Shannon's rates over the whole band at this factor on the mean gains."""
    links = fed.world.links
    snr = fed.world.devices.power_watts * links.uplink_gain * factor / links.noise_watts
    return np.asarray(links.radio.bandwidth_hz * np.log2(1 + snr))


@reference("fedcs", local_updates=2, round_share=0.4)
def fedcs(fed: Federation) -> Vector:
    units, limit = fed.plan.units, 0.4 * fed.plan.round_seconds
    queue, now, left = [], 0.0, list(fed.devices)
    while left:
        growth = [
            unit.uplink_seconds + max(0.0, unit.ready_seconds - now)
            for unit in (units[k] for k in left)
        ]
        best = int(np.argmin(growth))
        device = left.pop(best)
        if now + growth[best] < limit:
            queue.append(device)
            now += growth[best]
    assert 1 < len(queue) < len(fed.devices)
    return trained_by(fed, lambda round_: queue)


@reference("fastest", local_updates=2, share=0.4)
def fastest(fed: Federation) -> Vector:
    own = [unit.ready_seconds + unit.uplink_seconds for unit in fed.plan.units]
    return trained_by(fed, lambda round_: sorted(fed.devices, key=lambda k: own[k])[:8])


@reference("round-robin", rounds=4, local_updates=2, share=0.4)
def round_robin(fed: Federation) -> Vector:
    return trained_by(fed, lambda round_: [(8 * round_ + k) % 20 for k in range(8)])


@reference("best-channel", local_updates=2, share=0.4)
def best_channel(fed: Federation) -> Vector:
    def chosen(round_: int) -> list[int]:
        gain = fed.world.links.uplink_gain * fed.world.links.fading(round_)
        return sorted(fed.devices, key=lambda k: -gain[k])[:8]

    return trained_by(fed, chosen)


@reference("proportional-fair", rounds=6, local_updates=2, share=0.4, window=5)
def proportional_fair(fed: Federation) -> Vector:
    mean = rates(fed, 1.0)

    def chosen(round_: int) -> list[int]:
        nonlocal mean
        rate = rates(fed, fed.world.links.fading(round_))
        who = sorted(fed.devices, key=lambda k: -rate[k] / mean[k])[:8]
        mean = np.array([0.8 * mean[k] + 0.2 * rate[k] * (k in who) for k in fed.devices])
        return who

    return trained_by(fed, chosen)


@reference("resource-blocks", local_updates=2, block_share=0.4)
def resource_blocks(fed: Federation) -> Vector:
    """Eight equal blocks without interference: those with the most expected samples have them."""
    noise = fed.world.links.noise_watts / 8
    power = fed.world.devices.max_power_watts
    arrives = fed.samples * np.exp(-1.08 * noise / (power * fed.world.links.uplink_gain))
    best = sorted(fed.devices, key=lambda k: -arrives[k])[:8]
    assert sorted(best) == [k for k in fed.devices if fed.plan.units[k].bandwidth_hz is not None]
    return trained_by(fed, lambda round_: best)


def cosine_projection(fed: Federation, rows: int) -> Vector:
    """A (s, q): rows of the cosine transform of signed, shuffled entries, as a dense matrix."""
    size = len(fed.initial)
    generator = derive(fed.world.seed, "projection").numpy()
    order = generator.permutation(size)
    signs = generator.choice(np.array([-1.0, 1.0]), size)
    kept = np.sort(generator.permutation(size)[:rows])
    cosines = np.cos(np.pi * np.outer(kept, np.arange(size) + 0.5) / size) * np.sqrt(2 / rows)
    cosines[kept == 0] /= np.sqrt(2)
    matrix = np.zeros((rows, size))
    matrix[:, order] = cosines * signs
    return matrix


@reference("a-dsgd", local_updates=2, sent_share=0.03, measured_share=0.6, steps=10)
def a_dsgd(fed: Federation) -> Vector:
    """Largest entries with memory, projected, weighted by w / ||(A s, rate)||, then AMP."""
    weights, size = fed.initial, len(fed.initial)
    rows, memory = round(0.6 * size), np.zeros((len(fed.devices), size))
    matrix = cosine_projection(fed, rows)
    for round_ in range(fed.rounds):
        total, scale = np.zeros(rows), 0.0
        for k in fed.devices:
            whole = fed.train(weights, round_, k, 2)[0] - weights + memory[k]
            largest = np.argsort(-np.abs(whole.astype(np.float32)), kind="stable")
            sent = np.zeros(size)
            sent[largest[: round(0.03 * size)]] = whole[largest[: round(0.03 * size)]]
            memory[k] = whole - sent
            measured = matrix @ sent
            root = fed.shares[k] / np.sqrt(measured @ measured + fed.rate**2)
            total, scale = total + root * measured, scale + root
        y = z = total / scale
        x, least = np.zeros(size), math.inf
        for _ in range(10):
            r = x + matrix.T @ z
            x = np.sign(r) * np.maximum(np.abs(r) - 1.4 * np.sqrt(z @ z / rows), 0)
            z = y - matrix @ x + z * np.count_nonzero(x) / rows
            if z @ z < least:
                best, least = x, z @ z
        weights = weights + best
    return weights


@reference("beamforming-air", rounds=2, local_updates=2, mse_limit=3e-24)
def beamforming_air(fed: Federation) -> Vector:
    """With two antennas, receive vectors are the points of a sphere: all of them are tried."""
    links, power = fed.world.links, fed.world.devices.power_watts
    tilt, turn = np.meshgrid(np.linspace(0, np.pi / 2, 400), np.linspace(0, 2 * np.pi, 800))
    vectors = np.stack([np.cos(tilt), np.exp(1j * turn) * np.sin(tilt)], axis=-1).reshape(-1, 2)

    def chosen(round_: int) -> list[int]:
        outputs = np.abs(vectors.conj() @ links.channels(round_).T) ** 2
        served = fed.shares**2 * links.noise_watts / (power * outputs) <= 3e-24
        sets = np.unique(served[served.sum(axis=1) == served.sum(axis=1).max()], axis=0)
        assert len(sets) == 1
        assert 1 < sets[0].sum() < len(fed.devices)
        return np.flatnonzero(sets[0]).tolist()

    return trained_by(fed, chosen)


@reference("near-iid-bandit", rounds=8, local_updates=2, size=4)
def near_iid_bandit(fed: Federation) -> Vector:
    """Groups grow towards everyone's labels; UCB1 on the seconds of their rounds chooses one."""
    everyone = fed.counts.sum(axis=0) / fed.counts.sum()

    def apart(own: list[int]) -> float:
        labels = fed.counts[own].sum(axis=0)
        return float(np.abs(labels / labels.sum() - everyone).sum())

    order = derive(fed.world.seed, "near-iid-groups").numpy().permutation(len(fed.devices))
    left, groups = order.tolist(), []
    while left:
        own = [left.pop(0)]
        while left and len(own) < 4 and apart(own) > 0.2:
            own.append(min(left, key=lambda k, own=own: apart([*own, k])))
            left.remove(own[-1])
        groups.append(sorted(own))
    played, mean, weights = np.zeros(len(groups)), np.zeros(len(groups)), fed.initial
    for round_ in range(fed.rounds):
        bonus = np.ptp(mean) * np.sqrt(2 * np.log(round_ + 1) / np.maximum(played, 1))
        arm = int(np.argmin(played)) if (played == 0).any() else int(np.argmin(mean - bonus))
        models = [fed.train(weights, round_, k, 2)[0] for k in groups[arm]]
        weights = fed.inside(groups[arm]) @ np.array(models)
        free = 0.0
        for unit in sorted((fed.plan.units[k] for k in groups[arm]), key=lambda u: u.ready_seconds):
            free = max(free, unit.ready_seconds) + unit.uplink_seconds
        played[arm] += 1
        mean[arm] += (free - mean[arm]) / played[arm]
    return weights


def personal(fed: Federation, head: int, body: int) -> Vector:
    """The last layer stays at each device; with `head` steps it is trained first, alone."""
    last = math.prod(fed.layers[-1]) + fed.layers[-1][0]
    mine = np.arange(len(fed.initial)) >= len(fed.initial) - last
    weights, own = fed.initial, [fed.initial[mine]] * len(fed.devices)
    for round_ in range(fed.rounds):
        models = []
        for k in fed.devices:
            model = weights.copy()
            model[mine] = own[k]
            for step in range(head + body):
                end, _ = fed.train(model, round_, k, 1, first=step)
                moves = np.ones_like(mine) if not head else mine if step < head else ~mine
                model = np.where(moves, end, model)
            own[k] = model[mine]
            models.append(model)
        mean = sum(share * model for share, model in zip(fed.shares, models, strict=True))
        weights = np.where(mine, weights, mean)
    return weights


@reference("fedper", local_updates=3)
def fedper(fed: Federation) -> Vector:
    return personal(fed, 0, 3)


@reference("fedrep", local_updates=2, head_updates=3)
def fedrep(fed: Federation) -> Vector:
    return personal(fed, 3, 2)


@reference("ditto", local_updates=3)
def ditto(fed: Federation) -> Vector:
    """The global model is that of local SGD; test_personal.py has the devices' own ones."""
    return devices_alone(fed, [3] * len(fed.devices))


@reference("width-scaled", local_updates=2)
def width_scaled(fed: Federation) -> Vector:
    """Parts are the first channels of the hidden layer; the mean is over those who trained it."""
    (hidden, inputs), (classes, _) = fed.layers
    parts = {}
    for width in (1.0, 0.75, 0.5, 0.25):
        kept = np.arange(hidden) < math.ceil(width * hidden)
        first = np.repeat(kept, inputs), kept
        parts[width] = np.concatenate([*first, np.tile(kept, classes), np.ones(classes, bool)])
    share = {width: part.sum() / len(fed.initial) for width, part in parts.items()}
    whole = camu.plan(SCHEMES["local-sgd"](local_updates=2), fed.world).units
    step = np.array([unit.per_update.compute_seconds for unit in whole])
    air = np.array([unit.uplink_seconds for unit in whole])
    limit = np.median(2 * step + air)
    weights = fed.initial
    for round_ in range(fed.rounds):
        moved, total = np.zeros_like(weights), np.zeros_like(weights)
        for k in fed.devices:
            fitting = [w for w in parts if share[w] * (2 * step[k] + air[k]) <= limit]
            width = max(fitting, default=0.25)
            part, part_share = parts[width], share[width]
            count = int((limit - part_share * air[k]) / (part_share * step[k]) + 1e-9)
            start = weights * part
            end, _ = fed.train(start, round_, k, min(max(count, 1), 6))
            moved += fed.shares[k] * part * (end - start)
            total += fed.shares[k] * part
        weights = weights + moved / np.maximum(total, 1e-300)
    return weights


@reference("adaptive-tau", rounds=6, control=1e-4)
def adaptive_tau(fed: Federation) -> Vector:
    """Wang et al.: rho, beta and delta at the new model, tau of the least G(tau)."""
    units = fed.plan.units
    local = sum(unit.per_update.compute_joules for unit in units)
    fixed = sum(unit.uplink_joules for unit in units)
    budget, spent, tau, weights = fed.rounds * (local + fixed), 0.0, 1, fed.initial
    best, last = (math.inf, weights), False

    def value(t: int, rho: float, beta: float, delta: float) -> float:
        eta, phi = fed.rate, 1e-4
        drift = delta / beta * ((eta * beta + 1) ** t - 1) - eta * delta * t
        half = (local * t + fixed) / (2 * eta * phi * (budget - fixed - local) * t)
        return half + math.sqrt(half**2 + rho * drift / (eta * phi * t)) + rho * drift

    for round_ in range(fed.rounds):
        models = [fed.train(weights, round_, k, tau)[0] for k in fed.devices]
        new = fed.shares @ np.array(models)
        spent += tau * local + fixed
        here = [fed.loss_and_gradient(new, held) for held in fed.held]
        loss = float(fed.shares @ [own for own, _ in here])
        if loss <= best[0]:
            best = loss, new
        weights = best[1] if last else new
        if last:
            break
        there = [
            fed.loss_and_gradient(model, held) for model, held in zip(models, fed.held, strict=True)
        ]
        apart = [np.linalg.norm(model - weights) for model in models]
        rho = fed.shares @ [
            abs(a[0] - b[0]) / d for a, b, d in zip(there, here, apart, strict=True)
        ]
        beta = fed.shares @ [
            np.linalg.norm(a[1] - b[1]) / d for a, b, d in zip(there, here, apart, strict=True)
        ]
        mean = fed.shares @ np.array([gradient for _, gradient in here])
        delta = fed.shares @ [np.linalg.norm(gradient - mean) for _, gradient in here]
        tau = min(range(1, min(10 * tau, 100) + 1), key=lambda t: value(t, rho, beta, delta))
        left = budget - spent
        if left < local * (tau + 1) + 2 * fixed:
            tau, last = max(1, min(tau, math.floor((left - fixed) / local))), True
            if left < local + fixed:
                break
    return weights


@reference("fedbuff", rounds=7, buffer=4)
def fedbuff(fed: Federation) -> Vector:
    def aggregate(weights: Vector, arrived: list[Any], version: int, _: set[int]) -> Vector:
        shares = fed.inside([own.device for own in arrived])
        for share, own in zip(shares, arrived, strict=True):
            weights = weights + share / math.sqrt(1 + version - own.version) * (own.end - own.start)
        return weights

    return fed.events(
        lambda weights, round_, k: fed.train(weights, round_, k, 2),
        lambda arrived, *_: len(arrived) >= 4,
        aggregate,
    )


@reference("fedasync", rounds=30)
def fedasync(fed: Federation) -> Vector:
    def aggregate(weights: Vector, arrived: list[Any], version: int, _: set[int]) -> Vector:
        (own,) = arrived
        share = 0.6 / math.sqrt(1 + version - own.version)
        return (1 - share) * weights + share * own.end

    return fed.events(
        lambda weights, round_, k: fed.train(weights, round_, k, 2, proximal=0.005),
        lambda arrived, *_: True,
        aggregate,
    )


@reference("fedsa", rounds=12, first=5, max_staleness=2)
def fedsa(fed: Federation) -> Vector:
    """The server takes M models; (1 - sum p_i) w + sum p_i w_i; rarer devices have higher rates."""
    count = np.ones(len(fed.devices))
    rates = {0: count.mean() / count}

    def ready(arrived: list[Any], version: int, flying: dict[int, int]) -> bool:
        late = any(version - own >= 2 for own in flying.values())
        return (len(arrived) >= 5 and not late) or not flying

    def aggregate(weights: Vector, arrived: list[Any], version: int, _: set[int]) -> Vector:
        moved = sum(fed.shares[own.device] * (own.end - weights) for own in arrived)
        for own in arrived:
            count[own.device] += 1
        rates[version + 1] = count.mean() / count
        return weights + moved

    def train(weights: Vector, round_: int, k: int) -> tuple[Vector, float]:
        return fed.train(weights, round_, k, 2, factor=rates[round_][k])

    return fed.events(train, ready, aggregate)


@reference("fedat", rounds=6)
def fedat(fed: Federation) -> Vector:
    seconds = [unit.ready_seconds + unit.uplink_seconds for unit in fed.plan.units]
    tier = np.empty(len(seconds), int)
    for number, own in enumerate(np.array_split(np.argsort(seconds, kind="stable"), 3)):
        tier[own] = number
    models, rounds = np.tile(fed.initial, (3, 1)), np.zeros(3)

    def combine(_: Vector, number: int, model: Vector, __: int) -> Vector:
        models[number] = model
        rounds[number] += 1
        return np.asarray(rounds[::-1] / rounds.sum() @ models)

    return tiered(fed, tier, combine)


@reference("straggler-tiers", rounds=6)
def straggler_tiers(fed: Federation) -> Vector:
    """Tiers are cut at the two largest ratios of neighbouring times."""
    seconds = np.array([unit.ready_seconds + unit.uplink_seconds for unit in fed.plan.units])
    order = np.argsort(seconds, kind="stable")
    ratio = seconds[order][1:] / seconds[order][:-1]
    cuts = sorted((np.argsort(-ratio, kind="stable")[:2] + 1).tolist())
    tier = np.empty(len(seconds), int)
    for number, own in enumerate(np.split(order, cuts)):
        tier[own] = number

    def combine(weights: Vector, number: int, model: Vector, staleness: int) -> Vector:
        share = fed.shares[tier == number].sum() / math.sqrt(1 + staleness)
        return weights + share * (model - weights)

    return tiered(fed, tier, combine)


def tiered(
    fed: Federation, tier: Any, combine: Callable[[Vector, int, Vector, int], Vector]
) -> Vector:
    """Tiers are synchronous inside and asynchronous between each other."""
    waiting: dict[int, list[Any]] = {number: [] for number in range(int(tier.max()) + 1)}
    size = np.bincount(tier)

    def aggregate(weights: Vector, arrived: list[Any], version: int, _: set[int]) -> Vector:
        for own in arrived:
            waiting[tier[own.device]].append(own)
        for number, those in waiting.items():
            if len(those) == size[number]:
                shares = fed.inside([own.device for own in those])
                model = shares @ np.array([own.end for own in those])
                weights = combine(weights, number, model, version - those[0].version)
                waiting[number] = []
        return weights

    def complete(arrived: list[Any], _: int, flying: dict[int, int]) -> bool:
        busy = {tier[k] for k in flying}
        return any(tier[own.device] not in busy for own in arrived)

    def begins(idle: set[int]) -> list[int]:
        held = {own.device for those in waiting.values() for own in those}
        return sorted(idle - held)

    train = lambda weights, round_, k: fed.train(weights, round_, k, 2)  # noqa: E731
    return fed.events(train, complete, aggregate, begins)


@reference("semi-async-clusters", rounds=12, discrepancy=0.05)
def semi_async_clusters(fed: Federation) -> Vector:
    """After a common round, groups alike in delay and direction have models of their own."""
    state: dict[str, Any] = {}

    def grouped(arrived: list[Any]) -> Any:
        """k-means on the delay and the first principal components of the directions."""
        free, seconds = 0.0, {}
        units = fed.plan.units
        for k in sorted(fed.devices, key=lambda k: (units[k].ready_seconds, k)):
            free = max(free, units[k].ready_seconds) + units[k].uplink_seconds
            seconds[k] = free
        rows = np.array([own.end - own.start for own in arrived])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        left, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
        delay = np.log([[seconds[own.device]] for own in arrived])
        parts = [delay - delay.mean(), (left * sizes)[:, :3]]
        features = np.hstack([part / np.linalg.norm(part) for part in parts])
        start = int(derive(fed.world.seed, "delay-groups").numpy().integers(2**31))
        return KMeans(3, n_init=10, random_state=start).fit_predict(features)

    def aggregate(weights: Vector, arrived: list[Any], version: int, _: set[int]) -> Vector:
        arrived = sorted(arrived, key=lambda own: own.device)
        if version == 0:
            new = fed.shares @ np.array([own.end for own in arrived])
            state["group"] = grouped(arrived)
            state["models"] = np.tile(new, (3, 1))
            return np.asarray(new)
        models, group = state["models"], state["group"]
        for own in arrived:
            share = 0.6 / math.sqrt(1 + version - own.version)
            models[group[own.device]] += share * (own.end - models[group[own.device]])
        mean = np.bincount(group, fed.shares) @ models
        away = np.linalg.norm(models - mean, axis=1).max()
        if away > 0.05 * np.linalg.norm(mean):
            models[:] = mean
        return np.asarray(mean)

    def start(weights: Vector, k: int) -> Vector:
        return state["models"][state["group"][k]].copy() if state else weights

    return fed.events(
        lambda weights, round_, k: fed.train(weights, round_, k, 2),
        lambda arrived, version, flying: version > 0 or not flying,
        aggregate,
        start=start,
    )


def test_no_reference_is_left_over() -> None:
    assert set(REFERENCES) == set(SCHEMES)
