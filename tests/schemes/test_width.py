"""Width-scaled models: parts of a model train as models of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from camu.errors import InputError
from camu.learning.models import seeded_model
from camu.learning.weights import Entry, Layout, Weights
from camu.planning.codecs import Part
from camu.schemes import FedAvg, LocalSgd, State, View, WidthScaled
from camu.schemes.width_scaled import WIDTHS, width_mask
from camu.simulation import simulate
from camu.simulation.result import build_engine
from camu.world import World
from helpers.scheme_runs import bits, models

Tiny = Callable[..., World]
CNN: dict[str, Any] = {"training__model": "cnn", "run__rounds": 2}


def size_of(width: float, classes: int = 10) -> int:
    """Parameters of the CNN for 8 x 8 digits with fewer channels, by hand."""
    one, two, hidden = (int(np.ceil(width * size)) for size in (10, 20, 50))
    count = (9 + 1) * one + (9 * one + 1) * two + 2 * two
    return count + (4 * two + 1) * hidden + (hidden + 1) * classes


@pytest.mark.parametrize("width", WIDTHS)
def test_a_part_has_the_parameters_of_the_narrow_model(tiny: Tiny, width: float) -> None:
    layout = Layout.of(seeded_model(tiny(**CNN).config))
    assert width_mask(layout, width).sum() == size_of(width)
    assert Part(size_of(width)).bits(layout.parameter_count) == 32 * size_of(width)


def test_parts_are_nested(tiny: Tiny) -> None:
    layout = Layout.of(seeded_model(tiny(**CNN).config))
    masks = [width_mask(layout, width) for width in WIDTHS]
    assert masks[0].all()
    for wide, narrow in itertools.pairwise(masks):
        assert (wide | ~narrow).all()


def test_a_model_that_is_no_chain_is_refused() -> None:
    odd = Layout((Entry("a", (4, 3)), Entry("b", (5, 7))), ())
    with pytest.raises(InputError, match="chain of layers"):
        width_mask(odd, 0.5)
    with pytest.raises(InputError, match="does not follow a layer"):
        width_mask(Layout((Entry("a", (3,)), Entry("b", (5, 7))), ()), 0.5)


@pytest.mark.parametrize("normalisation", ["none", "batch", "group"])
def test_nothing_outside_a_part_is_trained(tiny: Tiny, normalisation: str) -> None:
    world = tiny(training__normalisation=normalisation, radio__uplink="digital", **CNN)
    parts: set[int] = set()

    class Spy(WidthScaled):
        def aggregate(self, view: View, state: State) -> Weights:
            for arrival in view.arrived:
                codec = view.plan.units[arrival.unit].codec
                assert isinstance(codec, Part)
                parts.add(codec.entries)
                moved = np.flatnonzero(arrival.update)
                mask = next(
                    m
                    for m in (width_mask(view.weights.layout, width) for width in WIDTHS)
                    if m.sum() == codec.entries
                )
                assert mask[moved].all()
                assert len(moved) > 0.3 * codec.entries
                assert not (arrival.start.parameters[~mask]).any()
            return super().aggregate(view, state)

    simulate(world, Spy())
    assert len(parts) > 1


def test_the_narrow_part_trains_as_the_narrow_model_would(tiny: Tiny) -> None:
    """The gradient of the masked model is that of a masked model: zero outside, the same inside."""
    world = tiny(training__normalisation="none", **CNN)
    with build_engine(world) as engine:
        mask = width_mask(engine.initial.layout, 0.5)
        narrow = engine.initial.with_parameters(engine.initial.parameters * mask)
        assert not engine.gradient(narrow)[~mask].any()


def test_each_parameter_moves_by_the_mean_over_its_trainers(tiny: Tiny) -> None:
    class Spy(WidthScaled):
        def aggregate(self, view: View, state: State) -> Weights:
            new = super().aggregate(view, state)
            here = view.weights.parameters.astype(float)
            total = np.zeros(here.size)
            moved = np.zeros(here.size)
            for a in view.arrived:
                codec = view.plan.units[a.unit].codec
                assert isinstance(codec, Part)
                widths = [w for w in WIDTHS if size_of(w) == codec.entries]
                mask = width_mask(view.weights.layout, widths[0])
                total[mask] += a.weight
                moved[mask] += a.weight * a.update[mask]
            assert (total > 0).all()  # the widest devices train everything
            assert np.abs(new.parameters - (here + moved / total)).max() < 1e-6
            return new

    simulate(tiny(**CNN), Spy())


def test_equal_devices_train_the_whole_model(tiny: Tiny) -> None:
    """A model without hidden layers has no narrow part; then weights and bits are local SGD's."""
    world = tiny(radio__uplink="digital")
    scheme = WidthScaled(1, max_extra_updates=0)
    assert {unit.local_updates for unit in scheme.plan(world).units} == {1}
    for one, other in zip(models(world, scheme), models(world, FedAvg()), strict=True):
        assert np.abs(one - other).max() < 1e-6


def test_slow_devices_get_narrow_parts_and_all_keep_to_the_median(tiny: Tiny) -> None:
    world = tiny(radio__access="ofdma", **CNN)
    scheme = WidthScaled(2)
    plan, plain = scheme.plan(world), LocalSgd(2).plan(world)
    limit = np.median([u.compute_seconds + u.uplink_seconds for u in plain.units])
    for unit, whole in zip(plan.units, plain.units, strict=True):
        assert isinstance(unit.codec, Part)
        share = unit.codec.entries / plan.parameters
        assert unit.rule.work == share
        assert unit.per_update.compute_joules == pytest.approx(
            share * whole.per_update.compute_joules
        )
        assert unit.uplink_seconds == pytest.approx(share * whole.uplink_seconds)
        if share > size_of(WIDTHS[-1]) / plan.parameters:
            assert unit.compute_seconds + unit.uplink_seconds <= limit * (1 + 1e-9)
    assert len({unit.codec for unit in plan.units}) > 1
    assert bits(world, scheme) != bits(world, LocalSgd(2))
