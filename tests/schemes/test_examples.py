"""The example schemes of the documentation: short, shown as they are, and right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from camu.learning.weights import Weights
from camu.planning.codecs import Raw
from camu.plugins import import_object
from camu.schemes import FedAvg, LocalSgd, Scheme, State, View, add_updates
from camu.simulation import Callback, Record, Run, simulate
from camu.simulation.result import build_engine
from camu.world import World

DOCS = Path(__file__).parents[2] / "docs"
MOST_LINES = {
    "fairness_scheme": 40,
    "fedprox": 25,
    "sampling": 25,
    "scaffold": 50,
    "fedbuff": 40,
}
Tiny = Callable[..., World]


def example(name: str, **parameters: Any) -> Scheme:
    file, _, kind = name.partition(":")
    scheme: Scheme = import_object(f"{DOCS / 'examples' / file}.py:{kind}", "example")(**parameters)
    return scheme


def bits(world: World, scheme: Scheme) -> str:
    return simulate(world, scheme).history.weights_sha256


class Models(Callback):
    """The global model after every round, round 0 included."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def on_start(self, run: Run) -> None:
        self.seen.append(run.weights.parameters)

    def on_round(self, run: Run, record: Record) -> None:
        self.seen.append(run.weights.parameters)


def models(world: World, scheme: Scheme) -> list[np.ndarray]:
    watch = Models()
    simulate(world, scheme, [watch])
    return watch.seen


@pytest.mark.parametrize("name", MOST_LINES)
def test_the_page_shows_the_file_that_is_run_here(name: str) -> None:
    text = (DOCS / "examples" / f"{name}.py").read_text("utf-8")
    pages = (DOCS / f"{page}.md" for page in ("own-scheme", "scheme-examples"))
    page = "".join(page.read_text("utf-8") for page in pages)
    assert text in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(text.splitlines()) <= MOST_LINES[name]
    assert f"(examples/{name}.py)" in page


def test_every_example_is_tested_here() -> None:
    # Two make fleet files (tests/world runs them), one is a model with adapters
    # (tests/learning/test_own_networks.py trains it), one has the models of a table in the docs,
    # one is a meter (tests/deploy/test_measuring.py reads it).
    others = {"make_gateways", "make_export", "adapters", "ten_models", "ina219"}
    found = {path.stem for path in (DOCS / "examples").glob("*.py")}
    assert found - others == set(MOST_LINES)


# FedProx


def test_fedprox_with_one_update_is_fedavg_bit_for_bit(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, example("fedprox:FedProx", m=1.0, local_updates=1)) == bits(world, FedAvg())


def test_fedprox_without_its_term_is_local_sgd_bit_for_bit(tiny: Tiny) -> None:
    world = tiny()
    found = bits(world, example("fedprox:FedProx", m=0.0, local_updates=4))
    assert found == bits(world, LocalSgd(4))
    assert found != bits(world, example("fedprox:FedProx", m=0.5, local_updates=4))


def test_a_stronger_pull_keeps_devices_closer(tiny: Tiny) -> None:
    world = tiny(run__rounds=1, radio__uplink="digital")
    moved = []
    for m in (0.0, 0.1, 1.0, 10.0 - 1e-9):
        start, end = models(world, example("fedprox:FedProx", m=m, local_updates=5))
        moved.append(float(np.linalg.norm(end - start)))
    assert moved == sorted(moved, reverse=True)
    # At rate * m = 1 every step starts over from the global model.
    (start, once), (_, last) = (
        models(world, example("fedprox:FedProx", m=m, local_updates=n))
        for m, n in ((0.0, 1), (10.0, 5))
    )
    assert np.linalg.norm(last - start) < 1.5 * np.linalg.norm(once - start)


# Sampling


def test_sampling_everyone_is_fedavg_bit_for_bit(tiny: Tiny) -> None:
    world = tiny()
    for devices in (6, 100):
        assert bits(world, example("sampling:Sampling", devices=devices)) == bits(world, FedAvg())


def test_sampling_takes_part_of_the_devices_each_equally_often(tiny: Tiny) -> None:
    world = tiny(run__rounds=200)
    scheme = example("sampling:Sampling", devices=2)
    seen: list[tuple[int, ...]] = []

    class Spy(type(scheme)):  # type: ignore[misc]
        def aggregate(self, view: View, state: State) -> Weights:
            seen.append(tuple(sorted(arrival.unit for arrival in view.arrived)))
            weights: Weights = super().aggregate(view, state)
            return weights

    history = simulate(world, Spy(devices=2)).history
    assert all(record.units == 2 for record in history.records[1:])
    assert len(set(seen)) == 15  # every pair of six comes up
    counts = np.bincount(np.array(seen).ravel(), minlength=6)
    # 200 draws with probability 1/3: the standard deviation is 6.7.
    assert np.abs(counts - 200 / 3).max() < 5 * 6.7


# SCAFFOLD


def scaffold(local_updates: int) -> Scheme:
    return example("scaffold:Scaffold", local_updates=local_updates)


