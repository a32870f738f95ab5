"""Packages that bring schemes, models, data sets and channels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import camu
from camu.cli.schemes import schemes
from camu.config import load_config
from camu.errors import InputError
from camu.installed import import_path, installed
from camu.schemes import find_scheme
from camu.schemes.variants import read_variants
from helpers.configs import small

PLUGIN = Path(__file__).parents[1] / "docs" / "examples" / "plugin"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package, as if it were installed, with a scheme that cannot be loaded."""
    points = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
    points["camu.schemes"]["broken"] = "camu_nowhere:Scheme"
    lines = [
        line
        for group, names in points.items()
        for line in (f"[{group}]", *(f"{name} = {path}" for name, path in names.items()))
    ]
    about = tmp_path / "camu_example-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: camu-example\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(PLUGIN)
    installed.cache_clear()
    yield
    installed.cache_clear()
    sys.modules.pop("camu_example", None)


def test_names_begin_with_the_package_so_that_none_can_stand_for_camus_own(package: None) -> None:
    assert import_path("schemes", "camu-example.quickest") == "camu_example:Quickest"
    assert import_path("schemes", "quickest") == "quickest"
    assert import_path("models", "camu-example.quickest") == "camu-example.quickest"
    assert import_path("models", "./x.y/model.py:Net") == "./x.y/model.py:Net"


def test_all_that_a_package_brings_trains_together(package: None) -> None:
    config = small(
        scheme__name="camu-example.quickest",
        training__model="camu-example.wide",
        training__learning_rate=0.3,
        data__dataset="camu-example.bars",
        data__partition="iid",
        radio__path_loss="camu-example.hall",
    )
    assert config.scheme.name == "camu_example:Quickest"
    assert config.radio.path_loss == "camu_example:hall_gain"
    world = camu.build_world(config)
    result = camu.simulate(world, camu.make_scheme(config))
    taking_part = [unit for unit in result.plan.units if unit.weight > 0]
    assert len(taking_part) == round(len(world.devices.samples) / 2)
    assert result.history.final_score > 0.6


def test_a_name_that_no_package_brings_is_refused_with_those_that_are_near(package: None) -> None:
    with pytest.raises(InputError, match=r"training\.model.*did you mean `camu-example\.wide"):
        load_config(preset="demo", overrides={"training.model": "camu-example.wode"})
    with pytest.raises(InputError, match=r"did you mean `camu-example\.quickest"):
        find_scheme("camu-example.quicker")


def test_a_scheme_that_cannot_be_loaded_is_said_and_the_others_are_listed(
    package: None, capsys: pytest.CaptureFixture[str]
) -> None:
    schemes()
    printed = capsys.readouterr()
    assert "camu-example.quickest" in "".join(printed.out.split())
    assert "camu-example.broken cannot be used" in printed.err
    assert "No module named 'camu_nowhere'" in printed.err


def test_schemes_of_packages_are_compared_by_their_import_path(package: None) -> None:
    one, other = read_variants(small(), ["fedavg", "camu-example.quickest@share=0.2"])
    assert other.name == "camu_example:Quickest"
    assert other.config.scheme.parameters == {"share": 0.2}
    assert one.label == "fedavg"


@pytest.mark.slow
def test_the_example_package_installs_and_its_scheme_is_listed_and_ranked(tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", target, PLUGIN], check=True, timeout=120)
    paths = [str(target), os.environ.get("PYTHONPATH", "")]
    own = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def camu_says(*arguments: str) -> str:
        command = [sys.executable, "-m", "camu.cli", *arguments]
        done = subprocess.run(
            command, env=own, cwd=tmp_path, text=True, capture_output=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "camu-example.quickest" in "".join(camu_says("schemes").split())
    assert "camu-example.bars" in camu_says("data", "list")
    few = ["--set", "run.rounds=3", "--seeds", "2", "--out", "compared", "--json"]
    rows = json.loads(
        camu_says("compare", "--preset", "demo", "--schemes", "fedavg,camu-example.quickest", *few)
    )
    assert "camu_example:Quickest" in json.dumps(rows)
