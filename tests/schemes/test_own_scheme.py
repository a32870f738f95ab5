"""Schemes by name or import path, their parameters, and the example of the documentation."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from camu.config import load_config
from camu.errors import InputError
from camu.learning.weights import Weights
from camu.schemes import SCHEMES, FedAvg, State, View, describe, find_scheme, make_scheme
from camu.schemes.adaptive_tau import AdaptiveTau
from camu.schemes.camu import Camu
from camu.schemes.local_sgd import LocalSgd
from camu.schemes.registry import configs_for
from camu.simulation import simulate
from camu.world import build_world
from helpers.configs import small

Cli = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "fairness_scheme.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """An empty current directory; call it to write a module there."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def config_of(*settings: str) -> Any:
    return load_config(preset="demo", settings=settings)


def refusal(*settings: str) -> str:
    with pytest.raises(InputError) as refused:
        make_scheme(config_of(*settings))
    return str(refused.value)


def test_parameters_come_from_the_configuration() -> None:
    given = ("scheme.parameters.threshold=5000", "scheme.parameters.threshold_quantile=0.3")
    scheme = make_scheme(config_of(*given, "scheme.name=camu"))
    assert scheme == Camu(threshold=5000.0, threshold_quantile=0.3, max_extra_updates=4)
    assert make_scheme(config_of("scheme.parameters.local_updates=5"), "local-sgd") == LocalSgd(5)


def test_a_default_of_the_class_holds_on_the_command_line_as_in_python(camu: Cli) -> None:
    own = f"{DOCS / 'examples' / 'fedprox.py'}:FedProx"
    plan = json.loads(camu("plan", "--preset", "demo", "--json", "--scheme", own).out)
    assert {unit["local_updates"] for unit in plan["units"]} == {5}
    here = find_scheme(own)().plan(build_world(config_of()))
    assert {unit.local_updates for unit in here.units} == {5}


def test_a_scheme_that_does_not_exist() -> None:
    message = refusal("scheme.name=petrol")
    assert message.startswith("scheme.name = petrol: no such scheme; did you mean `petrel`?")
    assert all(name in message for name in SCHEMES)
    assert "module:Class" in message
    assert "did you mean" not in refusal("scheme.name=zzz")


def test_what_is_told_about_a_scheme() -> None:
    for name in SCHEMES:
        told = describe(name, find_scheme(name))
        assert told["name"] == name
        assert len(told["sentence"].split()) >= 4
        assert told["citation"]
    assert describe("camu", Camu)["parameters"] == {
        "threshold": None,
        "threshold_quantile": 0.5,
        "max_extra_updates": 4,
    }


MINE = """
from dataclasses import dataclass
from camu.schemes import Scheme, make_plan, single_devices

@dataclass(frozen=True)
class Mine(Scheme):
    "All the same."
    needed: int
    times: int = 1

    def plan(self, world):
        groups = single_devices(world)
        return make_plan(self, groups, groups.sample_weights, self.times * self.needed)

class Bare(Scheme):
    def plan(self, world):
        return make_plan(self, single_devices(world), single_devices(world).sample_weights)

class Planless(Scheme):
    pass

class Stranger:
    def plan(self, world): ...
"""


def test_own_scheme_from_the_current_directory(here: Callable[[str, str], None]) -> None:
    here("own_one", MINE)
    config = config_of(
        "scheme.name=own_one:Mine", "scheme.parameters.needed=3", "scheme.parameters.times=2"
    )
    plan = make_scheme(config).plan(build_world(config))
    assert plan.scheme == "own_one:Mine"
    assert {unit.local_updates for unit in plan.units} == {6}
    assert str(Path.cwd()) not in sys.path


def test_own_parameters_that_are_wrong(here: Callable[[str, str], None]) -> None:
    here("own_two", MINE)
    name = "scheme.name=own_two:Mine"
    assert refusal(name) == "scheme own_two:Mine: set scheme.parameters.needed"
    message = refusal(name, "scheme.parameters.neded=3")
    assert "scheme.parameters.neded" in message
    assert "did you mean `needed`?" in message
    assert "needed, times" in message
    message = refusal("scheme.name=own_two:Bare", "scheme.parameters.needed=3")
    assert "its fields are none" in message
    assert make_scheme(config_of("scheme.name=own_two:Bare")).plan(build_world(config_of())).units


def test_parameters_of_my_own_scheme_do_not_disturb_the_others(
    here: Callable[[str, str], None],
) -> None:
    here("own_three", MINE)
    config = config_of("scheme.name=own_three:Mine", "scheme.parameters.needed=3")
    assert make_scheme(config, "local-sgd") == LocalSgd(2)


def test_parameters_reach_built_in_schemes_and_wrong_ones_are_refused() -> None:
    config = config_of("scheme.name=adaptive-tau", "scheme.parameters.control=0.025")
    assert make_scheme(config) == AdaptiveTau(control=0.025)
    assert "adaptive-tau has no such field" in refusal(
        "scheme.name=adaptive-tau", "scheme.parameters.nonsense=1"
    )


