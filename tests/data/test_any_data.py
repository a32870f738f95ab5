"""Floats, tokens and targets of any kind reach a data set as they are, with labels to count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.data import dataset_spec, federate, load, load_configured
from camu.data.reading import Reading
from camu.data.samples import quantile_bins
from camu.errors import InputError
from camu.planning.groups import clusters
from camu.schemes import make_scheme
from camu.world import build_world
from helpers.configs import small

DRAW = np.random.default_rng(5)
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(**arrays: Any) -> str:
        np.savez(tmp_path / "mine.npz", **arrays)
        return str(tmp_path / "mine.npz")

    return to_file


def halves(inputs: Any, targets: Any, **more: Any) -> dict[str, Any]:
    """The last quarter is for test."""
    cut = 3 * len(inputs) // 4
    arrays = {"inputs": inputs, "targets": targets, **more}
    return {
        f"{split}_{name}": values[:cut] if split == "train" else values[cut:]
        for name, values in arrays.items()
        for split in ("train", "test")
    }


@pytest.mark.parametrize("shape", [(3,), (6, 10), (2, 4, 5), (2, 3, 4, 5)])
def test_floats_arrive_bit_by_bit(write: Write, shape: tuple[int, ...]) -> None:
    bits = DRAW.integers(0, 2**32, (40, *shape), dtype=np.uint32)
    bits[np.isnan(bits.view(np.float32)) | np.isinf(bits.view(np.float32))] = 7  # subnormal
    data = load(write(**halves(bits.view(np.float32), np.arange(40) % 3)))
    assert data.train_inputs.dtype == np.float32
    found = np.concatenate([data.train_inputs, data.test_inputs])
    assert found.tobytes() == bits.tobytes()
    spec = data.spec
    assert (spec.inputs, spec.target, spec.shape) == ("numbers", "classes", shape)
    assert (spec.classes, spec.outputs, data.notes) == (3, 3, ())


def test_doubles_are_kept_and_said(write: Write) -> None:
    values = DRAW.normal(size=(40, 5))
    path = write(**halves(values.astype(">f8"), np.arange(40) % 2))
    data = load(path)
    assert data.train_inputs.dtype == np.float64
    assert data.train_inputs.tobytes() == values[:30].tobytes()
    config = small(data__dataset=path, data__partition="iid", data__samples_per_device=3)
    (note,) = federate(config.data, devices=4, seed=0).notes
    assert "float64, and a model gets them in single precision" in note


def test_channels_of_float_images_go_in_front(write: Write) -> None:
    values = DRAW.normal(size=(8, 5, 4, 3)).astype(np.float32)
    data = load(write(**halves(values, np.arange(8) % 2)))
    assert data.spec.shape == (3, 5, 4)
    assert (data.train_inputs[2, 1] == values[2, :, :, 1]).all()


def test_numbers_as_targets_and_their_bins(write: Write) -> None:
    targets = DRAW.permutation(200).astype(np.float64)[:, None] * [1.0, -2.0]
    data = load(write(**halves(DRAW.normal(size=(200, 2)).astype(np.float32), targets)))
    assert (data.spec.target, data.spec.width, data.spec.outputs) == ("numbers", 2, 2)
    assert data.train_targets.dtype == np.float32
    assert (data.train_targets == targets[:150].astype(np.float32)).all()
    counts = np.bincount(data.train_labels, minlength=10)
    assert counts.tolist() == [15] * 10
    # By hand: the rank of a number among the training numbers, in tenths.
    first = np.sort(targets[:150, 0])
    for value, label in zip(targets[:150, 0], data.train_labels, strict=True):
        assert label == int(np.searchsorted(first, value)) // 15
    assert "10 quantile bins of the first of them" in data.notes[0]


@pytest.mark.parametrize(
    ("values", "bins"),
    [([1.0] * 9, 1), ([0.0] * 5 + [1.0] * 5, 2), ([0, 0, 0, 1, 2, 2], 3), (range(7), 7)],
)
def test_bins_where_numbers_repeat(values: Any, bins: int) -> None:
    numbers = np.array(values, np.float32)
    one, other, count = quantile_bins(numbers, np.array([-9, 9], np.float32))
    assert count == bins
    assert sorted(set(one.tolist())) == list(range(bins))  # none is empty
    assert other.tolist() == [0, bins - 1]
    order = np.argsort(numbers, kind="stable")
    assert (np.diff(one[order]) >= 0).all()
    for value in set(numbers.tolist()):
        assert len(set(one[numbers == value].tolist())) == 1


def test_tokens_alone_are_for_the_next_one(write: Write) -> None:
    tokens = DRAW.integers(0, 30, (40, 9), dtype=np.int16)
    tokens[0, 0] = 29
    data = load(write(train_inputs=tokens[:30], test_inputs=tokens[30:]))
    spec = data.spec
    assert (spec.inputs, spec.target, spec.shape) == ("tokens", "next-token", (8,))
    assert (spec.vocabulary, spec.outputs, spec.classes) == (30, 30, 1)
    assert (data.train_inputs == tokens[:30, :-1]).all()
    assert (data.test_targets == tokens[30:, 1:]).all()
    assert data.train_inputs.dtype == data.test_targets.dtype == np.int64
    assert not data.train_labels.any()
    assert "one label, so that clusters go by links alone" in data.notes[0]


def test_tokens_with_classes_and_a_token_never_seen(write: Write) -> None:
    tokens, classes = np.arange(80).reshape(40, 2) % 7, np.arange(40) % 2
    data = load(write(**halves(tokens, classes)))
    assert (data.spec.target, data.spec.vocabulary, data.spec.outputs) == ("classes", 7, 2)
    arrays = halves(tokens, classes)
    arrays["test_inputs"] = arrays["test_inputs"] + 1
    with pytest.raises(InputError, match="contain token 7; training tokens end at 6"):
        load(write(**arrays))


def test_what_targets_are_may_be_said(write: Write) -> None:
    inputs = DRAW.normal(size=(40, 3)).astype(np.float32)
    path = write(**halves(inputs, np.arange(40) % 3))
    data = load(path, reading=Reading("numbers"))
    assert (data.train_targets[:3] == [[0], [1], [2]]).all()
    assert load(path, reading=Reading("classes")).sha256 != data.sha256
    with pytest.raises(InputError, match=r'"next-token": .*targets are given'):
        load(path, reading=Reading("next-token"))
    floats = write(**halves(inputs, np.arange(40) / 3))
    with pytest.raises(InputError, match=r"train_targets are float64 of shape .*one whole number"):
        load(floats, reading=Reading("classes"))
    alone = write(train_inputs=inputs, test_inputs=inputs)
    with pytest.raises(InputError, match="only tokens need none"):
        load(alone)
    config = small(data__dataset="digits", data__target="numbers")
    with pytest.raises(InputError, match="= digits are classes; leave"):
        load_configured(config.data)


def test_arrays_may_name_labels_and_devices(write: Write) -> None:
    tokens, speakers = np.arange(360).reshape(40, 9) % 5, np.arange(40) * 7 % 4 * 10
    path = write(**halves(tokens, tokens, speaker=speakers))
    arrays = dict(np.load(path))
    path = write(**{name: arrays[name] for name in arrays if "targets" not in name})
    config = small(
        data__dataset=path, data__label_column="speaker", data__device_column="speaker",
        data__partition="given",
    )  # fmt: skip
    data = load_configured(config.data)
    assert data.spec.classes == 4
    assert (data.train_labels == speakers[:30] // 10).all()
    assert (data.test_labels == speakers[30:] // 10).all()
    assert data.parts is not None
    assert data.test_parts is not None
    for device, (part, test) in enumerate(zip(data.parts, data.test_parts, strict=True)):
        assert part.tolist() == np.flatnonzero(speakers[:30] == 10 * device).tolist()
        assert test.tolist() == np.flatnonzero(speakers[30:] == 10 * device).tolist()
    with pytest.raises(InputError, match=r"label_column = mood: .*train_mood: there is no such"):
        load(path, reading=Reading(label_column="mood"))
    with pytest.raises(InputError, match=r"data\.target_column = x: .* is no table"):
        load(path, reading=Reading(target_column="x"))
    with pytest.raises(InputError, match=r"data\.device_column = x: .*digits is built in"):
        load("digits", reading=Reading(device_column="x"))


FUNCTION = """
import numpy as np

