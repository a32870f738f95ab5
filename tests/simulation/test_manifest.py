"""A manifest covers everything that decides a result, and says what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.config import PRESETS, Config, load_config
from camu.errors import InputError
from camu.experiments import scheduler
from camu.experiments.compare import compared_runs
from camu.experiments.scheduler import Executor, in_turn, run_all
from camu.learning.engine import Engine
from camu.learning.kernel import Provenance
from camu.sealed import file_digest, write_sealed_json
from camu.simulation import manifest as manifest_module
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.manifest import Manifest
from helpers.configs import small


def key(**changes: object) -> str:
    return Manifest.of(small(**changes)).key


def test_every_key_counts_that_decides_bits_or_the_end() -> None:
    assert key() == key()
    assert key() == key(machine__workers=2) == key(machine__checkpoint_every=3)
    for change in (
        {"run__seed": 1},
        {"run__rounds": 3},
        {"run__target": 0.5},
        {"run__max_virtual_seconds": 10.0},
        {"run__max_joules": 10.0},
        {"run__patience": 2},
        {"run__eval_every": 3},
        {"readings__w_min": 0.1},
    ):
        assert key(**change) != key(), change


def test_defaults_and_version_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later camu with another default or another formula must not reuse results."""
    config = load_config(preset="demo")
    before = Manifest.of(config)
    dump = config.model_dump()
    unset = {f"machine.{name}" for name in dump["machine"]} | {"data.sample_bytes"}  # no result
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
        {"scheme.name": "edited_scheme_of_mine:Mine", "faults.dropout_trace": "trace.csv"},
    )
    first = Manifest.of(config)
    scheme.write_text(scheme.read_text() + "# edited\n")
    second = Manifest.of(config)
    assert second.changes_since(first) == ["the source of scheme.name = edited_scheme_of_mine:Mine"]
    trace.write_text("round,device\n2,0\n")
    third = Manifest.of(config)
    assert third.changes_since(second) == ["the source of faults.dropout_trace = trace.csv"]
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
    scheme.write_text("from camu.schemes.fedsgd import FedSgd\n\n\nclass Mine(FedSgd):\n    pass\n")
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


@pytest.fixture
def trained_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let engines tell another provenance than they have."""

    def pretend(**facts: str) -> None:
        told = Provenance(**facts)
        monkeypatch.setattr(manifest_module, "provenance", lambda config: told)
        monkeypatch.setattr(Engine, "provenance", property(lambda engine: told))

    return pretend


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "torch"},
        {"device": "cuda: Card, 12.4"},
        {"instructions": "avx512"},
        {"compiler": "gcc 99"},
        {"torch": "9.0"},
    ],
)
def test_what_decides_the_bits_counts_and_a_run_does_not_continue_with_other_bits(
    tmp_path: Path, trained_with: Callable[..., None], other: dict[str, str]
) -> None:
    first = {"kernel": "native avx2", "instructions": "avx2", "compiler": "gcc 13"}
    trained_with(**first)
    config = small(machine__kernel="torch", run__rounds=2)
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(config, directory)
    assert directory.read_summary()["kernel"] == "native avx2"
    before = Manifest.of(config)
    assert Manifest.read(directory.path) == before
    trained_with(**first | other)
    assert Manifest.of(config).key != before.key
    (name,) = other
    assert [said.partition(" ")[0] for said in Manifest.of(config).changes_since(before)] == [name]
    longer = config.replace({"run.rounds": 3})
    with pytest.raises(InputError, match=rf"other last bits: {name} \(was .*, now {other[name]}"):
        run_in_directory(longer, directory, resume=True)
    assert Manifest.read(directory.path) == before
    trained_with(**first)
    assert run_in_directory(longer, directory, resume=True).final.round == 3


def test_the_manifest_names_the_kernel_of_what_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that this process would choose by itself."""
    told = Provenance("elsewhere")
    monkeypatch.setattr(Engine, "provenance", property(lambda engine: told))
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(small(run__rounds=1), directory)
    found = Manifest.read(directory.path)
    assert found is not None
    assert found.provenance["kernel"] == "elsewhere" == directory.read_summary()["kernel"]


def test_a_run_computes_its_manifest_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Config] = []
    plain = Manifest.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Manifest, "of", classmethod(lambda *given: made.append(given[1]) or plain(*given))
    )
    config = small(run__rounds=1)
    run_in_directory(config, RunDirectory(tmp_path / "run"))
    assert len(made) == 1
    run_in_directory(config.replace({"run.rounds": 2}), RunDirectory(tmp_path / "run"), resume=True)
    assert len(made) == 2
    made.clear()
    run_all(compared_runs(config, ["fedavg", "camu"], [0], tmp_path / "compared"), in_turn())
    assert len(made) == 2
    made.clear()
    monkeypatch.setattr(scheduler, "on_processes", in_turn())
    Executor(tmp_path / "study").run({"one": config, "two": config})
    assert len(made) == 2


def test_a_run_of_another_version_is_read_and_not_continued(
    camu: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert camu("run", "--preset", "demo", "--set", "run.rounds=2", "--out", out).code == 0
    old = json.loads((out / "manifest.json").read_text()) | {"version": "0.2.0"}
    old["kernel"] = old.pop("provenance")["kernel"]  # as it was written then
    del old["sha256"]
    write_sealed_json(out / "manifest.json", old)
    summary = json.loads((out / "summary.json").read_text())
    summary["files"]["manifest.json"] = file_digest(out / "manifest.json")
    del summary["sha256"]
    write_sealed_json(out / "summary.json", summary)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    refused = camu("run", "--resume", "--set", "run.rounds=4", "--out", out)
    assert refused.code == 2
    assert "began with camu 0.2.0" in refused.err
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    model = tmp_path / "model.safetensors"
    for command in (
        ["report", out, "--out", tmp_path / "page.html"],
        ["export", out, "--to", model],
        ["allocate", "--from-plan", out],
        ["run", "--preset", "demo", "--start", model, "--out", tmp_path / "next"],
    ):
        done = camu(*command)
        assert done.code == 0, done.err
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_run_on_batched_layers_goes_on_with_the_same_bits_and_not_on_others(
    tmp_path: Path,
) -> None:
    config = small(training__model="logistic", run__rounds=2, scheme__name="fedavg")
    longer = config.replace({"run.rounds": 4, "machine.workers": 3})
    directory = RunDirectory(tmp_path / "run")
    run_in_directory(config, directory)
    assert Manifest.of(config).provenance["kernel"] == "torch batched"
    with pytest.raises(InputError, match=r"kernel \(was torch batched, now torch\)"):
        run_in_directory(longer.replace({"machine.kernel": "torch"}), directory, resume=True)
    resumed = run_in_directory(longer, directory, resume=True)
    whole = run_in_directory(longer, RunDirectory(tmp_path / "whole"))
    assert resumed.weights_sha256 == whole.weights_sha256
