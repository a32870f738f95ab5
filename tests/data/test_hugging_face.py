"""Data sets in the format of Hugging Face `datasets`, from a local copy and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.data import hugging_face, load
from camu.data.reading import Reading
from camu.errors import InputError
from helpers.own_data import Arrays, bars, picture, write_pictures

SPLITS = ("train", "test")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, offline, with an empty cache."""
    datasets = pytest.importorskip("datasets", reason="the extra `hf` is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return datasets


def as_dict(library: Any, arrays: Arrays, label: str = "label", **more: Any) -> Any:
    kinds = {"image": library.Image(), label: library.ClassLabel(num_classes=3)}
    kinds |= {name: library.Value("int64") for name in more}
    made = {}
    for split in SPLITS:
        columns = {
            "image": [picture(image) for image in arrays[f"{split}_images"]],
            label: arrays[f"{split}_labels"].tolist(),
            **{name: values[: len(arrays[f"{split}_labels"])] for name, values in more.items()},
        }
        made[split] = library.Dataset.from_dict(columns, library.Features(kinds))
    return library.DatasetDict(made)


@pytest.mark.parametrize("shape", [(6, 7), (3, 6, 7)])
def test_a_saved_copy_is_read(library: Any, tmp_path: Path, shape: tuple[int, ...]) -> None:
    arrays = bars(shape, classes=3, train=12)
    as_dict(library, arrays, label="kind").save_to_disk(tmp_path / "copy")
    data = load(f"hf:{tmp_path / 'copy'}")
    assert data.spec.shape == shape
    for split in SPLITS:
        assert np.array_equal(getattr(data, f"{split}_inputs"), arrays[f"{split}_images"])
        assert getattr(data, f"{split}_labels").tolist() == arrays[f"{split}_labels"].tolist()
    with pytest.raises(InputError, match=r"name it hf:"):
        load(str(tmp_path / "copy"))


def test_a_directory_of_its_files_is_read(library: Any, tmp_path: Path) -> None:
    arrays = bars((6, 7), classes=3, train=12)
    files = tmp_path / "parquet"
    files.mkdir()
    for split, part in as_dict(library, arrays).items():
        part.to_parquet(files / f"{split}.parquet")
    data = load(f"hf:{files}")
    assert np.array_equal(data.train_inputs, arrays["train_images"])
    pictures = load(f"hf:{write_pictures(tmp_path / 'pictures', arrays)}")
    own = load(str(tmp_path / "pictures"))
    assert pictures.sha256 == own.sha256


def tables(library: Any, path: Path, splits: tuple[str, ...] = SPLITS, **columns: Any) -> str:
    """A saved copy with these columns in each split; its name."""
    made = {split: library.Dataset.from_dict(columns) for split in splits}
    library.DatasetDict(made).save_to_disk(path)
    return f"hf:{path}"


def test_tables_and_numbers_are_read_by_their_columns(library: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {
        "age": draw.normal(size=10).tolist(),
        "weight": draw.integers(0, 9, 10).tolist(),
        "city": ["a", "b"] * 5,
        "load": draw.normal(size=10).tolist(),
        "name": [f"row {k}" for k in range(10)],
    }
    name = tables(library, tmp_path / "table", **columns)
    reading = Reading(
        target_column="load", device_column="city", input_columns="age, weight",
    )  # fmt: skip
    data = load(name, reading=reading)
    assert (data.spec.inputs, data.spec.target) == ("numbers", "numbers")
    assert data.train_inputs.tolist() == [
        list(row) for row in zip(columns["age"], columns["weight"], strict=True)
    ]
    assert data.train_targets[:, 0].tolist() == np.float32(columns["load"]).tolist()
    assert [part.tolist() for part in data.parts or ()] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    kinds = load(name, reading=Reading(target_column="city", input_columns="age"))
    assert kinds.spec.classes == 2
    assert "the classes are numbered 0 = a, 1 = b" in " ".join(kinds.notes)
    with pytest.raises(InputError, match=r"column name: 'row 0' is not a number"):
        load(name, reading=Reading(target_column="load", device_column="city"))
    with pytest.raises(InputError, match=r"data\.input_columns = ages: .* did you mean"):
        load(name, reading=Reading(target_column="load", input_columns="ages"))
    alone = load(
        tables(library, tmp_path / "alone", ("train",), **columns),
        reading=Reading(target_column="load", input_columns="age"),
    )
    assert (len(alone.train_inputs), len(alone.test_inputs)) == (8, 2)


def test_series_and_tokens_are_arrays_of_a_column(library: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    series = draw.normal(size=(6, 3, 20)).astype(np.float32)
    tokens = draw.integers(0, 9, (6, 7))
    label = [0, 1, 2] * 2
    kinds = library.Features(
        {
            "acc": library.Array2D((3, 20), "float32"),
            "label": library.ClassLabel(num_classes=3),
            "ids": library.Sequence(library.Value("int64")),
        }
    )
    columns = {"acc": series, "label": label, "ids": tokens.tolist()}
    made = {split: library.Dataset.from_dict(columns, kinds) for split in SPLITS}
    library.DatasetDict(made).save_to_disk(tmp_path / "copy")
    name = f"hf:{tmp_path / 'copy'}"
    data = load(name, reading=Reading(input_columns="acc"))
    assert data.spec.shape == (3, 20)
    assert data.train_inputs.tobytes() == series.tobytes()
    assert data.test_targets.tolist() == label
    ids = load(name, reading=Reading(input_columns="ids"))
    assert (ids.spec.inputs, ids.spec.target) == ("tokens", "classes")
    assert ids.train_inputs.tolist() == tokens.tolist()
    following = load(name, reading=Reading("next-token", input_columns="ids"))
    assert following.train_targets.tolist() == tokens[:, 1:].tolist()
    ragged = tables(library, tmp_path / "ragged", label=[0, 1], ids=[[1, 2], [1, 2, 3]])
    with pytest.raises(InputError, match=r"row 2, column ids: its shape is \(3,\).* cut or pad"):
        load(ragged)


def test_texts_are_characters_of_each_device(library: Any, tmp_path: Path) -> None:
    texts = ["abcdefg " * 11, "xyz" * 60, "hello " * 30, "short"]
    name = tables(library, tmp_path / "copy", text=texts, who=["a", "b", "a", "c"])
    data = load(name, reading=Reading("next-token", device_column="who"))
    assert (data.spec.inputs, data.spec.target) == ("tokens", "next-token")
    alphabet = sorted({*"".join(texts), "\n"})
    assert data.spec.vocabulary == len(alphabet)
    said = "\n".join([texts[0], texts[2]])  # of device a
    (first, _) = data.parts or ()  # nothing of c is long enough
    found = ["".join(alphabet[token] for token in data.train_inputs[k]) for k in first]
    assert found == [said[0:80], said[80:160], said[160:240]]
    after = "".join(alphabet[token] for token in data.train_targets[first[1]])
    assert after == said[81:161]
    with pytest.raises(InputError, match=r"column text: 'abcdefg .*' is not a number"):
        load(name, reading=Reading(target_column="who"))


def test_wrong_copies_are_named(library: Any, tmp_path: Path) -> None:
    arrays = bars((6, 7), classes=3, train=12)

    def refused(words: str, name: str) -> None:
        with pytest.raises(InputError, match=words) as said:
            load(f"hf:{tmp_path / name}")
        assert str(said.value).startswith(f"data.dataset = hf:{tmp_path / name}: ")

    whole = as_dict(library, arrays)
    library.DatasetDict({"train": whole["train"]}).save_to_disk(tmp_path / "one")
    refused("there is no split test; it has 'train'", "one")
    whole.rename_column("image", "left").map(lambda row: {"right": row["left"]}).save_to_disk(
        tmp_path / "two"
    )
    refused("which column", "two")
    as_dict(library, arrays, label="kind", other=[7] * 12).rename_column("kind", "x").cast_column(
        "x", library.Value("int64")
    ).save_to_disk(tmp_path / "unlabelled")
    refused("train: labels: which column", "unlabelled")
    whole.save_to_disk(tmp_path / "cut")
    file = next((tmp_path / "cut" / "train").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    refused("cannot be (loaded|read)", "cut")
    uneven = dict(arrays)
    uneven["train_labels"] = uneven["train_labels"] // 2 * 2
    as_dict(library, uneven).save_to_disk(tmp_path / "gap")
    refused("no image has label 1", "gap")
    (tmp_path / "nothing").mkdir()
    refused("cannot be loaded", "nothing")


@pytest.mark.usefixtures("library")
def test_a_name_without_a_copy_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"no/such: cannot be loaded .* hf:\./DIRECTORY"):
        load("hf:no/such")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'camu-fl\[hf\]'"):
        load("hf:ylecun/mnist")
