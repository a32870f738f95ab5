"""Differential privacy at the device: gradients and noise by hand, epsilon by dp_accounting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import camu
from camu.deploy.deployment import Deployment, check_run
from camu.errors import InputError
from camu.learning.job import Job, LocalRule
from camu.learning.method import Method
from camu.learning.models import build_model
from camu.seeding import derive
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.world import World
from helpers.plain_torch import images_and_labels
from helpers.toys import Toy, make_toy

Tiny = Callable[..., World]
PRIVATE = {"training__normalisation": "group", "training__model": "logistic"}
SILENT = 1e-12  # noise that is no noise


@pytest.fixture(scope="module")
def toy() -> Toy:
    return make_toy(8, (60, 35, 83, 60, 5))


def trained(toy: Toy, job: Job, noise: float, unit: str = "sample", clip: float = 0.5) -> Any:
    """The model that a job changes, and by how much."""
    model = build_model("logistic", (8, 8), 10, "none", derive(3, "model"))
    method = Method(dp_unit=unit, dp_clip=clip, dp_noise=noise)
    with toy.engine(model, method=method, workers=1, batch=0.34) as engine:
        (found,) = engine.train(engine.initial, [job], 2)
        return model, found.parameters - engine.initial.parameters, engine


def test_the_gradients_of_samples_are_clipped_one_by_one(toy: Toy) -> None:
    model, change, engine = trained(toy, Job((1,), (1.0,)), SILENT)
    total, clipped = torch.zeros(change.size, dtype=torch.float64), 0
    batch = engine.batches.step(2, 1, 0)
    for index in batch:
        images, labels = images_and_labels(toy, np.array([index]))
        loss = F.cross_entropy(model(images), labels)
        own = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters())])
        norm = float(own.double().norm())
        clipped += norm > 0.5
        total += own.double() * min(1.0, 0.5 / norm)
    assert clipped
    expected = -engine.learning_rate * total.numpy() / len(batch)
    np.testing.assert_allclose(change, expected, atol=1e-6)


@pytest.mark.parametrize("unit", ["sample", "update"])
def test_noise_has_the_variance_that_is_asked_for(toy: Toy, unit: str) -> None:
    """Of a sum of samples' gradients, and of an update."""
    job = Job((1,), (1.0,), updates=1)
    _, loud, engine = trained(toy, job, 3.0, unit)
    _, quiet, _ = trained(toy, job, SILENT, unit)
    noise, size = loud - quiet, len(engine.batches.step(2, 1, 0))
    scale = engine.learning_rate / size if unit == "sample" else 1.0
    expected = (3.0 * 0.5 * scale) ** 2
    # The variance of q squares of normal numbers is 2 q.
    q = noise.size
    assert abs(float(np.square(noise).sum()) / expected - q) < 5 * np.sqrt(2 * q)
    assert abs(float(noise.sum())) < 5 * np.sqrt(q * expected)
    again = trained(toy, job, 3.0, unit)[1]
    other = trained(toy, replace(job, members=(3,)), 3.0, unit)[1]
    assert np.array_equal(again, loud)
    assert not np.allclose(other - trained(toy, replace(job, members=(3,)), SILENT, unit)[1], noise)


@pytest.mark.parametrize("unit", ["sample", "update"])
def test_members_of_a_unit_have_noise_of_their_own(toy: Toy, unit: str) -> None:
    """The mean of three has a third of the variance, also where updates are gathered twice."""
    job = Job((0, 1, 3), (1.0, 1.0, 1.0), updates=1)
    alone = [Job((k,), (1.0,)) for k in job.members]
    noise = trained(toy, job, 3.0, unit)[1] - trained(toy, job, SILENT, unit)[1]
    each = [trained(toy, one, 3.0, unit)[1] - trained(toy, one, SILENT, unit)[1] for one in alone]
    np.testing.assert_allclose(noise, np.mean(each, axis=0), atol=1e-5)


def test_an_update_is_as_long_as_its_bound_whatever_it_took(toy: Toy) -> None:
    """One device's whole round counts once, and each member's update in a unit of several."""
    for steps in (1, 5):
        _, change, _ = trained(toy, Job((1,), (1.0,), updates=steps), SILENT, "update", clip=1e-3)
        assert np.linalg.norm(change) == pytest.approx(1e-3, rel=3e-3)
    _, change, _ = trained(toy, Job((1, 1), (1.0, 1.0), updates=4), SILENT, "update", clip=1e-3)
    assert 2e-3 < np.linalg.norm(change) <= 4.01e-3


def epsilon(events: Any, delta: float) -> float:
    """By dp_accounting, with the noise relative to what one exchanged record can change."""
    accounting = pytest.importorskip("dp_accounting")
    accountant = accounting.rdp.RdpAccountant(
        neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE
    )
    for event, count in events(accounting):
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def sampled(accounting: Any) -> Any:
    event = accounting.GaussianDpEvent(4.0 / 2)
    return [(accounting.SampledWithoutReplacementDpEvent(20, 4, event), 4)]


def passes(accounting: Any) -> Any:
    return [(accounting.GaussianDpEvent(4.0 / 2), 4 * 2)]


