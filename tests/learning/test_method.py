"""How devices step, against torch's own optimisers: one device and units of several."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import camu
from camu.deploy.messages import Task, read_task, write_task
from camu.errors import InputError
from camu.learning.job import Job, LocalRule, OwnTraining, one_update
from camu.learning.method import Method
from camu.learning.models import build_model
from camu.learning.weights import weighted_mean
from camu.planning.contribution import gradient_steps
from camu.seeding import derive
from helpers.plain_torch import average, flat, images_and_labels

METHODS = {
    "momentum": Method(momentum=0.9),
    "nesterov": Method(momentum=0.8, nesterov=True),
    "adam": Method(optimiser="adam"),
    "decay": Method(weight_decay=0.3),
    "adamw": Method(optimiser="adam", weight_decay=0.3),
    "clipping": Method(clip_norm=0.4),
    "clipped momentum": Method(clip_norm=0.4, momentum=0.9, weight_decay=0.1),
    "cosine": Method(momentum=0.5, schedule="cosine", schedule_rounds=9, schedule_factor=0.2),
    "cosine by step": Method(schedule="cosine", schedule_rounds=9, schedule_by="step"),
    "inverse by step": Method(weight_decay=0.3, schedule="inverse", schedule_by="step"),
}
UNITS = {"one device": ((1,), (1.0,)), "several": ((0, 2, 4), (2.0, 3.0, 1.0))}
ROUND = 6


def optimiser_of(method: Method, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    own = model.parameters()
    if method.optimiser == "adam":
        return torch.optim.AdamW(own, lr=rate, weight_decay=method.weight_decay)
    return torch.optim.SGD(own, lr=rate, momentum=method.momentum, nesterov=method.nesterov)


def rate_of(method: Method, rate: float, progress: float) -> float:
    part = progress / method.schedule_rounds
    if method.schedule == "cosine":
        least = method.schedule_factor * rate
        return least + (rate - least) * 0.5 * (1 + np.cos(np.pi * min(part, 1)))
    return rate / (1 + part) if method.schedule == "inverse" else rate


def train(model: nn.Module, toy: Any, engine: Any, job: Job, method: Method) -> np.ndarray:
    """Every member with an optimiser of its own, all of them averaged after each update."""
    unit, shares = copy.deepcopy(model), [weight / sum(job.weights) for weight in job.weights]
    start = flat(model)[0]
    members = [copy.deepcopy(model) for _ in job.members]
    adam = method.optimiser == "adam"
    rate, l2 = engine.learning_rate * job.rule.rate, engine.l2
    optimisers = [optimiser_of(method, local, rate) for local in members]
    for update in range(job.updates):
        for device, local, optimiser in zip(job.members, members, optimisers, strict=True):
            local.load_state_dict(unit.state_dict())
            per_pass = engine.batches.per_epoch(device, job.rule.batch)
            count = job.rule.steps * (per_pass if engine.local_update == "epoch" else 1)
            for step in range(update * count, (update + 1) * count):
                part = step / (job.updates * count) if method.schedule_by == "step" else 0
                now = rate_of(method, rate, ROUND + part)
                optimiser.param_groups[0]["lr"] = now
                indices = engine.batches.step(ROUND, device, step, job.rule.batch)
                images, labels = images_and_labels(toy, indices)
                optimiser.zero_grad()
                loss = F.cross_entropy(local(images), labels)
                all_of = torch.cat([p.reshape(-1) for p in local.parameters()])
                loss = loss + job.rule.proximal / 2 * (all_of - start).square().sum()
                loss.backward()
                if method.clip_norm:
                    nn.utils.clip_grad_norm_(local.parameters(), method.clip_norm)
                with torch.no_grad():
                    for parameter in local.parameters():
                        parameter.grad += l2 * parameter
                        if not adam:  # torch's SGD has no decay of this kind
                            parameter.mul_(1 - now * method.weight_decay)
                optimiser.step()
        states = [copy.deepcopy(local) for local in members]
        average(states, shares)
        unit = states[0]
    return flat(unit)[0].numpy()


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("local_update", ["step", "epoch"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", METHODS)
def test_steps_are_those_of_torch(
    small_toy: Any, name: str, unit: str, local_update: str, steps: int
) -> None:
    model = build_model("logistic", (8, 8), 10, "none", derive(3, "model"))
    method, (members, weights) = METHODS[name], UNITS[unit]
    options = {"local_update": local_update, "l2": 0.01, "batch": 0.34, "workers": 1}
    with small_toy.engine(model, method=method, **options) as engine:
        job = Job(members, weights, updates=3, rule=LocalRule(steps=steps, proximal=0.2))
        (found,) = engine.train(engine.initial, [job], ROUND)
        expected = train(model, small_toy, engine, job, method)
        (plain,) = engine.train(engine.initial, [replace(job, rule=OTHER)], ROUND)
    assert np.abs(found.parameters - expected).max() < 2e-5
    assert np.abs(found.parameters - plain.parameters).max() > 1e-3  # the method does something


OTHER = LocalRule(optimiser="sgd", rate=0.5)


def test_a_rule_replaces_what_is_configured(small_toy: Any) -> None:
    """A scheme's numbers stand before those of the configuration, and None leaves these."""
    model = build_model("logistic", (8, 8), 10, "none", derive(3, "model"))
    plain, own = Method(weight_decay=0.3), Method(momentum=0.9, clip_norm=0.4)
    both = replace(own, weight_decay=0.3)
    rule = LocalRule(momentum=0.9, clip_norm=0.4)
    found = []
    for method, its in ((plain, rule), (both, LocalRule()), (both, LocalRule(weight_decay=0.0))):
        with small_toy.engine(model, method=method, workers=1) as engine:
            (one,) = engine.train(engine.initial, [Job((0, 1), (1.0, 1.0), 3, rule=its)], 0)
            found.append(one.parameters)
    assert np.array_equal(found[0], found[1])
    assert np.abs(found[1] - found[2]).max() > 1e-4


