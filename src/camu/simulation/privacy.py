"""The account of differential privacy: what each device has released, and the epsilon of it.

Data sets are neighbours if one record is another one: a sample of one device (`sample`), or all
data of a device (`update`). So a clipped sum differs by up to twice its bound, and noise counts
half. Two facts are used, which hold for camu's batches whatever the adversary sees:

- One step per round is on a batch drawn from the device's samples without replacement, by a new
  permutation in each round: the Gaussian mechanism with that sampling.
- With more steps, batches of a pass over the data are disjoint, so that a sample is in one step of
  it: each pass that was begun is one Gaussian mechanism, without gain from sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from camu.arrays import Float64
from camu.config import Config
from camu.config.training_section import TrainingConfig
from camu.data.batches import batch_samples
from camu.errors import InputError
from camu.learning.configured import model_layout
from camu.learning.job import LocalRule
from camu.learning.method import Method, check_private
from camu.planning.plan import Plan
from camu.planning.unit import Unit
from camu.schemes.contract import Scheme
from camu.world import World

# Of each device: how often it has released something that so many thousandths of its data took part
# in, chosen at random; 1000 are all. Parts are rounded up, which makes epsilon larger.
Releases = dict[int, dict[int, int]]
WHOLE = 1000


def check_privacy(config: Config, scheme: Scheme, plan: Plan) -> None:
    """Refuse what no epsilon can be given for."""
    if config.training.dp_unit == "none":
        return
    key = f"training.dp_unit = {config.training.dp_unit}"
    check_accountant(key)
    check_private(Method.of(config.training), model_layout(config))
    own = type(scheme)
    if scheme.uses_oracle or own.pilot is not Scheme.pilot:
        raise InputError(
            f"{key}: scheme {scheme.name} looks at exact losses or gradients, or trains before the "
            "first round, which no epsilon covers; choose another scheme"
        )
    if own.own_training is not Scheme.own_training:
        raise InputError(
            f"{key}: in scheme {scheme.name} devices also train for themselves, and what they send "
            "then depends on steps that are not counted; choose another scheme"
        )
    if plan.gathers_together:
        raise InputError(
            f"{key}: in scheme {scheme.name} members transmit to their leader at once, after each "
            "update, which is not counted; choose another scheme"
        )


def check_accountant(key: str) -> None:
    """Refuse where the package is missing that gives epsilon."""
    if find_spec("dp_accounting") is None:
        raise InputError(f'{key}: epsilon needs another package: pip install "camu-fl[privacy]"')


def count_releases(releases: Releases, world: World, unit: Unit) -> None:
    """Count what the members of a unit that trains in a round release in it."""
    if world.config.training.dp_unit == "none":
        return
    for device in unit.members:
        share, times = _released(world, unit, device)
        own = releases.setdefault(device, {})
        own[share] = own.get(share, 0) + times


def _released(world: World, unit: Unit, device: int) -> tuple[int, int]:
    """The share of its data, and how often, that a device releases in a round of its unit."""
    held, alone = int(world.devices.samples[device]), len(unit.members) == 1
    return released(world.config.training, held, unit.local_updates, unit.rule, alone)


def released(
    training: TrainingConfig, held: int, updates: int, rule: LocalRule, alone: bool
) -> tuple[int, int]:
    """The share of its data, and how often, that a device with so many samples releases.

    `alone`: whether it is the only member of its unit.
    """
    if training.dp_unit == "update":  # a unit of several gathers after every update
        return WHOLE, 1 if alone else updates
    batch = training.batch if rule.batch is None else rule.batch
    size = int(batch_samples(batch, held))
    per_pass = -(-held // size)
    steps = updates * rule.steps * (per_pass if training.local_update == "epoch" else 1)
    if steps == 1:
        return -(-WHOLE * size // held), 1
    return WHOLE, -(-steps // per_pass)


def epsilon_of(releases: Releases, training: TrainingConfig) -> float | None:
    """The epsilon of the device that has released most; None without differential privacy."""
    if training.dp_unit == "none":
        return None
    noise, delta = training.dp_noise, training.dp_delta
    kinds = {tuple(sorted((*row, noise) for row in own.items())) for own in releases.values()}
    found = max((epsilon_of_all(kind, delta) for kind in kinds), default=0.0)
    return found if math.isfinite(found) else None


@cache
def epsilon_of_all(releases: tuple[tuple[int, int, float], ...], delta: float) -> float:
    """The epsilon of all releases together: of each kind the share, how often, and the noise."""
    from dp_accounting import rdp  # an extra

    curves = [(times, *_curve(share, noise)) for share, times, noise in releases]
    total = sum(times * values for times, _, values in curves)
    return float(rdp.compute_epsilon(curves[0][1], total, delta)[0]) if curves else 0.0


@cache
def _curve(share: int, noise: float) -> tuple[Float64, Float64]:
    """The orders and the Renyi divergences of one release."""
    import dp_accounting

    neighbours = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=neighbours)
    event: Any = dp_accounting.GaussianDpEvent(noise / 2)
    if share < WHOLE:
        event = dp_accounting.SampledWithoutReplacementDpEvent(WHOLE, share, event)
    accountant.compose(event)
    return np.asarray(accountant._orders), np.asarray(accountant._rdp)


def releases_to_list(releases: Releases) -> list[list[int]]:
    """The releases as JSON takes them: device, share and how often."""
    return [[k, share, n] for k, own in releases.items() for share, n in own.items()]


def releases_from_list(rows: Sequence[Sequence[int]]) -> Releases:
    """The releases from such rows."""
    found: Releases = {}
    for device, share, times in rows:
        found.setdefault(device, {})[share] = times
    return found
