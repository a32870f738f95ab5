"""Published numbers of others: rules of verdicts, settings, and the study that runs them."""

from __future__ import annotations

import json
import math
import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from camu.errors import InputError
from camu.experiments.anchors import models, partitions, schemes, verdicts
from camu.experiments.anchors.cells import Cell, Measure, names, parse, read
from camu.experiments.anchors.page import page
from camu.experiments.anchors.study import Study, judge
from camu.experiments.anchors.values import crossing, path_of
from camu.planning.plan import Plan
from camu.schemes import Scaffold, make_scheme, plans
from camu.schemes.server_steps import TwoSided
from camu.simulation import simulate
from camu.world import build_world
from helpers.configs import small

DOCS = Path(__file__).parents[2] / "docs"


def test_v1_is_welchs_interval() -> None:
    ours, theirs = [98.9, 99.1, 99.2, 98.8], np.array([98.7, 98.95, 99.2])
    found = verdicts.welch(ours, theirs.mean(), theirs.std(ddof=1), 3)
    wanted = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert found.difference_interval == pytest.approx((wanted.low, wanted.high))
    assert found.verdict == verdicts.REPRODUCED
    assert verdicts.welch(ours, 97.0, 0.05, 3).verdict == verdicts.DIFFERS
    assert verdicts.welch([90.0, 99.0, 95.0], 96.0, 2.0, 3).verdict == verdicts.UNDECIDED
    assert verdicts.welch([10.0, 10.0], 10.0, 0.0, 3).verdict == verdicts.REPRODUCED


def test_v2_is_the_interval_of_one_more_run() -> None:
    ours = [70.0, 71.0, 72.0, 73.0, 71.5, 70.5, 72.5, 71.0]
    mean, sd = np.mean(ours), np.std(ours, ddof=1)
    wanted = stats.t.interval(0.95, 7, loc=mean, scale=sd * math.sqrt(1 + 1 / 8))
    found = verdicts.predicted(ours, 72.0)
    assert found.interval == pytest.approx(wanted)
    assert found.verdict == verdicts.REPRODUCED
    assert verdicts.predicted(ours, 75.0).verdict == verdicts.DIFFERS
    assert verdicts.predicted(ours, 74.3, rounding=0.5).verdict == verdicts.REPRODUCED
    wide = [60.0, 70.0, 80.0, 65.0, 75.0, 62.0, 78.0, 71.0]
    assert verdicts.predicted(wide, 70.0).verdict == verdicts.UNINFORMATIVE


def test_the_error_of_few_test_samples_is_in_the_interval() -> None:
    shares = np.random.default_rng(0).binomial(1200, 0.85, 100_000) / 12
    low, high = verdicts.predicted([85.0] * 400, 85.0, judged=1200).interval or (0, 0)
    assert np.mean((shares >= low) & (shares <= high)) == pytest.approx(0.95, abs=0.005)


def test_v4_is_the_paired_t_test() -> None:
    differences = [1.0, 2.0, 0.5, 1.5]
    wanted = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    found = verdicts.paired(differences)
    assert found.interval == pytest.approx((wanted.low, wanted.high))
    assert found.verdict == verdicts.REPRODUCED
    assert verdicts.paired([-d for d in differences]).verdict == verdicts.DIFFERS
    assert verdicts.paired([1.0, -1.0, 0.5]).verdict == verdicts.UNDECIDED


def test_v5_works_on_logarithms_and_is_censored_where_a_run_never_arrives() -> None:
    ours = [80.0, 90.0, 85.0, 95.0, 88.0, 84.0, 92.0, 86.0]
    logs = np.log(ours)
    wanted = stats.t.interval(0.95, 7, logs.mean(), logs.std(ddof=1) * math.sqrt(1 + 1 / 8))
    found = verdicts.to_target(ours, 87)
    assert found.interval == pytest.approx(np.exp(wanted))
    assert found.verdict == verdicts.REPRODUCED
    assert verdicts.to_target(ours, 150).verdict == verdicts.DIFFERS
    assert verdicts.to_target([*ours, None], 87).verdict == verdicts.CENSORED