def test_momentum_lengthens_a_round_as_fednova_says(tiny: Any) -> None:
    """The steps of a unit are the sum of what each gradient moves, here with gradients of 1."""
    for nesterov in (False, True):
        world = tiny(**{"training.momentum": 0.9, "training.nesterov": nesterov})
        plan = camu.plan(camu.schemes.LocalSgd(local_updates=4), world)
        velocity = moved = 0.0
        for _ in range(4):
            velocity = 0.9 * velocity + 1
            moved += 1 + 0.9 * velocity if nesterov else velocity
        assert gradient_steps(world, plan.units[0]) == pytest.approx(moved)


def test_rules_are_saved_with_their_plan(tiny: Any, tmp_path: Any) -> None:
    rule = LocalRule(optimiser="adam", weight_decay=0.1, clip_norm=2.0)

    class Own(camu.schemes.FedAvg):
        def plan(self, world: camu.World) -> camu.Plan:
            groups = camu.schemes.single_devices(world)
            return camu.schemes.make_plan(self, groups, groups.sample_weights, rule=rule)

    world = tiny()
    plan = camu.plan(Own(), world)
    assert camu.Plan.from_dict(plan.to_dict(world), "here").units[0].rule == rule


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"momentum": 0.5, "optimiser": "adam"}, "training.momentum"),
        ({"nesterov": True}, "training.momentum"),
        ({"schedule": "step", "schedule_factor": 0.0}, "training.schedule_factor"),
        ({"clip_norm": -1.0}, "training.clip_norm"),
    ],
)
def test_configurations_without_a_meaning_are_refused(changes: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        camu.load_config(overrides={f"training.{key}": value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (LocalRule(optimiser="lion"), r"rule\.optimiser"),
        (LocalRule(momentum=1.0), r"rule\.momentum"),
        (LocalRule(momentum=0.5, optimiser="adam"), r"rule\.momentum"),
        (LocalRule(clip_norm=float("inf")), r"rule\.clip_norm"),
        (LocalRule(weight_decay=-1), r"rule\.weight_decay"),
    ],
)
def test_rules_out_of_range_are_refused(small_toy: Any, rule: LocalRule, words: str) -> None:
    with (
        small_toy.engine("logistic", "none", workers=1) as engine,
        pytest.raises(InputError, match=words),
    ):
        engine.train(engine.initial, [Job((0,), (1.0,), rule=rule)], 0)


NATIVE = {
    **{name: METHODS[name] for name in METHODS if METHODS[name].optimiser == "sgd"},
    "all": Method(
        momentum=0.9,
        nesterov=True,
        weight_decay=0.1,
        clip_norm=0.5,
        schedule="cosine",
        schedule_rounds=20,
        schedule_by="step",
    ),
}


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("local_update", ["step", "epoch"])
@pytest.mark.parametrize("name", NATIVE)
def test_steps_of_every_kernel_are_those_of_torch(
    small_toy: Any, kernel: str, name: str, local_update: str, updates: int
) -> None:
    model = build_model("cnn", (8, 8), 10, "group", derive(3, "model"))
    options = {"local_update": local_update, "l2": 0.01, "batch": 0.34, "learning_rate": 0.02}
    rule = LocalRule(proximal=0.2)
    with small_toy.engine(
        model, method=NATIVE[name], kernel=kernel, workers=1, **options
    ) as engine:
        assert engine.kernel.startswith(kernel)
        jobs = [Job(*unit, updates=updates, rule=rule) for unit in UNITS.values()]
        found = engine.train(engine.initial, jobs, ROUND)
        expected = [train(model, small_toy, engine, job, NATIVE[name]) for job in jobs]
    for one, own in zip(found, expected, strict=True):
        moved = np.abs(own - engine.initial.parameters).max()
        assert np.abs(one.parameters - own).max() < 2e-3 * moved


@pytest.mark.parametrize("local_update", ["step", "epoch"])
def test_workers_and_company_do_not_change_a_bit(
    small_toy: Any, kernel: str, local_update: str
) -> None:
    """Nor do units that share a call, some of which can share a pass and some cannot."""
    rules = [LocalRule(), LocalRule(clip_norm=0.3), LocalRule(momentum=0.0), LocalRule(steps=2)]
    jobs = [
        Job(members, weights, updates=updates, rule=rule)
        for rule in rules
        for updates in (1, 2)
        for members, weights in UNITS.values()
    ]
    method = Method(momentum=0.9, weight_decay=0.1, schedule="inverse")
    found = []
    for workers in (1, 2, 3):
        with small_toy.engine(
            "cnn", "batch", method=method, workers=workers, kernel=kernel, local_update=local_update
        ) as engine:
            found.append([own.sha256() for own in engine.train(engine.initial, jobs, 3)])
            alone = [engine.train(engine.initial, [job], 3)[0].sha256() for job in jobs]
        assert found[-1] == found[0] == alone


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam"])
def test_a_kept_state_goes_on_where_it_was(small_toy: Any, kernel: str, name: str) -> None:
    """Two jobs with the state between them are one job, also for a unit of several."""
    method = METHODS[name]
    if kernel == "native" and name == "adam":
        pytest.skip("Adam trains on torch's layers")
    with small_toy.engine("cnn", "none", method=method, workers=1, kernel=kernel) as engine:
        for members, weights in UNITS.values():
            job = Job(members, weights, 4, states=(None,) * len(members))
            (whole,) = list(engine.iterate(engine.initial, [job], 0))
            half = replace(job, updates=2)
            (first,) = list(engine.iterate(engine.initial, [half], 0))
            assert [own.size for own in first.states] == [
                method.state_length(engine.initial.parameters.size)
            ] * len(members)
            rest = replace(half, first=2, states=first.states)
            (second,) = list(engine.iterate(first.weights.copied(), [rest], 0))
            (forgotten,) = list(engine.iterate(first.weights, [replace(rest, states=None)], 0))
            assert np.array_equal(second.weights.parameters, whole.weights.parameters)
            for own, expected in zip(second.states, whole.states, strict=True):
                assert np.array_equal(own, expected)
            assert not np.array_equal(forgotten.weights.parameters, whole.weights.parameters)


@pytest.mark.parametrize("name", ["momentum", "cosine by step", "clipped momentum", "adam"])
def test_updates_that_are_tasks_of_their_own_are_those_of_the_whole_job(
    small_toy: Any, name: str
) -> None:
    """As nodes and gathers over the air train: one member, one update, the mean in between."""
    members, weights = UNITS["several"]
    whole = Job(members, weights, updates=3, rule=LocalRule(proximal=0.2))
    with small_toy.engine("logistic", "none", method=METHODS[name], workers=1) as engine:
        (expected,) = engine.train(engine.initial, [whole], ROUND)
        state, kept = engine.initial, [None] * len(members)
        for update in range(3):
            parts = [one_update(whole, device, update, engine.initial, kept) for device in members]
            task = Task(ROUND, 5, {k: str(k) for k in members}, tuple(parts))
            sent, starts = read_task(write_task(task, [state] * len(parts)), state.layout)
            assert [job.round_updates for job in sent.jobs] == [3] * len(members)
            jobs = [
                replace(job, states=part.states) for job, part in zip(sent.jobs, parts, strict=True)
            ]
            found = list(engine.iterate(starts, jobs, ROUND))
            pairs = zip(whole.shares, found, strict=True)
            state = weighted_mean([(share, one.weights) for share, one in pairs])
            kept = [one.states[0] if one.states else None for one in found]
    assert np.abs(state.parameters - expected.parameters).max() < 1e-6
    assert np.abs(state.parameters - engine.initial.parameters).max() > 1e-3


def test_parts_of_a_model_follow_the_schedule_of_the_round(small_toy: Any) -> None:
    """Where a step is a job of its own, it has the rate of its place in the round."""
    method = replace(METHODS["cosine by step"], weight_decay=0.1)
    job = Job((1,), (1.0,), updates=4)
    with small_toy.engine("logistic", "none", method=method, workers=1) as engine:
        begin = engine.initial.parameters
        own = OwnTraining(begin, updates=4, only=np.ones(begin.size, dtype=bool), first=True)
        (found,) = list(engine.iterate(engine.initial, [replace(job, updates=1, own=own)], ROUND))
        (expected,) = engine.train(engine.initial, [job], ROUND)
    assert np.array_equal(found.own, expected.parameters)


@pytest.mark.parametrize("name", ["schedule_rounds=7", "schedule_factor=0.5", "schedule_by=step"])
def test_numbers_of_a_schedule_without_one_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"has no effect: set training\.schedule too"):
        camu.load_config(preset="demo", settings=[f"training.{name}"])
