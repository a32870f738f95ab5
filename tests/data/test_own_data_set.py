"""The user's own data set and partition: found, checked, trained on; the docs' examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from camu.config import load_config
from camu.data import dataset_spec, load
from camu.errors import InputError, UserCodeError
from camu.planning.codecs import parameter_count
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.world import build_world

DOCS = Path(__file__).parents[2] / "docs"
Write = Callable[[str, str], str]


def example(page: str, name: str) -> str:
    """The code block of a page whose first line names this file."""
    found = re.search(rf"```python\n(# {re.escape(name)}:.*?)```", (DOCS / page).read_text(), re.S)
    assert found is not None, name
    return found[1]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def to_file(name: str, text: str) -> str:
        (tmp_path / name).write_text(dedent(text))
        return f"./{name}"

    return to_file


@pytest.mark.slow
def test_the_documented_data_set_trains(write: Write) -> None:
    """Three channels, 12x12 pixels, three classes."""
    path = write("shapes.py", example("own-data.md", "shapes.py"))
    config = load_config(preset="demo").replace(
        {
            "data.dataset": f"{path}:data",
            "data.partition": "iid",
            "training.learning_rate": 0.1,
            "training.batch_samples": 16,
            "radio.uplink": "digital",
            "run.rounds": 30,
        }
    )
    world = build_world(config)
    assert dataset_spec(config.data).shape == (3, 12, 12)
    assert dataset_spec(config.data).classes == 3
    assert world.devices.label_counts.shape[1] == 3
    assert world.devices.samples.sum() == 1200
    # 3x3 kernels with padding, 10 and 20 channels, batch norm, 50 hidden units, 3 classes.
    expected = (3 * 9 + 1) * 10 + (10 * 9 + 1) * 20 + 40 + (20 * 9 + 1) * 50 + 51 * 3
    assert parameter_count(world) == expected
    outcome = simulate(world, make_scheme(config, "fedavg"))
    accuracy = getattr(outcome, "history", outcome).final.accuracy
    assert accuracy > 0.6


def test_the_documented_partition(write: Write) -> None:
    path = write("halves.py", example("own-data.md", "halves.py"))
    world = build_world(load_config(preset="demo").replace({"data.partition": f"{path}:split"}))
    counts = world.devices.label_counts
    half = (len(counts) + 1) // 2
    assert (world.devices.samples == 20).all()
    assert (counts[:half, 1::2] == 0).all()
    assert (counts[half:, ::2] == 0).all()


def test_a_class_gets_the_configuration(write: Write) -> None:
    text = """
        class Same:
            def __init__(self, data):
                self.size = data.samples_per_device
            def split(self, labels, devices, generator):
                return [range(self.size)] * devices
    """
    changes = {"data.partition": f"{write('same.py', text)}:Same", "data.samples_per_device": 7}
    world = build_world(load_config(preset="demo").replace(changes))
    assert set(world.devices.samples.tolist()) == {7}


GOOD = "(np.zeros((4, 5, 6), np.uint8), np.arange(4))"
BAD_DATA = {
    "not pairs": ("3", "returned int; return (train_inputs, train_targets), (test_inputs"),
    "two kinds": (
        f"(np.full((4, 5, 6), 2.0), np.arange(4)), {GOOD}",
        "test images are images (uint8), training inputs numbers (floats)",
    ),
    "nan": (
        f"(np.array([[1.0], [np.nan]]), np.arange(2)), {GOOD}",
        "train inputs: sample 1 contains nan; replace or remove",
    ),
    "infinite": (f"(np.array([[1.0], [-np.inf]]), np.arange(2)), {GOOD}", "sample 1 contains -inf"),
    "cubes of whole numbers": (
        f"(np.zeros((4, 5, 6), int), np.arange(4)), {GOOD}",
        "inputs are int64 of shape (4, 5, 6); give",
    ),
    "negative tokens": (f"(np.full((4, 5), -1), np.arange(4)), {GOOD}", "tokens from -1 to -1"),
    "words": (f"(np.array([['a', 'b']]), [0]), {GOOD}", "train inputs are <U1 of shape (1, 2)"),
    "ragged": (f"([[[1]], [[1, 2]]], [0, 1]), {GOOD}", "pad sequences to one length"),
    "objects": (f"(np.array([[{{}}]]), [0]), {GOOD}", "train inputs are an array of objects"),
    "flat": (f"{GOOD}, (np.zeros((4, 5), np.uint8), np.arange(4))", "test images are uint8 of"),
    "none": (f"(np.zeros((0, 5, 6), np.uint8), np.arange(0)), {GOOD}", "shape (0, 5, 6)"),
    "few": (f"(np.zeros((4, 5, 6), np.uint8), np.arange(3)), {GOOD}", "train labels are int64"),
    "negative": (f"(np.zeros((2, 5, 6), np.uint8), [0, -1]), {GOOD}", "one whole number from 0"),
    "targets of two kinds": (
        f"{GOOD}, (np.zeros((1, 5, 6), np.uint8), [0.5])",
        "test targets are float64 of shape (1,); give one whole number from 0 per image",
    ),
    "nan as target": (
        f"(np.zeros((2, 5, 6), np.uint8), [0.5, np.nan]), {GOOD}",
        "train targets: sample 1 contains nan",
    ),
    "too large a target": (
        f"(np.zeros((2, 5, 6), np.uint8), [0.5, 1e39]), {GOOD}",
        "train targets: sample 1 contains inf",
    ),
    "no targets": (f"(np.zeros((2, 5, 6), np.uint8), None), {GOOD}", "targets are missing"),
    "labels of classes": (f"(*{GOOD}, np.arange(4)), (*{GOOD}, np.arange(4))", "are classes"),
    "two shapes": (
        f"(np.zeros((1, 7, 6), np.uint8), [1]), {GOOD}",
        "test images are (5, 6) each, training images (7, 6)",
    ),
    "gap": (f"(np.zeros((2, 5, 6), np.uint8), [0, 2]), {GOOD}", "no image has label 1"),
    "huge label": (f"(np.zeros((2, 5, 6), np.uint8), [0, 2**40]), {GOOD}", "contain 1099511627776"),
    "new class": (
        f"(np.zeros((2, 5, 6), np.uint8), [0, 1]), {GOOD}",
        "test labels contain 3; training labels end at 1",
    ),
    "five things": (f"{GOOD}, {GOOD}, [[0]], [[0]], 1", "returned tuple"),
    "few test parts": (f"{GOOD}, {GOOD}, [[0], [1]], [[0]]", "test samples: 1 arrays for 2 dev"),
    "wrong test part": (f"{GOOD}, {GOOD}, [[0], [1]], [[], [9]]", "device 1 gets sample 9"),
    "no division": (f"{GOOD}, {GOOD}, 7", "the division: not a list of arrays"),
    "beyond": (f"{GOOD}, {GOOD}, [[0, 1], [4]]", "the division: device 1 gets sample 4"),
    "one class": ("((np.zeros((1, 5, 6), np.uint8), [0]),) * 2", "at least two classes"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_wrong_data_are_named(write: Write, case: str) -> None:
    returned, words = BAD_DATA[case]
    path = write("bad.py", f"import numpy as np\ndef data():\n    return {returned}\n")
    with pytest.raises(InputError) as refused:
        load(f"{path}:data")
    assert str(refused.value).startswith("data.dataset = ./bad.py:data: ")
    assert words in str(refused.value)


def test_errors_of_the_function_name_its_line(write: Write) -> None:
    path = write("broken.py", "def data():\n    return 1 / 0\nthing = 3\n")
    with pytest.raises(UserCodeError, match=r"broken\.py, line 2, in data: ZeroDivisionError"):
        load(f"{path}:data")
    with pytest.raises(InputError, match="this is not a function"):
        load(f"{path}:thing")


BAD_PARTS = {
    "few": ("[[0]]", "1 arrays for"),
    "empty": ("[[]] + [[0]] * (devices - 1)", "device 0 gets float64 of shape (0,)"),
    "real": ("[[0.5]] * devices", "device 0 gets float64"),
    "beyond": ("[[0, len(labels)]] * devices", "samples are numbered from 0 to 1496"),
    "negative": ("[[-1]] * devices", "device 0 gets sample -1"),
}


@pytest.mark.parametrize("case", BAD_PARTS)
def test_wrong_partitions_are_named(write: Write, case: str) -> None:
    returned, words = BAD_PARTS[case]
    path = write("parts.py", f"def split(labels, devices, generator):\n    return {returned}\n")
    config = load_config(preset="demo").replace({"data.partition": f"{path}:split"})
    with pytest.raises(InputError) as refused:
        build_world(config)
    assert str(refused.value).startswith("data.partition = ./parts.py:split: ")
    assert words in str(refused.value)


@pytest.mark.parametrize("key", ["data.dataset", "data.partition", "radio.path_loss"])
def test_names_that_do_not_exist(key: str) -> None:
    with pytest.raises(InputError, match=rf"{key} = 'umii': no such name.*accepted: .*module:name"):
        load_config(overrides={key: "umii"})


def test_labels_beyond_a_byte(write: Write) -> None:
    text = """
        import numpy as np
        def data():
            return ((np.zeros((400, 4, 4), np.uint8), np.arange(400)),) * 2
    """
    path = write("many.py", text)
    data = load(f"{path}:data")
    assert data.spec.classes == 400
    assert data.train_labels.max() == 399
    assert load(f"{path}:data") is data  # called once
    assert np.array_equal(data.train_inputs, data.test_inputs)


USERS = """
import numpy as np

def data():
    images, labels = np.full((60, 4, 4), {value}), np.arange(60) % 2
    parts = np.split(np.arange(60), 30)
    return (images, labels), (images[:4] * 0, labels[:4]), parts
"""


def test_users_without_a_device_are_said(write: Write, camu) -> None:
    path = write("users.py", USERS.format(value="np.uint8(7)"))
    config = load_config(preset="demo").replace(
        {"data.dataset": f"{path}:data", "data.partition": "given"}
    )
    (note,) = build_world(config).notes
    assert "the data come in 30 parts, and 10 of them are not used" in note
    settings = (f"data.dataset={path}:data", "data.partition=given", "run.rounds=1")
    done = camu("run", *(word for each in settings for word in ("--set", each)), "--out", "run")
    assert (done.out + done.err).count("10 of them are not used") == 1
    region = {"name": "A", "devices": 30, "x": [0, 9], "y": [0, 9]}
    assert build_world(config.replace({"fleet.regions": [region]})).notes == ()