def test_numbers_from_memory_and_too_few_seeds_are_not_judged() -> None:
    cell = Cell("A0", "x", "V2", ("r",), Measure(round=1), 8, published=50.0)
    ours = [50.0 + 0.1 * k for k in range(8)]
    assert judge(cell, ours).verdict == verdicts.REPRODUCED
    assert judge(cell, ours[:7]).verdict == verdicts.NOT_RUN
    remembered = Cell("A0", "x", "V2", ("r",), Measure(round=1), 8, published=50.0, tag="M")
    assert judge(remembered, ours).verdict == verdicts.UNDECIDED


def test_chance_is_the_binomial_of_five_percent() -> None:
    low, high = verdicts.outside_by_chance(60)
    assert stats.binom.cdf(high, 60, 0.05) - stats.binom.cdf(low - 1, 60, 0.05) >= 0.95


def test_a_target_is_crossed_between_two_evaluations_of_the_best_so_far() -> None:
    assert crossing([0, 1, 2, 3], [0.1, 0.5, 0.4, 0.9], 0.7) == pytest.approx(2.5)
    assert crossing([0, 1], [0.1, 0.5], 0.7) is None


@pytest.mark.parametrize("name", names())
def test_every_cell_has_a_rule_and_every_run_a_configuration(name: str) -> None:
    anchor = read(name)
    for run in anchor.runs.values():
        assert run.config(3, run.rounds).run.seed == 3
    used = {own for cell in anchor.cells for own in cell.runs}
    used |= {control.run for control in anchor.controls}
    assert used == set(anchor.runs)
    for cell in anchor.cells:
        assert cell.rule in verdicts.FEWEST
        assert cell.seeds >= verdicts.FEWEST[cell.rule]
        assert (cell.rule == "V4") == (cell.published is None) == bool(cell.claim)
        assert (cell.rule == "V1") == (cell.spread is not None)
        assert cell.measure.round in anchor.runs[cell.runs[0]].stages
    assert {control.cell for control in anchor.controls} <= {cell.name for cell in anchor.cells}


def test_models_have_as_many_numbers_as_the_authors() -> None:
    wanted = {
        "Perceptron": 159_010,
        "SoftmaxPerceptron": 50_890,
        "Convolutions": 21_840,
        "SimpleCNN": 44_426,
        "TanhPerceptron": 39_760,
        "SmoothMachine": 784,
    }
    for name, count in wanted.items():
        module = getattr(models, name)((1, 28, 28), 10)
        assert sum(own.numel() for own in module.parameters()) == count, name


def test_the_loss_without_a_logarithm_is_minus_the_probability() -> None:
    logits, labels = torch.tensor([[0.2, -1.0, 0.5], [1.0, 0.0, 0.0]]), torch.tensor([2, 1])
    shares = np.exp(logits.numpy())
    shares /= shares.sum(1, keepdims=True)
    found = models.minus_probability(torch.softmax(logits, 1), labels).numpy()
    assert found == pytest.approx(-shares[[0, 1], [2, 1]])
    logs = models.log_loss_of_probabilities(torch.softmax(logits, 1), labels).numpy()
    assert logs == pytest.approx(-np.log(shares[[0, 1], [2, 1]]))


def test_the_benchmarks_partition_has_its_check_values() -> None:
    generator = np.random.default_rng(partitions.BENCH_SEED)
    found = partitions.BenchTwoLabels(None).labels_of(10, generator)
    wanted = "07 16 24 34 48 50 62 70 85 97"
    assert ["".join(map(str, own)) for own in found] == wanted.split()


@pytest.mark.slow  # MNIST is fetched where it is not in the cache
def test_its_dirichlet_partition_has_the_sizes_of_its_code_for_every_seed() -> None:
    from camu.data import load

    labels = load("mnist").train_labels
    wanted = [6631, 9475, 6099, 6004, 5074, 5106, 7397, 3742, 6052, 4420]
    for seed in (0, 1):
        generator = np.random.default_rng(seed)
        parts = partitions.BenchDirichlet(None).split(labels, 10, generator)
        assert [len(part) for part in parts] == wanted
        assert len(np.unique(np.concatenate(parts))) == 60_000


