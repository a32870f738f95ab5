"""What units keep on their devices: exact, whatever the uplink does, and only of what counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.deploy.deployment import Deployment
from camu.deploy.server.trainer import NodeTrainer
from camu.errors import InputError
from camu.learning.job import Job, OwnTraining
from camu.schemes import (
    ClusterScaffold,
    FedAvg,
    FedDyn,
    Plan,
    Scaffold,
    Scheme,
    State,
    View,
    make_plan,
    make_scheme,
    single_devices,
)
from camu.simulation import Callback, Record, Run, simulate
from camu.world import World, build_world

Tiny = Callable[..., World]


class Kept(Callback):
    """What units keep after every round."""

    def __init__(self) -> None:
        self.rounds: list[dict[int, np.ndarray]] = []

    def on_round(self, run: Run, record: Record) -> None:
        self.rounds.append(dict(run.kept))


def kept(world: World, scheme: Scheme) -> list[dict[int, np.ndarray]]:
    watch = Kept()
    simulate(world, scheme, [watch])
    return watch.rounds


@pytest.mark.parametrize("scheme", [Scaffold(3), ClusterScaffold(3), FedDyn(3)])
def test_device_state_is_unaffected_by_noise_of_the_uplink(tiny: Tiny, scheme: Scheme) -> None:
    """After one round from the same model, devices hold the same bits."""
    (clean,) = kept(tiny(run__rounds=1, radio__uplink="digital"), scheme)
    (noisy,) = kept(tiny(run__rounds=1, radio__noise_dbm=-80.0), scheme)
    assert clean.keys() == noisy.keys() == set(range(len(clean)))
    for unit, array in clean.items():
        assert np.abs(array).max() > 0
        np.testing.assert_array_equal(array, noisy[unit])


@pytest.mark.parametrize("scheme", [Scaffold(), ClusterScaffold()])
def test_control_variates_learn_under_harsh_noise(scheme: Scheme) -> None:
    settings = {"radio.noise_dbm": -80.0, "run.rounds": 25, "run.eval_every": 25}
    config = load_config(preset="demo", overrides=settings)
    assert simulate(build_world(config), scheme).history.final_score > 0.85


class Changes(FedAvg):
    """Keeps the last change that counted."""

    def keep(
        self, view: View, state: State, unit: int, change: np.ndarray, kept: np.ndarray | None
    ) -> np.ndarray:
        assert not change.flags.writeable
        assert (kept is None) == (unit not in view.kept)
        return change


class Shown(Changes):
    """Compares what is kept with what arrives."""

    def aggregate(self, view: View, state: State) -> Any:
        for arrival in view.arrived:
            np.testing.assert_array_equal(view.kept[arrival.unit], arrival.update)
        return super().aggregate(view, state)


def test_what_is_kept_is_shown_to_the_aggregation_that_uses_it(tiny: Tiny) -> None:
    simulate(tiny(radio__uplink="digital"), Shown())


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"radio__outage_snr_db": 23.0, "radio__fading": "rayleigh"}, "outages"),
        ({"faults__corrupt_probability": 0.5}, "refused"),
        ({"faults__dropout_probability": 0.5}, "absent"),
    ],
)
def test_a_unit_that_does_not_count_keeps_what_it_had(
    tiny: Tiny, settings: dict[str, Any], fault: str
) -> None:
    watch = Kept()
    result = simulate(tiny(run__rounds=6, **settings), Changes(), [watch])
    before: dict[int, np.ndarray] = {}
    missed = 0
    for record, now in zip(result.history.records[1:], watch.rounds, strict=True):
        renewed = [unit for unit in now if now[unit] is not before.get(unit)]
        assert len(renewed) == record.units
        missed += record.faults[fault]
        before = now
    assert missed > 0


class Regrouped(Changes):
    """Swaps the first two units after the second round."""

    def revise(self, view: View, state: State) -> Plan | None:
        if view.round != 2:
            return None
        groups = single_devices(view.world)
        plan = make_plan(self, groups, groups.sample_weights)
        first, second, *others = plan.units
        return replace(plan, units=(second, first, *others))


def test_new_members_know_nothing_of_the_old(tiny: Tiny) -> None:
    rounds = kept(tiny(run__rounds=2), Regrouped())
    assert [sorted(now) for now in rounds] == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5]]


def test_a_scheme_without_the_hook_keeps_nothing(tiny: Tiny) -> None:
    assert kept(tiny(), FedAvg()) == [{}, {}, {}]


class Optimisers(Callback):
    """What optimisers keep, and who was absent, after every round."""

    def __init__(self) -> None:
        self.rounds: list[dict[int, np.ndarray]] = []
        self.absent: list[tuple[int, ...]] = []

    def on_round(self, run: Run, record: Record) -> None:
        self.rounds.append(dict(run.optimisers))
        self.absent.append(run.absent)


@pytest.mark.parametrize("scheme", ["clustered", "local-sgd"])
def test_a_device_keeps_its_velocity_and_nobody_elses(tiny: Tiny, scheme: str) -> None:
    """Each round's v is 0.9 v + g, with the plain gradient g of the device's only step."""
    keep = {"training__momentum": 0.9, "training__optimiser_state": "keep"}
    parameters = {"local_updates": 1} if scheme == "local-sgd" else {}
    world = tiny(
        run__rounds=4,
        scheme__name=scheme,
        scheme__parameters=parameters,
        faults__dropout_probability=0.3,
        **keep,
    )
    watch = Optimisers()
    simulate(world, make_scheme(world.config), [watch])
    assert any(watch.absent)
    before: dict[int, np.ndarray] = {}
    for now, absent in zip(watch.rounds, watch.absent, strict=True):
        for device, velocity in now.items():
            known = before.get(device, np.zeros_like(velocity))
            if device in absent:
                assert np.array_equal(velocity, known)
            else:
                assert not np.array_equal(velocity, known)
        before = now
    assert len({own.tobytes() for own in before.values()}) == len(before) > 1


def test_a_reset_run_keeps_nothing_and_differs(tiny: Tiny) -> None:
    digests = []
    for state in ("reset", "keep"):
        world = tiny(run__rounds=3, training__momentum=0.9, training__optimiser_state=state)
        watch = Optimisers()
        digests.append(simulate(world, FedAvg(), [watch]).history.weights_sha256)
        assert bool(watch.rounds[-1]) == (state == "keep")
    assert digests[0] != digests[1]


def test_a_lost_update_leaves_the_optimiser_where_training_left_it(tiny: Tiny) -> None:
    """The device has trained, whether or not its update arrives."""
    world = tiny(
        run__rounds=1,
        radio__outage_snr_db=300.0,
        training__momentum=0.9,
        training__optimiser_state="keep",
    )
    watch = Optimisers()
    history = simulate(world, FedAvg(), [watch]).history
    assert history.final.faults["outages"] == world.devices.count
    assert set(watch.rounds[-1]) == set(range(world.devices.count))


def test_nodes_refuse_what_lasts_for_several_tasks(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(training__momentum=0.9).config
    apart = Deployment(config, str(tmp_path / "out"), nodes=2, granularity="device")
    trainer = NodeTrainer(apart, *[None] * 2, {}, ["0"], None)  # type: ignore[list-item,arg-type]
    with pytest.raises(InputError, match=r"training\.momentum .* use --granularity leader"):
        trainer._train_devices([], [Job((0,), (1.0,), updates=2)], 0)
    own = OwnTraining(np.zeros(3, np.float32))
    with pytest.raises(InputError, match=r"also train for themselves.* use --granularity leader"):
        trainer._train_devices([], [Job((0,), (1.0,), own=own)], 0)
