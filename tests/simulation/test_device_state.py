"""What units keep on their devices: exact, whatever the uplink does, and only of what counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
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
