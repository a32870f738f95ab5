"""Local rules against plain torch: rate, batch, proximal term, own steps, correction."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from camu.errors import InputError
from camu.learning.job import Job, LocalRule
from camu.learning.models import build_model
from camu.seeding import derive
from helpers.plain_torch import average, flat, images_and_labels

MEMBERS, WEIGHTS = (0, 2, 4), (2.0, 3.0, 1.0)
RULES = {
    "plain": LocalRule(),
    "rate": LocalRule(rate=0.5),
    "samples": LocalRule(batch=7),
    "fraction": LocalRule(batch=0.5),
    "proximal": LocalRule(proximal=2.0),
    "steps": LocalRule(steps=3),
    "all": LocalRule(rate=1.5, batch=4, proximal=0.7, steps=2),
}


def train(model, toy, engine, job: Job, round_number: int) -> np.ndarray:
    """Members run their own steps from the unit's model, then it is their weighted mean."""
    rule, shares = job.rule, [weight / sum(job.weights) for weight in job.weights]
    unit = copy.deepcopy(model)
    start = [parameter.detach().clone() for parameter in unit.parameters()]
    q = sum(parameter.numel() for parameter in start)
    extra = torch.zeros(q) if job.correction is None else torch.from_numpy(job.correction)
    pieces = [
        piece.view(parameter.shape)
        for piece, parameter in zip(
            extra.split([parameter.numel() for parameter in start]), start, strict=True
        )
    ]
    rate = engine.learning_rate * rule.rate
    for update in range(job.updates):
        members = []
        for device in job.members:
            local = copy.deepcopy(unit)
            per_pass = engine.batches.per_epoch(device, rule.batch)
            count = rule.steps * (per_pass if engine.local_update == "epoch" else 1)
            for step in range(update * count, (update + 1) * count):
                indices = engine.batches.step(round_number, device, step, rule.batch)
                images, labels = images_and_labels(toy, indices)
                local.zero_grad()
                loss = F.cross_entropy(local(images), labels)
                for parameter, anchor in zip(local.parameters(), start, strict=True):
                    loss = loss + rule.proximal / 2 * (parameter - anchor).square().sum()
                    loss = loss + engine.l2 / 2 * parameter.square().sum()
                loss.backward()
                with torch.no_grad():
                    for parameter, piece in zip(local.parameters(), pieces, strict=True):
                        parameter -= rate * (parameter.grad + piece)
            members.append(local)
        average(members, shares)
        unit = members[0]
    return flat(unit)[0].numpy()


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("local_update", ["step", "epoch"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_agrees_with_plain_torch(
    small_toy, rule: LocalRule, local_update: str, corrected: bool
) -> None:
    model = build_model("logistic", (8, 8), 10, "none", derive(3, "model"))
    options = {"local_update": local_update, "l2": 0.01, "batch": 0.34, "workers": 1}
    with small_toy.engine(model, **options) as engine:
        q = engine.initial.parameters.size
        correction = derive(0, "own-rule").numpy().standard_normal(q).astype("f4")
        given = correction if corrected else None
        job = Job(MEMBERS, WEIGHTS, updates=3, rule=rule, correction=given)
        (trained,) = engine.train(engine.initial, [job], 6)
        expected = train(model, small_toy, engine, job, 6)
    assert np.abs(trained.parameters - expected).max() < 2e-5
    assert np.abs(trained.parameters - engine.initial.parameters).max() > 1e-2


@pytest.mark.parametrize("steps", [1, 2])
def test_rules_of_a_convolutional_model_with_batch_norm(small_toy, kernel: str, steps: int) -> None:
    model = build_model("cnn", (8, 8), 10, "batch", derive(3, "model"))
    with small_toy.engine(model, workers=1, kernel=kernel) as engine:
        q = engine.initial.parameters.size
        correction = 0.01 * derive(0, "own-rule").numpy().standard_normal(q).astype("f4")
        rule = LocalRule(steps=steps, proximal=0.5)
        job = Job(MEMBERS, WEIGHTS, updates=2, rule=rule, correction=correction)
        (trained,) = engine.train(engine.initial, [job], 0)
        expected = train(model, small_toy, engine, job, 0)
    assert np.abs(trained.parameters - expected).max() < 1e-4


def test_one_member_with_steps_is_one_member_with_updates(small_toy) -> None:
    with small_toy.engine("logistic", "none", workers=1) as engine:
        apart, together = engine.train(
            engine.initial,
            [Job((1,), (1.0,), 2, rule=LocalRule(steps=3)), Job((1,), (1.0,), 6)],
            4,
        )
    assert np.array_equal(apart.parameters, together.parameters)


def test_the_proximal_term_pulls_to_the_anchor_where_one_is_given(small_toy) -> None:
    """A job continued on another node keeps the model that the round began with."""
    with small_toy.engine("logistic", "none", workers=1) as engine:
        rule = LocalRule(proximal=3.0)
        (whole,) = engine.train(engine.initial, [Job((0,), (1.0,), 4, rule=rule)], 0)
        (half,) = engine.train(engine.initial, [Job((0,), (1.0,), 2, rule=rule)], 0)
        rest = Job((0,), (1.0,), 2, first=2, rule=rule, anchor=engine.initial.parameters)
        (continued,) = engine.train(half, [rest], 0)
    assert np.array_equal(whole.parameters, continued.parameters)


def test_the_training_loss_is_that_of_the_batches(small_toy) -> None:
    with small_toy.engine("logistic", "none", workers=1, batch=1.0) as engine:
        job = Job(MEMBERS, WEIGHTS)
        (trained,) = list(engine.iterate(engine.initial, [job], 0))
        assert trained.loss == pytest.approx(
            engine.loss(engine.initial, MEMBERS, WEIGHTS), rel=1e-5
        )


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (LocalRule(rate=0), r"rule\.rate = 0"),
        (LocalRule(batch=-1), r"rule\.batch = -1"),
        (LocalRule(proximal=float("nan")), r"rule\.proximal = nan"),
        (LocalRule(steps=0), r"rule\.steps = 0"),
        (LocalRule(work=math.inf), r"rule\.work = inf"),
    ],
)
def test_rules_out_of_range_are_refused(small_toy, rule: LocalRule, words: str) -> None:
    with (
        small_toy.engine("logistic", "none", workers=1) as engine,
        pytest.raises(InputError, match=words),
    ):
        engine.train(engine.initial, [Job((0,), (1.0,), rule=rule)], 0)
