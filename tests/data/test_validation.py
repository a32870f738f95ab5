"""Samples held back from training: who holds them, who trains on them, and what judges a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camu
from camu.config import DataConfig
from camu.data import federate
from camu.data.federation import Federation, federate_counts
from camu.errors import InputError
from camu.simulation.dry_run import dry_run
from helpers.configs import small

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def dealt(share: float, seed: int = 3, **changes: Any) -> Federation:
    config = DataConfig(dataset="digits", partition="iid", validation_share=share, **changes)
    return federate(config, devices=10, seed=seed)


def test_each_device_holds_back_its_share_and_trains_on_the_rest() -> None:
    whole, split = dealt(0.0), dealt(0.2)
    data, held = whole.dataset, split.dataset
    for before, trained, own in zip(whole.indices, split.indices, split.test_indices, strict=True):
        assert len(own) == round(0.2 * len(before))
        # The held-back samples, found again by their pixels among those the device had.
        kept = {data.train_inputs[k].tobytes() for k in before}
        assert {held.test_inputs[k].tobytes() for k in own} <= kept
        assert set(trained) < set(before)
        assert len(trained) + len(own) == len(before)
        gone = sorted(set(before) - set(trained))
        assert sorted(data.train_targets[gone]) == sorted(held.test_targets[own])
    assert len(held.test_inputs) == sum(map(len, split.test_indices)) == held.spec.test_samples
    test = {image.tobytes() for image in data.test_inputs}
    assert not test & {image.tobytes() for image in held.test_inputs}  # never the test set
    assert "the test samples are not used" in split.notes[-1]


def test_what_is_held_back_follows_from_the_seed() -> None:
    one, again, other = (dealt(0.2, seed).dataset.test_inputs for seed in (3, 3, 4))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_no_device_trains_on_what_another_one_holds_back() -> None:
    counts = np.full((30, 10), 12)  # 3,600 of 1,497 samples: devices share them
    config = DataConfig(dataset="digits", with_replacement=True, validation_share=0.2)
    split = federate_counts(config, counts, tuple(range(10)), 3, "f.csv")
    held = {image.tobytes() for image in split.dataset.test_inputs}
    trained = np.unique(np.concatenate(split.indices))
    assert not held & {split.dataset.train_inputs[k].tobytes() for k in trained}
    assert min(map(len, split.test_indices)) == 24


def test_a_share_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no device has a sample to spare"):
        dealt(0.2, samples_per_device=2)
    assert min(map(len, dealt(0.9, samples_per_device=2).indices)) == 1


def test_a_run_is_judged_by_them_and_pays_for_what_it_trains_on() -> None:
    config = small(data__validation_share=0.25, training__metrics=("worst-device-accuracy",))
    world = camu.build_world(config)
    assert world.federation is not None
    assert "validation_share" in " ".join(world.notes)
    assert world.devices.samples.tolist() == [len(part) for part in world.federation.indices]
    history = camu.simulate(world, camu.schemes.FedAvg()).history
    costs = dry_run(world, camu.schemes.FedAvg(), 2).final
    assert history.final.total_joules == pytest.approx(costs.total_joules, rel=1e-12)
    whole = camu.build_world(config.replace({"data.validation_share": 0.0}))
    all_ = camu.simulate(whole, camu.schemes.FedAvg()).history
    assert history.final.total_joules < all_.final.total_joules


def test_a_fleet_file_is_planned_for_what_its_devices_train_on() -> None:
    keys = {"fleet.file": str(EXAMPLES / "links.csv"), "data.noniid_devices": None}
    whole = camu.build_world(small(**{k.replace(".", "__"): v for k, v in keys.items()}))
    held = camu.build_world(whole.config.replace({"data.validation_share": 0.5}))
    assert held.federation is not None
    assert held.devices.samples.sum() == pytest.approx(0.5 * whole.devices.samples.sum(), rel=0.05)


def test_nodes_hold_nothing_back(tmp_path: Path) -> None:
    from camu.deploy.deployment import Deployment, check_run

    config = small(data__validation_share=0.2, scheme__name="fedavg")
    with pytest.raises(InputError, match=r"data\.validation_share = 0\.2: nodes train on all"):
        check_run(Deployment(config, out=str(tmp_path)))