def rounds(accounting: Any) -> Any:
    return [(accounting.GaussianDpEvent(4.0 / 2), 4)]


CASES = {
    "a batch of a fifth": ("fedavg", "step", "sample", 1, sampled),
    "two passes of five batches, the second begun": ("local-sgd", "step", "sample", 6, passes),
    "two epochs": ("local-sgd", "epoch", "sample", 2, passes),
    "updates of a device": ("local-sgd", "step", "update", 3, rounds),
}


@pytest.mark.parametrize("case", CASES)
def test_epsilon_is_that_of_dp_accounting(tiny: Tiny, case: str) -> None:
    scheme, local_update, unit, updates, events = CASES[case]
    expected = epsilon(events, 1e-4)
    own = camu.schemes.FedAvg() if scheme == "fedavg" else camu.schemes.LocalSgd(updates)
    world = tiny(
        run__rounds=4,
        run__eval_every=2,
        data__samples_per_device=20,
        training__batch_fraction=0.2,
        training__local_update=local_update,
        training__dp_unit=unit,
        training__dp_noise=4.0,
        training__dp_delta=1e-4,
        **PRIVATE,
    )
    assert set(world.devices.samples.tolist()) == {20}
    records = camu.simulate(world, own).history.records
    assert [record.epsilon is None for record in records] == [False, True, False, True, False]
    assert records[0].epsilon == 0.0
    assert records[0].epsilon < records[2].epsilon < records[4].epsilon
    assert records[4].epsilon == pytest.approx(expected, rel=1e-9)
    assert camu.Record.from_dict(records[4].to_dict()) == records[4]


def test_members_release_every_gather(tiny: Tiny) -> None:
    """A unit of several sends each local update to its leader; one that is alone its last."""
    changes = {"training__dp_unit": "update", "training__dp_noise": 4.0, **PRIVATE}
    world = tiny(run__rounds=1, training__dp_delta=1e-4, **changes)
    clusters = [unit.members for unit in camu.schemes.HierFavg().plan(world).units]
    assert max(map(len, clusters)) > 1
    updates = camu.schemes.HierFavg().plan(world).units[0].local_updates

    def gathers(accounting: Any) -> Any:
        return [(accounting.GaussianDpEvent(4.0 / 2), updates)]

    expected = epsilon(gathers, 1e-4)
    final = camu.simulate(world, camu.schemes.HierFavg()).history.final
    assert final.epsilon == pytest.approx(expected, rel=1e-9)


def test_workers_and_a_resume_change_nothing(tiny: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    changes = {"training__dp_unit": "sample", "training__momentum": 0.5, **PRIVATE}
    config = tiny(run__rounds=6, machine__checkpoint_every=2, run__eval_every=3, **changes).config
    whole = run_in_directory(config, RunDirectory(tmp_path / "whole"))
    for workers in (2, 3):
        changed = config.replace({"machine.workers": workers})
        found = run_in_directory(changed, RunDirectory(tmp_path / f"{workers}"))
        assert found.weights_sha256 == whole.weights_sha256
    part = RunDirectory(tmp_path / "part")
    run_in_directory(config.replace({"run.rounds": 2}), part)
    resumed = run_in_directory(config, part, resume=True)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.final.epsilon == whole.final.epsilon > 0
    assert part.read_summary()["epsilon"] == part.read_history().epsilon == whole.final.epsilon
    assert [row.get("epsilon") for row in whole.rows()] == [r.epsilon for r in whole.records]


def test_what_has_no_epsilon_is_refused(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    private = {"training__dp_unit": "sample", "run__rounds": 1}
    with pytest.raises(InputError, match=r"training\.dp_unit = sample: the model has buffers"):
        camu.simulate(tiny(**private, training__model="cnn"), camu.schemes.FedAvg())
    world = tiny(**private, **PRIVATE)
    with pytest.raises(InputError, match="no epsilon covers"):
        camu.simulate(world, camu.make_scheme(world.config, "adaptive-tau"))
    with pytest.raises(InputError, match="devices also train for themselves"):
        camu.simulate(world, camu.make_scheme(world.config, "ditto"))
    with pytest.raises(InputError, match=r"training\.dp_unit = sample: scheme oort chooses by"):
        camu.make_scheme(world.config, "oort").plan(world)
    with pytest.raises(InputError, match=r"training\.dp_unit = sample: nodes count .* by rounds"):
        check_run(Deployment(world.config, str(tmp_path / "out"), "device", nodes=2))
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setattr("camu.simulation.privacy.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"camu-fl\[privacy\]"):
        camu.simulate(world, camu.schemes.FedAvg())


def test_a_rule_cannot_switch_privacy_off(toy: Toy) -> None:
    """Clipping, momentum and Adam of a rule act on what is private already."""
    _, plain, _ = trained(toy, Job((1,), (1.0,)), 3.0)
    for rule in (LocalRule(optimiser="sgd", clip_norm=1e9), LocalRule(momentum=0.5)):
        _, change, _ = trained(toy, Job((1,), (1.0,), rule=rule), 3.0)
        np.testing.assert_allclose(change, plain, rtol=1e-5, atol=1e-6)