@pytest.mark.slow
def test_clients_hold_as_many_digits_as_the_authors_say() -> None:
    wanted = {("A1", "mlp-iid"): 600, ("A1", "cnn-shards"): 600, ("A15", "mlp-shards"): 480}
    wanted |= {("A19", "cnn-iid"): 420, ("B3", "c01"): 600, ("A4", "mnist-iid-fedavg"): 6000}
    for (anchor, name), samples in wanted.items():
        run = read(anchor).runs[name]
        held = build_world(run.config(0, run.rounds)).devices.samples
        assert set(held.tolist()) == {samples}, (anchor, name)
    world = build_world(read("A1").runs["mlp-shards"].config(0, 10))
    assert (world.devices.label_counts > 0).sum(axis=1).max() <= 4


def test_users_of_the_log_normal_law_hold_two_labels_and_share_no_sample() -> None:
    labels = np.arange(70_000) % 10
    parts = partitions.two_labels_by_log_normal(labels, 1000, np.random.default_rng(0))
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    for user in (0, 9, 123):
        assert set(labels[parts[user]]) == {user % 10, (user + 1) % 10}
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 10
    assert sizes.std() > sizes.mean()


def test_the_benchmarks_scaffold_is_scaffold_where_there_is_no_momentum() -> None:
    world = build_world(small(training__local_update="epoch", training__batch_samples=10))
    ours = simulate(world, schemes.BenchScaffold(local_updates=1)).history
    assert ours.weights_sha256 == simulate(world, Scaffold(local_updates=1)).history.weights_sha256


def test_its_fednova_divides_by_what_the_steps_of_a_velocity_move() -> None:
    config = small(
        training__local_update="epoch", training__batch_samples=10, training__momentum=0.9
    )
    world = build_world(config)
    plan = plans.plan(schemes.BenchNova(local_updates=2), world)
    samples = world.devices.samples
    moved = []
    for count in samples.tolist():
        velocity = total = 0.0
        for _ in range(2 * math.ceil(count / 10)):
            velocity = 0.9 * velocity + 1
            total += velocity
        moved.append(total)
    mean = float(samples @ moved / samples.sum())
    assert _scales(plan) == pytest.approx([mean / own for own in moved])


def _scales(plan: Plan) -> list[float]:
    return [unit.update_scale for unit in plan.units]


