"""`camu compare` through the command: its numbers, its files, and which results it uses again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from camu import read_results
from camu.simulation import directory

Camu = Callable[..., Any]
SMALL = ("--preset", "demo", "--set", "machine.workers=1", "--set", "run.eval_every=2")
OWN_SCHEME = """
from camu.schemes.{module} import {name}


class Mine({name}):
    pass
"""


def compare(camu: Camu, out: Path, schemes: str, *more: object, rounds: int = 2) -> Any:
    settings = (*SMALL, "--set", f"run.rounds={rounds}")
    done = camu("compare", "--schemes", schemes, *settings, "--out", out, *more)
    assert done.code == 0, done.err
    return done


def accuracies(out: Path) -> dict[str, float]:
    rows = json.loads((out / "comparison.json").read_text())["rows"]
    return {row["scheme"]: row["final_score"]["mean"] for row in rows}


@pytest.mark.slow
def test_table_files_and_page_agree(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "out"
    extra = ("--csv", tmp_path / "my.csv", "--latex", tmp_path / "my.tex", "--seeds", 2)
    extra = (*extra, "--parquet", tmp_path / "my.parquet")
    done = compare(camu, out, "fedavg,camu", *extra)
    document = json.loads((out / "comparison.json").read_text())
    rows = list(csv.DictReader((out / "comparison.csv").read_text().splitlines()))
    assert (tmp_path / "my.csv").read_text() == (out / "comparison.csv").read_text()
    assert [(row["scheme"], row["seed"]) for row in rows] == [
        ("fedavg", "0"), ("fedavg", "1"), ("camu", "0"), ("camu", "1"),
    ]  # fmt: skip
    typed = read_results(tmp_path / "my.parquet").to_dict("records")
    same = ("final_score", "joules", "at_equal_joules")
    assert [{name: float(row[name]) for name in same} for row in rows] == [
        {name: row[name] for name in same} for row in typed
    ]
    finals = {
        name: np.array([float(row["final_score"]) for row in rows if row["scheme"] == name])
        for name in ("fedavg", "camu")
    }
    gain = finals["camu"] - finals["fedavg"]
    low, high = stats.t.interval(0.95, 1, gain.mean(), stats.sem(gain))
    difference = document["rows"][1]["difference"]
    assert difference["mean"] == pytest.approx(gain.mean())
    assert (difference["low"], difference["high"]) == pytest.approx((low, high))
    shown = f"{100 * gain.mean():.2f} ± {50 * (high - low):.2f}"
    assert shown in done.out
    table = (tmp_path / "my.tex").read_text()
    assert shown.replace("±", r"$\pm$") in table
    assert table.count(r"\\") == 3
    for row in rows:  # every value is that of a run directory
        (folder,) = (out / row["scheme"]).glob(f"seed-{row['seed']}-*")
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["final_score"] == float(row["final_score"])
        assert summary["weights_sha256"] == row["weights_sha256"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "4 runs: 2 schemes in 1 setting." in page


@pytest.mark.slow
def test_runs_of_different_length_are_never_mixed(camu: Camu, tmp_path: Path) -> None:
    """First longer, then shorter, in the same directory: as if the second had run alone."""
    compare(camu, tmp_path / "both", "fedavg", "--seeds", 1, rounds=4)
    done = compare(camu, tmp_path / "both", "fedavg,local-sgd", "--seeds", 1, rounds=2)
    assert "run.rounds (was 4, now 2)" in done.err
    alone = compare(camu, tmp_path / "alone", "fedavg,local-sgd", "--seeds", 1, rounds=2)
    assert accuracies(tmp_path / "both") == accuracies(tmp_path / "alone")
    # The last line names the directory.
    assert done.out.splitlines()[:-1] == alone.out.splitlines()[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["run.target=0.05", "run.max_joules=0.2"])
def test_no_stop_key_is_ignored(camu: Camu, tmp_path: Path, stop: str) -> None:
    compare(camu, tmp_path, "fedavg", "--seeds", 1, rounds=4)
    whole = json.loads((tmp_path / "comparison.json").read_text())["runs"][0]["rounds"]
    done = compare(camu, tmp_path, "fedavg", "--seeds", 1, "--set", stop, rounds=4)
    assert stop.partition("=")[0] in done.err
    assert json.loads((tmp_path / "comparison.json").read_text())["runs"][0]["rounds"] < whole


@pytest.mark.slow
def test_an_edited_scheme_is_run_again(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.chdir(tmp_path)
    source = tmp_path / "scheme_in_progress.py"
    source.write_text(OWN_SCHEME.format(module="fedsgd", name="FedSgd"))
    compare(camu, tmp_path / "out", "fedavg,scheme_in_progress:Mine", "--seeds", 1)
    before = accuracies(tmp_path / "out")
    assert before["scheme_in_progress:Mine"] == before["fedavg"]
    source.write_text(OWN_SCHEME.format(module="local_sgd", name="LocalSgd"))
    sys.modules.pop("scheme_in_progress")
    done = compare(camu, tmp_path / "out", "local-sgd,scheme_in_progress:Mine", "--seeds", 1)
    assert "the source of scheme.name = scheme_in_progress:Mine" in done.err
    after = accuracies(tmp_path / "out")
    assert after["scheme_in_progress:Mine"] == after["local-sgd"] != before["fedavg"]


@pytest.mark.slow
def test_one_scheme_stands_several_times_with_other_parameters(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = "class Own(Mine):\n    k: int = 1\n    def plan(self, world):\n"
    own += "        return super().plan(world).with_updates([self.k] * 20)\n"
    source = OWN_SCHEME.format(module="fedsgd", name="FedSgd")
    head = "from dataclasses import dataclass\n"
    (tmp_path / "counted.py").write_text(f"{head}{source}\n\n@dataclass(frozen=True)\n{own}")
    words = "fedavg, camu@threshold_quantile=0.0, camu@threshold_quantile=1.0, counted:Own@k=3"
    compare(camu, tmp_path / "out", words, "--seeds", 1, "--markdown", tmp_path / "my.md")
    labels = [
        "fedavg", "camu threshold_quantile=0", "camu threshold_quantile=1", "counted:Own k=3",
    ]  # fmt: skip
    document = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [row["scheme"] for row in document["rows"]] == labels
    assert len({run["weights_sha256"] for run in document["runs"]}) == 4
    assert list(document["curves"]) == labels
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert folders == [
        "camu.threshold_quantile.0", "camu.threshold_quantile.1", "counted.Own.k.3", "fedavg",
    ]  # fmt: skip
    assert [f"`{label}`" in (tmp_path / "my.md").read_text() for label in labels] == [True] * 4
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Every seed on its own" in page
    for label in ("camu threshold_quantile=0", "camu threshold_quantile=1"):
        assert f'"{label}"' in page  # its curve


@pytest.mark.slow
def test_finished_runs_are_used_again(
    camu: Camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare(camu, tmp_path, "fedavg", "--seeds", 1)

    def never(*_: object) -> None:
        raise AssertionError("the run is finished")

    monkeypatch.setattr("camu.experiments.scheduler.run_in_directory", never)
    checked: list[Path] = []
    plain = directory.check_files

    def check(folder: Path, *given: Any) -> None:
        checked.append(folder)
        plain(folder, *given)

    monkeypatch.setattr(directory, "check_files", check)
    again = compare(camu, tmp_path, "fedavg", "--seeds", 1)
    assert again.out == first.out
    assert len(checked) == 1  # its files are hashed once, for table and page


def test_wrong_schemes_are_refused_before_anything_runs(camu: Camu, tmp_path: Path) -> None:
    for schemes in ("fedavg,fedavgg", "fedavg,fedavg", ","):
        done = camu("compare", "--schemes", schemes, *SMALL, "--out", tmp_path / "out")
        assert done.code == 2, schemes
    assert not (tmp_path / "out").exists()


def test_json_is_one_document(camu: Camu, tmp_path: Path) -> None:
    done = compare(camu, tmp_path, "fedavg", "--seeds", 1, "--json")
    assert json.loads(done.out) == json.loads((tmp_path / "comparison.json").read_text())