def labelled():
    tokens = np.arange(90).reshape(10, 9) % 5
    marks = np.array(["b", "a"] * 5)
    return (tokens, None, marks), (tokens[:2], None, marks[:2]), [[0, 1], [2]], [[1], []]

def strange():
    tokens = np.zeros((4, 3), int)
    return (tokens, None, [0, 1, 0, 1]), (tokens, None, [0, 1, 2, 1])

def half():
    tokens = np.zeros((4, 3), int)
    return (tokens, None, [0, 1, 0, 1]), (tokens, None)
"""


def test_functions_give_labels_and_test_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTION)
    data = load("./mine.py:labelled")
    assert data.train_labels.tolist() == [1, 0] * 5
    assert data.test_parts is not None
    assert [part.tolist() for part in data.test_parts] == [[1], []]
    with pytest.raises(InputError, match="label 2 has no training sample"):
        load("./mine.py:strange")
    with pytest.raises(InputError, match="returned tuple"):
        load("./mine.py:half")
    with pytest.raises(InputError, match=r"label_column = x: .*it returns labels as the third"):
        load("./mine.py:labelled", reading=Reading(label_column="x"))


def test_one_label_for_all_can_be_dealt_clustered_and_planned(write: Write) -> None:
    tokens = DRAW.integers(0, 9, (400, 6))
    path = write(train_inputs=tokens[:300], test_inputs=tokens[300:])
    settings = {"data.dataset": path, "data.samples_per_device": 12}
    for partition in ("iid", "dirichlet", "shards"):
        config = load_config(preset="demo").replace(settings | {"data.partition": partition})
        world = build_world(config)
        assert world.devices.label_counts.shape == (20, 1)
        groups = clusters(world)
        assert sorted(k for group in groups.members for k in group) == list(range(20))
    with pytest.raises(InputError, match=r"only 1 label; .*data\.partition"):
        build_world(config.replace({"data.partition": "mixed"}))
    assert dataset_spec(config.data).vocabulary == 9
    assert make_scheme(config, "camu") is not None


@pytest.mark.parametrize("inputs", ["table", "series", "images"])
def test_standardisation_is_by_what_the_devices_hold(write: Write, inputs: str) -> None:
    shape = {"table": (3,), "series": (2, 7), "images": (5, 4)}[inputs]
    kind = np.uint8 if inputs == "images" else np.float64
    values = (DRAW.normal(size=(40, *shape)) * 20 + 90).astype(kind)
    values[..., 0] = 9 if inputs == "table" else values[..., 0]  # a constant column
    arrays = halves(values, DRAW.normal(size=40) * 5 + 300, who=np.arange(40) % 10)
    changes = {"data__dataset": write(**arrays), "data__device_column": "who"}
    config = small(data__partition="given", data__standardise=True, **changes)
    federation = federate(config.data, devices=6, seed=0)
    held = np.concatenate(federation.indices)
    assert 0 < len(held) < 30
    axes = {"table": 0, "series": (0, 2), "images": None}[inputs]
    mine = values[:30][held].astype(float)
    mean, deviation = mine.mean(axis=axes), mine.std(axis=axes)
    deviation = np.where(deviation == 0, 1, deviation)
    if inputs == "series":
        mean, deviation = mean[:, None], deviation[:, None]
    data = federation.dataset
    assert data.spec.inputs == "numbers" == dataset_spec(config.data).inputs
    assert data.train_inputs.dtype == np.float32
    if inputs == "images":  # as a model gets them, with channels
        assert data.spec.shape == dataset_spec(config.data).shape == (1, 5, 4)
        values = values[:, None]
    np.testing.assert_allclose(data.train_inputs, (values[:30] - mean) / deviation, atol=2e-6)
    np.testing.assert_allclose(data.test_inputs, (values[30:] - mean) / deviation, atol=2e-6)
    targets = arrays["train_targets"].astype(np.float32).astype(float)[held]
    expected = (arrays["test_targets"] - targets.mean()) / targets.std()
    np.testing.assert_allclose(data.test_targets[:, 0], expected, atol=1e-5)
    assert data.scaling is not None
    assert data.scaling.target_deviation is not None
    assert data.scaling.target_deviation[0] == pytest.approx(targets.std())
    assert f"training targets (1 is {targets.std():.6g}, " in data.notes[-1]
    assert not any("single precision" in note for note in federation.notes)


def test_tokens_are_not_standardised(write: Write) -> None:
    tokens = np.arange(360).reshape(40, 9) % 5
    path = write(train_inputs=tokens, test_inputs=tokens)
    config = small(
        data__dataset=path,
        data__standardise=True,
        data__partition="iid",
        data__samples_per_device=2,
    )
    with pytest.raises(InputError, match=r"data\.standardise = true: the inputs of .* are tokens"):
        build_world(config)


def test_the_test_set_is_dealt_as_the_training_labels(write: Write) -> None:
    labels = np.repeat(np.arange(3), [40, 40, 20])
    labels = DRAW.permutation(np.concatenate([labels] * 4))
    path = write(**halves(np.zeros((400, 2), np.float32), labels))
    config = small(
        data__dataset=path, data__partition="dirichlet", data__alpha=0.5,
        data__samples_per_device=10,
    )  # fmt: skip
    federation = federate(config.data, devices=10, seed=3)
    tests = federation.test_indices
    assert federation.test_indices is tests
    assert [t.tolist() for t in tests] == [
        t.tolist() for t in federate(config.data, devices=10, seed=3).test_indices
    ]
    other = federate(config.data, devices=10, seed=4).test_indices
    assert [t.tolist() for t in tests] != [t.tolist() for t in other]
    assert sum(map(len, tests)) == 100
    for own, counts in zip(tests, federation.label_counts, strict=True):
        assert len(own) == 10
        found = np.bincount(federation.dataset.test_labels[own], minlength=3)
        np.testing.assert_allclose(found, counts, atol=1)
        if (counts <= np.bincount(federation.dataset.test_labels, minlength=3)).all():
            assert len(set(own.tolist())) == len(own)


def test_a_device_whose_labels_are_not_tested_has_no_test_samples(write: Write) -> None:
    arrays = halves(np.zeros((40, 2), np.float32), np.arange(40) % 2, who=np.arange(40) % 2)
    arrays["test_targets"] = np.zeros(10, int)
    config = small(
        data__dataset=write(**arrays),
        data__partition="shards",
        data__samples_per_device=15,
        data__shards_per_device=1,
    )
    federation = federate(config.data, devices=2, seed=0)
    counts = federation.label_counts[:, 0].tolist()
    assert sorted(counts) == [0, 15]
    assert [len(own) > 0 for own in federation.test_indices] == [count > 0 for count in counts]
    given = config.replace({"data.partition": "given", "data.device_column": "who"})
    tests = federate(given.data, devices=2, seed=0).test_indices
    assert [own.tolist() for own in tests] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    one = federate(given.data, devices=1, seed=0)
    assert set(one.test_indices[0] % 2) == set(one.indices[0] % 2)
    with pytest.raises(InputError, match="comes undivided"):
        federate(config.replace({"data.partition": "given"}).data, devices=2, seed=0)