TYPED = """
from __future__ import annotations
from dataclasses import dataclass
import camu

@dataclass(frozen=True)
class Typed(camu.Scheme):
    exponent: float = 1.0
    times: int = 1
    fast: bool = False
    label: str = "a"
    limit: float | None = None
    other: object = None

    def plan(self, world):
        return None
"""


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("exponent=abc", "a valid number"),
        ("exponent=true", "a valid number"),
        ("times=1.5", "a valid integer"),
        ("times=true", "a valid integer"),
        ("fast=1", "a valid boolean"),
        ("label=3", "a valid string"),
        ("limit=high", "a valid number"),
    ],
)
def test_a_parameter_of_another_type_is_refused(
    here: Callable[[str, str], None], wrong: str, kind: str
) -> None:
    here("own_typed", TYPED)
    message = refusal("scheme.name=own_typed:Typed", f"scheme.parameters.{wrong}")
    assert message.startswith(f"scheme.parameters.{wrong.partition('=')[0]} = ")
    assert message.endswith(f" (own_typed:Typed): it should be {kind}")


def test_parameters_of_the_right_type_are_taken(here: Callable[[str, str], None]) -> None:
    here("own_right", TYPED)
    for right in ("exponent=2", "exponent=2.5", "times=2", "fast=true", "label=b", "limit=1"):
        assert make_scheme(config_of("scheme.name=own_right:Typed", f"scheme.parameters.{right}"))
    made = make_scheme(config_of("scheme.name=own_right:Typed", "scheme.parameters.other=1"))
    assert made.other == 1  # type: ignore[attr-defined]


def test_compared_schemes_get_the_parameters_that_they_have() -> None:
    config = config_of("scheme.parameters.control=0.025")
    configs = configs_for(config, ["fedavg", "adaptive-tau"])
    assert configs["fedavg"].scheme.parameters == {}
    assert make_scheme(configs["adaptive-tau"]) == AdaptiveTau(control=0.025)
    with pytest.raises(InputError, match=r"scheme\.parameters\.control: fedavg, camu has no such"):
        configs_for(config, ["fedavg", "camu"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("agregate", "aggregate"), ("adapt", "revise"), ("finish", "finished"), ("selekt", "select")],
)
def test_a_method_that_is_nearly_one_of_the_contract_is_refused(
    here: Callable[[str, str], None], wrong: str, right: str
) -> None:
    here("own_typo", f"import camu\nclass Mine(camu.schemes.FedAvg):\n    def {wrong}(self): ...\n")
    message = refusal("scheme.name=own_typo:Mine")
    assert message.startswith("scheme.name = own_typo:Mine: scheme Mine: camu never calls")
    assert f"a method {wrong}; did you mean `{right}`?" in message


def test_a_local_rule_with_a_method_is_refused(here: Callable[[str, str], None]) -> None:
    here(
        "own_rule",
        "import camu\nclass Adam(camu.schemes.LocalRule):\n    def step(self, w, g): ...\n",
    )
    message = refusal("scheme.name=own_rule:Adam")
    assert "Adam: camu never calls step() of a LocalRule" in message
    assert "Scheme.correction" in message


def test_own_class_without_plan(here: Callable[[str, str], None]) -> None:
    here("own_four", MINE)
    assert "no method plan(self, world)" in refusal("scheme.name=own_four:Planless")
    assert "class Stranger(camu.Scheme)" in refusal("scheme.name=own_four:Stranger")


# ---- the plan-only example of the documentation --------------------------------------------------


def test_the_example_plans(here: Callable[[str, str], None]) -> None:
    here(EXAMPLE.stem, EXAMPLE.read_text("utf-8"))
    sizes = ("data.size_exponent=1.0", "data.with_replacement=true")
    settings = [f"scheme.name={EXAMPLE.stem}:Fairness", *sizes]
    plans = {}
    for exponent in (0.0, 0.5, 1.0):
        config = config_of(*settings, f"scheme.parameters.exponent={exponent}")
        plans[exponent] = make_scheme(config).plan(build_world(config))
    for exponent, plan in plans.items():
        voices = [unit.samples**exponent for unit in plan.units]
        expected = [voice / sum(voices) for voice in voices]
        assert [unit.weight for unit in plan.units] == pytest.approx(expected)
    assert len({unit.samples for unit in plans[1.0].units}) > 1
    petrel = make_scheme(config, "petrel").plan(build_world(config))
    assert [u.local_updates for u in plans[0.0].units] == [u.local_updates for u in petrel.units]
    once = config_of(*settings, "scheme.parameters.max_extra_updates=0")
    assert {u.local_updates for u in make_scheme(once).plan(build_world(once)).units} == {1}


def test_the_example_on_the_command_line(
    here: Callable[[str, str], None], camu: Callable[..., Any]
) -> None:
    here(EXAMPLE.stem, EXAMPLE.read_text("utf-8"))
    done = camu("plan", "--scheme", f"{EXAMPLE.stem}:Fairness", "--json")
    assert done.code == 0, done.err
    assert '"scheme": "fairness_scheme:Fairness"' in done.out


class OldBuffers(FedAvg):
    """Returns the new parameters with the old statistics of batch norm."""

    def aggregate(self, view: View, state: State) -> Weights:
        mean = super().aggregate(view, state)
        return view.weights.with_parameters(mean.parameters)


class NewBuffers(FedAvg):
    def aggregate(self, view: View, state: State) -> Weights:
        mean = super().aggregate(view, state)
        return mean.with_parameters(mean.parameters)


def test_frozen_statistics_of_batch_norm_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    batch, group = small(), small(training__normalisation="group")
    for scheme, config in ((NewBuffers(), batch), (OldBuffers(), group)):
        simulate(build_world(config), scheme)
        assert "buffers" not in caplog.text
    simulate(build_world(batch), OldBuffers())
    [line] = [text for text in caplog.messages if "buffers" in text]
    assert "OldBuffers: aggregate() keeps the old buffers" in line
    assert "super().aggregate(view, state).with_parameters(...)" in line
