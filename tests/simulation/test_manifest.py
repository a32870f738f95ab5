"""A manifest covers everything that decides a result, and says what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from camu.config import PRESETS, load_config
from camu.errors import InputError
from camu.simulation import directory as manifest_module
from camu.simulation.directory import Manifest, RunDirectory, run_in_directory
from helpers.configs import small


def key(**changes: object) -> str:
    return Manifest.of(small(**changes)).key


def test_every_key_counts_that_decides_bits_or_the_end() -> None:
    assert key() == key()
    assert key() == key(run__workers=2) == key(run__checkpoint_every=3)
    for change in (
        {"run__seed": 1},
        {"run__rounds": 3},
        {"run__target_accuracy": 0.5},
        {"run__max_virtual_seconds": 10.0},
        {"run__max_joules": 10.0},
        {"run__patience": 2},
        {"run__eval_every": 3},
        {"contribution__w_min": 0.1},
    ):
        assert key(**change) != key(), change


def test_defaults_and_version_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later camu with another default or another formula must not reuse results."""
    config = load_config(preset="demo")
    before = Manifest.of(config)
    dump = config.model_dump()
    machinery = ("checkpoint_every", "engine", "kernel", "workers", "tensorboard", "mlflow")
    unset = {f"run.{name}" for name in machinery} | {"scheme.plan_seconds"}
    assert before.config.keys() == {f"{s}.{k}" for s in dump for k in dump[s]} - unset
    monkeypatch.setattr(manifest_module, "__version__", "99")
    after = Manifest.of(config)
    assert after.key != before.key
    (said,) = after.changes_since(before)
    assert "version" in said
    assert "99" in said


def test_own_code_and_own_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace, scheme = tmp_path / "trace.csv", tmp_path / "edited_scheme_of_mine.py"
    trace.write_text("round,device\n1,0\n")
    scheme.write_text("class Mine:\n    def plan(self, world): ...\n")
    config = load_config(preset="demo").replace(
        {"scheme.name": "edited_scheme_of_mine:Mine", "fleet.dropout_trace": "trace.csv"},
    )
    first = Manifest.of(config)
    scheme.write_text(scheme.read_text() + "# edited\n")
    second = Manifest.of(config)
    assert second.changes_since(first) == ["the source of scheme.name = edited_scheme_of_mine:Mine"]
    trace.write_text("round,device\n2,0\n")
    third = Manifest.of(config)
    assert third.changes_since(second) == ["the source of fleet.dropout_trace = trace.csv"]
    assert len({first.key, second.key, third.key}) == 3


@pytest.mark.parametrize("preset", PRESETS)  # `literal` holds an infinite number
def test_a_saved_manifest_is_the_same(tmp_path: Path, preset: str) -> None:
    made = Manifest.of(load_config(preset=preset))
    made.write(tmp_path)
    read = Manifest.read(tmp_path)
    assert read == made
    assert read is not None
    assert read.key == made.key
    assert Manifest.read(tmp_path / "nowhere") is None


def test_a_resumed_run_refuses_edited_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`camu run --resume` after an edit would continue with the old plan and the new code."""
    monkeypatch.chdir(tmp_path)
    scheme = tmp_path / "resumed_scheme_of_mine.py"
    scheme.write_text("from camu.schemes.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n")
    name = "resumed_scheme_of_mine:Mine"
    config = small(scheme__name=name, run__rounds=1)
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(config, directory)
    longer = config.replace({"run.rounds": 2})
    scheme.write_text(scheme.read_text() + "# edited\n")
    with pytest.raises(InputError, match=f"source of scheme.name = {name} has changed"):
        run_in_directory(longer, directory, resume=True)
    scheme.write_text(scheme.read_text().removesuffix("# edited\n"))
    assert run_in_directory(longer, directory, resume=True).final.round == 2


def test_the_kernel_counts_and_a_run_does_not_continue_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "kernel_name", lambda config: "native avx2")
    config = small(run__kernel="torch", run__rounds=2)
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(config, directory)
    assert directory.read_summary()["kernel"] == "native avx2"
    before = Manifest.of(config)
    monkeypatch.setattr(manifest_module, "kernel_name", lambda config: "torch")
    assert Manifest.of(config).key != before.key
    longer = config.replace({"run.rounds": 3})
    with pytest.raises(InputError, match=r"began on the kernel 'native avx2'.*'torch'.*with avx2"):
        run_in_directory(longer, directory, resume=True)
    monkeypatch.setattr(manifest_module, "kernel_name", lambda config: "native avx2")
    assert run_in_directory(longer, directory, resume=True).final.round == 3
