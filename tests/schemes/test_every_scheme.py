"""What holds for every scheme of the registry: a new one is tested by being listed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import TypeAdapter

from camu import schemes
from camu.errors import InputError
from camu.schemes import ALIASES, FAMILIES, SCHEMES, find_scheme, make_scheme
from camu.schemes.contract import waits_for_all
from camu.simulation import Run, simulate
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History
from camu.world import World
from helpers.killed_runs import in_own_process

Tiny = Callable[..., World]
Camu = Callable[..., Any]
PAGE = Path(__file__).parents[2] / "docs" / "schemes.md"

# Parameters for six devices where the defaults would not show what a scheme does.
PARAMETERS: dict[str, dict[str, Any]] = {
    "adaptive-tau": {"max_updates": 4},
    "fedbuff": {"buffer": 2},
    "cost-effective": {"pilot_rounds": 2, "most_updates": 4},
    "fedsa": {"pilot_rounds": 2},
    "semi-async-clusters": {"groups": 2, "discrepancy": 0.01},
    "near-iid-bandit": {"size": 2},
    # These train the same devices in every round, and a few of six lack some labels.
    "fedcs": {"round_share": 1.0},
    "best-channel": {"share": 1.0},
    "fastest": {"share": 1.0},
    "fedavg-epochs": {"share": 0.5, "epochs": 2},
    "resource-blocks": {"block_share": 1.0},
}


def story(out: Path) -> tuple[str, dict[str, Any]]:
    summary = RunDirectory(out).read_summary()
    del summary["wall_seconds"]
    return (out / "rounds.jsonl").read_text(), summary


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_one_worker_killed_and_resumed_equals_two_workers_in_one_go(
    tiny: Tiny, tmp_path: Path, name: str
) -> None:
    config = tiny(
        run__rounds=5,
        machine__checkpoint_every=2,
        run__eval_every=2,
        run__max_joules=50.0,
        scheme__name=name,
        scheme__parameters=PARAMETERS.get(name, {}),
        radio__access="tdma" if name == "camu-p2" else "ofdma",
        radio__fading="rayleigh",
    ).config
    whole = simulate_to(tmp_path / "whole", config.replace({"machine.workers": 2}))
    # Checkpoints are written after every second round, so that the third is lost.
    killed = in_own_process(config.to_toml(), tmp_path / "cut", "after round 3")
    assert killed == -signal.SIGKILL
    again = simulate_to(tmp_path / "cut", config)
    assert again == whole


# Absent devices and failing leaders change what a round costs; adaptive-tau never ends its budget.
FAULTY = {"faults__dropout_probability": 0.2, "faults__leader_failure_probability": 0.2}


@pytest.mark.parametrize("faults", [{}, FAULTY], ids=["all-there", "faults"])
@pytest.mark.parametrize("name", SCHEMES)
def test_slow_down_keeps_the_model_and_the_seconds_and_saves_joules(
    tiny: Tiny, name: str, faults: dict[str, float]
) -> None:
    if name in ("camu-p2", "camu-auto"):
        pytest.skip("chooses frequencies itself, by what slow-down leaves of its budgets")

    def run(dvfs: bool) -> History:
        world = tiny(
            **faults,
            fleet__dvfs=dvfs,
            fleet__cycles_per_sample=4e6,
            run__max_joules=50.0,
            scheme__name=name,
            scheme__parameters=PARAMETERS.get(name, {}),
            radio__access="ofdma" if faults else "tdma",
            radio__fading="rayleigh",
        )
        return simulate(world, make_scheme(world.config)).history

    slow, full = run(True), run(False)
    assert slow.weights_sha256 == full.weights_sha256
    assert len(slow.records) == len(full.records) > 2
    for one, other in zip(slow.records, full.records, strict=True):
        assert one.virtual_seconds == other.virtual_seconds
        assert one.joules["transmit"] == other.joules["transmit"]
        assert one.joules["compute"] <= other.joules["compute"] * (1 + 1e-12)
    # The champion slows down anyway; single devices that nobody waits for cannot.
    waits = waits_for_all(SCHEMES[name]())
    if waits and name != "camu-balanced":
        assert slow.final.joules["compute"] < 0.99 * full.final.joules["compute"]
    assert slow.devices is not None
    assert slow.devices.joules.sum() == pytest.approx(slow.final.total_joules, rel=1e-9)


def simulate_to(out: Path, config: Any) -> tuple[str, dict[str, Any]]:
    run_in_directory(config, RunDirectory(out), True)
    return story(out)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_says_what_it_is(name: str) -> None:
    kind = SCHEMES[name]
    assert kind.name == name
    assert kind.family in FAMILIES
    own = vars(kind)
    for attribute in ("name", "family", "citation", "simplified", "choices", "__doc__"):
        inherited = attribute not in own and getattr(kind, attribute)
        assert not inherited, f"{name} takes {attribute} from another scheme"
    for texts in (kind.simplified, kind.choices):
        assert isinstance(texts, list | tuple)
        assert all(text and not text.endswith(".") for text in texts)
    assert (kind.__doc__ or "").partition("\n")[0].endswith(".")
    assert not kind.citation.endswith(".")


def test_every_number_among_the_parameters_has_limits_and_one_name_the_same() -> None:
    types: dict[str, Any] = {}
    for name, kind in SCHEMES.items():
        hints = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            own = [part for part in get_args(hints[field.name]) if part is not type(None)]
            limited = own[0] if type(None) in get_args(hints[field.name]) else hints[field.name]
            if limited not in (bool, str) and get_origin(limited) is not Literal:
                assert get_origin(limited) is Annotated, (name, field.name)
            assert types.setdefault(field.name, limited) == limited, (name, field.name)
            assert TypeAdapter(hints[field.name]).validate_python(field.default) == field.default


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("fedat", "tiers", 0, "be greater than or equal to 1"),
        ("fedpaq", "share", 0.0, "be greater than 0"),
        ("fedpaq", "share", 1.5, "be less than or equal to 1"),
        ("oort", "exploration", -0.5, "be greater than or equal"),
        ("fedavgm", "momentum", float("nan"), "be a finite number"),
        ("camu", "threshold", float("nan"), "be greater than or equal"),
        ("camu-balanced", "steps", 0, "be greater than or equal to 1"),
    ],
)
def test_a_number_outside_its_limits_is_refused(
    tiny: Tiny, name: str, key: str, value: float, message: str
) -> None:
    config = tiny(scheme__name=name).config
    scheme = config.scheme.model_copy(update={"parameters": {key: value}})
    with pytest.raises(InputError) as refused:
        make_scheme(config.model_copy(update={"scheme": scheme}))
    place = f"scheme.parameters.{key} = {value} ({name})"
    assert str(refused.value).startswith(f"{place}: it should {message}")


def test_the_loop_knows_no_scheme() -> None:
    package = Path(str(inspect.getsourcefile(Run))).parent
    for path in (package / f"{module}.py" for module in ("loop", "hooks", "run", "checkpoint")):
        text = path.read_text("utf-8")
        for name, kind in SCHEMES.items():
            allowed = {"fedsgd": "FedSgd", "camu": "camu"}.get(name)  # pilots; a key of files
            for word in {name, kind.__name__} - {allowed}:
                assert f'"{word}"' not in text, (path, word)
                assert f"{word}(" not in text, (path, word)


def test_earlier_names_still_work(tiny: Tiny) -> None:
    for old, new in ALIASES.items():
        assert find_scheme(old) is SCHEMES[new]
    config = tiny(scheme__name="petrel", scheme__parameters={"max_extra_updates": 2}).config
    assert make_scheme(config) == SCHEMES["compute-rounds"](max_extra_updates=2)  # type: ignore[call-arg]


def test_the_page_shows_the_list_of_the_command(camu: Camu) -> None:
    printed = camu("schemes", "--markdown").out
    page = PAGE.read_text("utf-8")
    assert page.count(printed) == 1
    assert all(f"**`{name}`" in printed for name in SCHEMES)


def test_the_json_list_has_every_field(camu: Camu) -> None:
    rows = json.loads(camu("schemes", "--json").out)
    assert {row["name"] for row in rows} == set(SCHEMES)
    order = [list(FAMILIES).index(row["family"]) for row in rows]
    assert order == sorted(order)
    for row in rows:
        assert row["simplified"] == list(SCHEMES[row["name"]].simplified)
        assert row["choices"] == list(SCHEMES[row["name"]].choices)


@pytest.mark.slow
def test_every_scheme_trains(tiny: Tiny) -> None:
    """Ten rounds over a clean channel lower the loss of the initial model."""
    base = tiny(run__rounds=10, run__eval_every=1, radio__uplink="digital").config
    for name in SCHEMES:
        world = tiny(
            run__rounds=10,
            run__eval_every=1,
            radio__uplink="digital",
            scheme__name=name,
            scheme__parameters=PARAMETERS.get(name, {}),
        )
        assert base.run.seed == world.seed
        records = simulate(world, make_scheme(world.config)).history.records
        losses = [record.loss for record in records if record.loss is not None]
        assert losses[-1] < losses[0], name


def test_schemes_are_found_by_their_names_and_imported_by_their_classes() -> None:
    for name, kind in SCHEMES.items():
        assert kind.name == name
        assert getattr(schemes, kind.__name__) is kind