def test_scaffold_with_one_update_is_fedavg(tiny: Tiny) -> None:
    """The corrections of all devices add up to nothing; in the first round there is none."""
    sizes = {"data__size_exponent": 1.0, "data__with_replacement": True}
    world = tiny(run__rounds=6, radio__uplink="digital", **sizes)
    assert len(set(world.devices.samples)) > 1
    mine, plain = models(world, scaffold(1)), models(world, FedAvg())
    assert np.array_equal(mine[1], plain[1])
    for one, two in zip(mine, plain, strict=True):
        assert np.abs(one - two).max() < 1e-5
    assert not np.array_equal(mine[2], plain[2])


def test_scaffold_sends_twice_as_much(tiny: Tiny) -> None:
    world = tiny()
    mine, plain = scaffold(5).plan(world), LocalSgd(5).plan(world)
    for one, two in zip(mine.units, plain.units, strict=True):
        assert one.codec == Raw(copies=2)
        assert one.uplink_joules == 2 * two.uplink_joules
        assert one.compute_joules == two.compute_joules


def test_scaffold_against_its_algorithm_written_out(tiny: Tiny) -> None:
    """Algorithm 1 (option II) with full batches, as plain arrays of double precision."""
    world = tiny(
        run__rounds=4, radio__uplink="digital", training__batch_fraction=1.0, training__l2=0.01
    )
    found = models(world, scaffold(3))
    rate, shares = world.config.training.learning_rate, world.devices.samples / 120
    with build_engine(world) as engine:
        x = engine.initial.parameters.astype(np.float64)
        own, mean = np.zeros((6, x.size)), np.zeros(x.size)
        for result in found:
            assert np.abs(x - result).max() < 1e-5
            moved, new = np.zeros_like(x), np.zeros_like(own)
            for k in range(6):
                y = x.copy()
                for _ in range(3):
                    gradient = engine.gradient(engine.initial.with_parameters(y), [k])
                    y -= rate * (gradient - own[k] + mean)
                new[k] = own[k] - mean + (x - y) / (3 * rate)
                moved += shares[k] * (y - x)
            mean = mean + shares @ (new - own)
            own, x = new, x + moved


@pytest.mark.slow
def test_scaffold_ends_nearer_the_optimum_than_local_sgd(tiny: Tiny) -> None:
    """Full batches of a strongly convex loss: local SGD drifts to another point, SCAFFOLD not."""
    world = tiny(
        run__rounds=40,
        radio__uplink="digital",
        training__batch_fraction=1.0,
        training__l2=0.3,
        training__learning_rate=0.3,
        data__noniid_devices=6,
    )
    with build_engine(world) as engine:
        first = engine.initial

        def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            at = first.with_parameters(parameters)
            return engine.loss(at), engine.gradient(at).astype(np.float64)

        best = minimize(loss, first.parameters, jac=True, method="L-BFGS-B", tol=1e-12).x
    away = {
        name: float(np.linalg.norm(models(world, scheme)[-1] - best))
        for name, scheme in (("scaffold", scaffold(5)), ("local-sgd", LocalSgd(5)))
    }
    assert away["local-sgd"] > 0.05
    assert away["scaffold"] < 0.02 * away["local-sgd"]


# FedBuff


class Waiting(FedAvg):
    """FedAvg, with a factor per update that is rounded before the sum."""

    def aggregate(self, view: View, state: State) -> Weights:
        total = sum(arrival.weight for arrival in view.arrived)
        return add_updates(view, [arrival.weight / total for arrival in view.arrived])


def test_fedbuff_with_a_buffer_for_everyone_is_fedavg(tiny: Tiny) -> None:
    world = tiny()
    assert bits(world, example("fedbuff:FedBuff", buffer=6)) == bits(world, Waiting())
    for one, other in zip(models(world, Waiting()), models(world, FedAvg()), strict=True):
        assert np.abs(one - other).max() < 1e-6
    slow = models(world, example("fedbuff:FedBuff", buffer=6, server_rate=0.5))
    fast = models(world, FedAvg())
    assert slow[1] - slow[0] == pytest.approx((fast[1] - fast[0]) / 2, abs=1e-6)


def test_fedbuff_weighs_late_updates_by_their_staleness(tiny: Tiny) -> None:
    world = tiny(run__rounds=25, radio__access="ofdma")
    kind = type(example("fedbuff:FedBuff"))
    staleness: list[int] = []

    class Spy(kind):  # type: ignore[misc,valid-type]
        def aggregate(self, view: View, state: State) -> Weights:
            new: Weights = super().aggregate(view, state)
            assert len(view.arrived) == 2
            total = sum(a.weight for a in view.arrived)
            step = np.zeros(new.parameters.size)
            for arrival in view.arrived:
                staleness.append(arrival.staleness)
                factor = 0.7 * arrival.weight / total * (1 + arrival.staleness) ** -0.5
                step += factor * arrival.update.astype(np.float64)
            expected = view.weights.parameters + step
            assert np.abs(new.parameters - expected).max() < 1e-6
            return new

    history = simulate(world, Spy(buffer=2, server_rate=0.7)).history
    assert max(staleness) >= 3
    # The server waits for two of six, so that its rounds are shorter than FedAvg's.
    assert history.final.virtual_seconds < 25 * FedAvg().plan(world).round_seconds / 2
