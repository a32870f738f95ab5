"""Data sets in the format of Hugging Face `datasets`, from a local copy and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.data import load, own
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
    monkeypatch.setattr(own.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'camu-fl\[hf\]'"):
        load("hf:ylecun/mnist")