def test_fedl_with_eta_one_takes_its_first_step_along_the_mean_gradient() -> None:
    """Its correction turns every device's own gradient at the start into that of all."""
    config = small(training__batch_fraction=1.0, run__rounds=1, run__eval_every=1)
    world = build_world(config)
    plain = simulate(world, TwoSided(1, 1.0, sample_weights=True)).model()
    found = simulate(world, schemes.Fedl(1, 1.0, sample_weights=True, eta=1.0)).model()
    for own, other in zip(found.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(own, other, atol=1e-6)
    half = simulate(world, schemes.Fedl(1, 1.0, sample_weights=True, eta=0.5)).model()
    assert any(
        not torch.allclose(own, other, atol=1e-6)
        for own, other in zip(half.parameters(), plain.parameters(), strict=True)
    )


def test_blocks_are_given_as_brute_force_gives_them() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        worth = generator.random((5, 3))
        users, blocks = schemes.best_blocks(worth)
        best = max(sum(worth[u, b] for b, u in enumerate(p)) for p in permutations(range(5), 3))
        assert worth[users, blocks].sum() == pytest.approx(best)


def test_errors_of_blocks_follow_the_printed_law() -> None:
    edges = schemes.block_edges(np.array([100.0, 499.0]))
    wanted = 1 - math.exp(-1.08 * (1e-8 + 1e-14) * 100.0**2 / 0.01)
    assert edges.error[0, 0] == pytest.approx(wanted)
    megabits, gain = 39_760 * 16 / 2**20, 499.0**-2
    seconds = megabits / math.log2(1 + 0.01 * gain / 11e-8)
    assert seconds * 0.01 > 0.003  # the energy of the last block, which is forbidden then
    assert not edges.allowed[1, 5]
    assert edges.error[1, 5] == 1


def test_fixed_tau_spends_its_seconds_and_no_more() -> None:
    config = small(run__rounds=500, run__eval_every=500)
    world = build_world(config)
    history = simulate(world, schemes.TauWithin(tau=3, budget_seconds=2.0)).history
    assert history.stopped == "scheme"
    assert 3 < history.final.round <= 2.0 / (3 * 0.013) / 1


TINY = {
    "title": "a small one",
    "setting": "digits",
    "source": {"repository": "r", "file": "f", "tag": "S"},
    "base": {
        "data.dataset": "digits",
        "data.partition": "iid",
        "fleet.devices": 3,
        "training.model": "logistic",
        "training.learning_rate": 0.1,
        "scheme.name": "local-sgd",
        "run.eval_every": 1,
    },
    "runs": {
        "one": {"scheme.parameters": {"local_updates": 1}, "stages": {"2": 1, "4": 2}},
        "two": {"scheme.parameters": {"local_updates": 2}, "stages": {"4": 1}},
    },
    "cells": [
        {"name": "early", "run": "one", "measure": {"round": 2}, "published": 80.0, "spread": 5.0,
         "n": 3, "rule": "V1", "seeds": 2},
        {"name": "late", "run": "one", "published": 10.0, "spread": 0.1, "rule": "V1", "seeds": 3},
        {"name": "best", "runs": ["one", "two"], "published": 99.0, "spread": 30.0, "n": 3,
         "rule": "V1", "seeds": 2},
        {"name": "order", "runs": ["two", "one"], "rule": "V4", "claim": "2 above 1", "seeds": 3,
         "measure": {"field": "loss", "higher": False}},
    ],
    "controls": [
        {"name": "two", "run": "two", "cell": "late", "changed": "two updates a round"}
    ],
}  # fmt: skip


@pytest.mark.slow  # it starts processes
def test_parts_of_a_study_are_stopped_joined_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = parse("A0", TINY)
    monkeypatch.setattr("camu.experiments.anchors.study.read", lambda name: tiny)
    monkeypatch.setattr("camu.experiments.anchors.page.read", lambda name: tiny)
    study = Study(tmp_path / "a", ("A0",), seeds=1)
    assert study.train() == 3  # run `one` stops after 2 rounds and goes on to 4
    assert study.train() == 0
    values = study.values(tiny.runs["one"], 0)
    for rounds, digest in values.digests.items():
        world = build_world(tiny.runs["one"].config(0, int(rounds)))
        assert simulate(world, make_scheme(world.config)).history.weights_sha256 == digest

    whole = Study(tmp_path / "b", ("A0",))
    first = path_of(study.out, tiny.runs["one"], 0)
    (whole.out / "values").mkdir(parents=True)
    shutil.copy(first, whole.out / "values")
    tasks = whole.tasks()
    assert whole.train() == len(tasks) - 2  # the two stages of what was copied
    documents = {own["claim"]: own for own in whole.write()}
    assert documents["A0.late"]["verdict"] == verdicts.DIFFERS
    assert documents["A0.late"]["controls"][0]["changed"] == "two updates a round"
    assert documents["A0.order"]["verdict"] == verdicts.REPRODUCED
    assert len(documents["A0.early"]["camu"]["weights_sha256"]) == 2
    means = {
        name: np.mean([whole.values(tiny.runs[name], k).rounds[-1]["accuracy"] for k in (0, 1)])
        for name in ("one", "two")
    }
    assert means["one"] != means["two"]
    assert documents["A0.best"]["ours"]["mean"] == pytest.approx(100 * max(means.values()))
    kept = json.loads((whole.out / "anchors.json").read_text())
    assert [own["claim"] for own in kept] == list(documents)
    assert page(kept) == (whole.out / "anchors.md").read_text()


def test_an_unknown_source_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="A1"):
        Study(tmp_path, ("A99",)).tasks()


def test_the_page_in_the_docs_is_that_of_the_values_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "anchors"
    shutil.copytree(DOCS / "results" / "anchors", out)
    Study(out).write()
    assert (out / "anchors.json").read_text() == (DOCS / "results" / "anchors.json").read_text()
    assert (out / "anchors.md").read_text() == (DOCS / "anchors.md").read_text()
