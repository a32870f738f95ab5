"""The names of `import camu`: they are loaded when used, all there, and all documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

import camu
from camu.experiments.comparison import Comparison
from camu.schemes import Camu, FedAvg
from helpers.configs import small

ROOT = Path(__file__).parents[1]
FUNCTIONS = [name for name in camu.__all__ if inspect.isfunction(getattr(camu, name))]
VALUES = [name for name in camu.__all__ if is_dataclass(getattr(camu, name))]
HEAVY = {"torch", "sklearn", "scipy", "altair", "pandas", "numpy", "pydantic", "rich", "typer"}


def python(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    loaded = set(python("import sys, camu; print(*sys.modules)").split())
    assert "camu" in loaded
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("camu.")}


def test_configuration_and_plans_load_no_torch() -> None:
    code = "import sys, camu; camu.load_config, camu.World, camu.Plan, camu.schemes.Camu"
    assert python(f"{code}; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("name", camu.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(camu, name) is not None


def test_dir_lists_the_public_names() -> None:
    assert set(dir(camu)) == set(camu.__all__)
    assert len(set(camu.__all__)) == len(camu.__all__)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'camu' has no attribute 'simulat'"):
        _ = camu.simulat  # type: ignore[attr-defined]


@pytest.mark.slow
def test_star_import_gives_the_public_names() -> None:
    code = "from camu import *; import camu; print(all(name in globals() for name in camu.__all__))"
    assert python(code) == "True"


def test_version_is_the_one_that_is_installed() -> None:
    assert camu.__version__ == version("camu-fl")
    assert f"version: {camu.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_api_page_describes_exactly_the_public_names() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: camu\.(\w+)$", text, re.MULTILINE)
    assert sorted([*described, "__version__"]) == sorted(camu.__all__)


@pytest.mark.parametrize("name", [name for name in camu.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(camu, name))


def test_only_commands_use_rich() -> None:
    source = ROOT / "src" / "camu"
    users = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if re.search(r"^\s*(?:from|import) rich\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert users == {"cli"}


def described(thing: object, section: str) -> set[str]:
    """The names in a section of a docstring."""
    text = (inspect.getdoc(thing) or "").partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^ {4}(\w+): \S", text, re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_described(name: str) -> None:
    function = getattr(camu, name)
    assert described(function, "Parameters") == set(inspect.signature(function).parameters)
    assert "\nReturns:\n" in (inspect.getdoc(function) or "")


@pytest.mark.parametrize("name", VALUES)
def test_every_field_is_described(name: str) -> None:
    kind = getattr(camu, name)
    assert described(kind, "Attributes") == {field.name for field in fields(kind)}


@pytest.mark.slow
def test_compare_takes_a_configuration_and_names() -> None:
    config = small()
    table = camu.compare(config, ["fedsgd", Camu()], seeds=2)
    assert isinstance(table, Comparison)
    assert [row.scheme for row in table.rows] == ["fedsgd", "camu"]
    assert table.seeds == (config.run.seed, config.run.seed + 1)
    for run in table.runs:
        world = camu.build_world(config, run.seed)
        history = camu.simulate(world, camu.make_scheme(config, run.scheme)).history
        assert run.weights_sha256 == history.weights_sha256


def test_compare_keeps_the_devices_of_a_world() -> None:
    world = camu.build_world(small()).with_devices(regions=("here",) * 20)
    seeds: list[int] = []
    fleets: set[tuple[str, float]] = set()

    class Watched(FedAvg):
        def plan(self, world: camu.World) -> camu.Plan:
            seeds.append(world.seed)
            fleets.add((world.devices.regions[0], float(world.links.uplink_gain[0])))
            return super().plan(world)

    table = camu.compare(world, [Watched()], seeds=2)
    assert seeds == [world.seed, world.seed + 1]
    assert fleets == {("here", float(world.links.uplink_gain[0]))}
    assert table.runs[0].weights_sha256 != table.runs[1].weights_sha256


def test_compare_tells_the_same_scheme_apart_by_its_fields() -> None:
    schemes = [Camu(threshold_quantile=0.2), Camu(threshold_quantile=0.8)]
    table = camu.compare(small(), schemes, seeds=1)
    assert [row.scheme for row in table.rows] == [
        "camu threshold_quantile=0.2",
        "camu threshold_quantile=0.8",
    ]


def test_compare_refuses_what_it_cannot_compare() -> None:
    with pytest.raises(camu.InputError, match="at least one scheme"):
        camu.compare(small(), [])
    with pytest.raises(camu.InputError, match="the scheme fedsgd is given twice"):
        camu.compare(small(), ["fedsgd", FedAvg()])
    with pytest.raises(camu.InputError, match="seeds = 0 must be at least 1"):
        camu.compare(small(), ["fedavg"], seeds=0)
