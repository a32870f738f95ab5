"""Data of the user's in plans, runs, comparisons and on Ray; changed data are noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import Config
from camu.data import federate, load
from camu.errors import InputError
from camu.schemes import make_scheme
from camu.simulation import simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.manifest import Manifest
from camu.world import build_world
from helpers.configs import small
from helpers.own_data import bars, write_npz, write_pictures

WRITERS = """
import numpy as np

from helpers.own_data import bars


def data():
    arrays = bars((3, 16, 16), classes=7, train=420)
    train = arrays["train_images"], arrays["train_labels"]
    return train, (arrays["test_images"], arrays["test_labels"])


def by_writer():
    # Writer k has the samples k, k + 24, ...; the last writer has none but these.
    return *data(), [np.arange(writer, 420, 24) for writer in range(24)]
"""


def own(dataset: str, **changes: Any) -> Config:
    """The preset `demo` on data of the user's, 12 samples for each of its 20 devices."""
    settings = {"data__partition": "iid", "data__samples_per_device": 12}
    return small(data__dataset=dataset, **settings | changes)


def trained(config: Config) -> float:
    settings = {
        "training.learning_rate": 0.1,
        "training.batch_samples": 5,
        "training.local_update": "epoch",
        "radio.uplink": "digital",
        "run.rounds": 15,
        "run.eval_every": 15,
    }
    config = config.replace(settings)
    return simulate(build_world(config), make_scheme(config, "fedavg")).history.final_score


@pytest.fixture
def writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "writers.py").write_text(WRITERS)
    return "./writers.py"


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_npz, write_pictures])
def test_files_of_your_own_train_above_chance(
    tmp_path: Path, write: Callable[[Path, Any], str]
) -> None:
    path = write(tmp_path, bars((12, 12), classes=4, train=480))
    assert trained(own(path, data__samples_per_device=24)) > 0.6  # chance: 0.25


@pytest.mark.slow
def test_a_function_with_colours_and_its_own_division_trains_above_chance(writers: str) -> None:
    config = small(data__dataset=f"{writers}:by_writer", data__partition="given")
    assert load(config.data.dataset).spec.shape == (3, 16, 16)
    assert trained(config) > 0.5  # chance: 1/7


def test_the_division_that_comes_with_the_data_is_used(writers: str) -> None:
    config = small(data__dataset=f"{writers}:by_writer", data__partition="given")
    held = federate(config.data, devices=24, seed=0).indices
    assert [own.tolist() for own in held] == [list(range(k, 420, 24)) for k in range(24)]
    some = federate(config.data, devices=10, seed=0).indices
    assert len({own[0] for own in some}) == 10
    assert {own[0] for own in some} != {
        own[0] for own in federate(config.data, devices=10, seed=1).indices
    }
    with pytest.raises(InputError, match="come in 24 parts and there are 25 devices"):
        federate(config.data, devices=25, seed=0)
    undivided = config.replace({"data.dataset": f"{writers}:data"})
    with pytest.raises(InputError, match=r"writers\.py:data comes undivided"):
        federate(undivided.data, devices=10, seed=0)


def test_a_plan_counts_the_labels_of_your_own_data(
    tmp_path: Path, camu: Callable[..., Any]
) -> None:
    path = write_npz(tmp_path, bars((3, 10, 12), classes=5, train=300))
    settings = ("--set", f"data.dataset={path}", "--set", "training.model=resnet8")
    settings += ("--set", "data.partition=iid", "--set", "data.samples_per_device=15")
    done = camu("plan", *settings, "--json")
    assert done.code == 0, done.err
    counts = np.array([row["label_counts"] for row in json.loads(done.out)["devices"]])
    assert counts.shape[1] == 5
    assert counts.sum() == 300


@pytest.mark.slow
def test_compare_takes_your_own_data_and_trains_again_after_they_changed(
    tmp_path: Path, camu: Callable[..., Any]
) -> None:
    arrays = bars((12, 12), classes=4, train=240)
    path, out = write_npz(tmp_path, arrays), tmp_path / "out"

    def compare() -> set[str]:
        settings = ("--set", f"data.dataset={path}", "--set", "data.samples_per_device=12")
        settings += ("--set", "data.partition=iid", "--set", "run.rounds=1")
        done = camu("compare", "--schemes", "fedavg", "--seeds", 1, *settings, "--out", out)
        assert done.code == 0, done.err
        return {
            json.loads(summary.read_text())["weights_sha256"]
            for summary in out.rglob("summary.json")
        }

    first = compare()
    assert compare() == first
    write_npz(tmp_path, arrays | {"train_images": 255 - arrays["train_images"]})
    assert len(compare()) == 2  # the earlier run is kept, and not used


def test_the_manifest_changes_with_the_data(tmp_path: Path, writers: str) -> None:
    arrays = bars((12, 12), classes=4, train=240)
    config = own(write_npz(tmp_path, arrays))
    first = Manifest.of(config)
    labels = arrays["train_labels"].copy()
    labels[[0, 1]] = labels[[1, 0]]
    write_npz(tmp_path, arrays | {"train_labels": labels})
    second = Manifest.of(config)
    assert second.changes_since(first) == [f"the source of data.dataset = {config.data.dataset}"]
    assert first.key != second.key
    plain, divided = (
        Manifest.of(small(data__dataset=f"{writers}:{name}")).sources["data.dataset"]
        for name in ("data", "by_writer")
    )
    assert plain != divided
    assert "data.dataset" not in Manifest.of(small()).sources


def test_a_run_is_not_resumed_on_other_data(tmp_path: Path) -> None:
    arrays = bars((12, 12), classes=4, train=240)
    path = write_npz(tmp_path, arrays)
    config = own(path, run__rounds=1)
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(config, directory)
    write_npz(tmp_path, arrays | {"test_images": 255 - arrays["test_images"]})
    with pytest.raises(InputError, match=r"the source of data\.dataset = .* has changed"):
        run_in_directory(config.replace({"run.rounds": 2}), directory, resume=True)


@pytest.mark.parametrize("kind", ["path", "function"])
def test_ray_actors_get_the_data_and_read_nothing(tmp_path: Path, writers: str, kind: str) -> None:
    """An actor may run on a machine that has neither the file nor the function."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from camu.data import dataset_spec
    from camu.simulation.ray_trainer import ActorSetup

    path = write_npz(tmp_path, bars((12, 12), classes=4, train=240))
    config = small(data__dataset=path if kind == "path" else f"{writers}:data")
    data = load(config.data.dataset)
    setup = ActorSetup(
        config,
        (data.train_inputs, data.train_labels),
        (data.test_inputs, data.test_labels),
        np.arange(6),
        np.array([2, 6]),
        None,
        "",
        "",
    )
    Path(path).unlink()
    there, indices = setup.unpack()
    assert dataset_spec(there.data).shape == data.spec.shape
    assert dataset_spec(there.data).classes == data.spec.classes
    assert [own.tolist() for own in indices] == [[0, 1], [2, 3, 4, 5]]
