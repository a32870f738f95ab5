"""`camu plan` and `camu schemes`: tables for people, one JSON document for programs, a picture."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Camu = Callable[..., Any]
UNIT_KEYS = {
    "members", "leader", "weight", "member_weights", "local_updates", "power_watts", "samples",
    "wasserstein", "contribution", "multi_update", "compute_seconds", "transmit_seconds",
    "idle_seconds", "compute_joules", "transmit_joules",
}  # fmt: skip


def test_json_keeps_its_contract(camu: Camu) -> None:
    done = camu("plan", "--preset", "demo", "--seed", 3, "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert (plan["scheme"], plan["seed"]) == ("camu", 3)
    assert len(plan["devices"]) == 20
    assert set(plan["devices"][0]) >= {"id", "position", "region", "samples", "label_counts"}
    assert set(plan["devices"][0]) >= {"cpu_hz", "power_watts", "max_power_watts", "snr_db"}
    assert plan["devices"][0]["battery_joules"] is None  # mains power
    assert all(set(unit) >= UNIT_KEYS for unit in plan["units"])
    members = sorted(member for unit in plan["units"] for member in unit["members"])
    assert members == [device["id"] for device in plan["devices"]]
    kinds = ("compute_joules", "transmit_joules", "receive_joules")
    joules = sum(unit[kind] for unit in plan["units"] for kind in kinds)
    joules += 20 * 0.07 * plan["round_seconds"]  # fleet.idle_watts of everyone
    assert joules == pytest.approx(plan["round_joules"], rel=1e-12)
    for unit in plan["units"]:
        spent = unit["compute_seconds"] + unit["transmit_seconds"] + unit["idle_seconds"]
        assert spent == pytest.approx(plan["round_seconds"], rel=1e-9)


def test_one_device_is_one_unit(camu: Camu, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,x,y,samples\na,1,2,30\n")
    done = camu("plan", "--fleet", tmp_path / "one.csv")
    assert done.code == 0, done.err
    assert "camu: 1 unit of 1 device. A round" in " ".join(done.out.split())


def test_square_brackets_in_names_are_text(camu: Camu, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("id,region,x,y,samples\n[red]a,[/r],1,2,30\n[/x],[b],1,3,30\n")
    done = camu("plan", "--fleet", tmp_path / "b.csv")
    assert done.code == 0, done.err
    for name in ("[red]a", "[/x]", "[/r]", "[b]"):
        assert name in done.out


@pytest.mark.parametrize("columns", ["80", "40"])
def test_a_narrow_table_cuts_nothing(
    camu: Camu, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    weak = ("--set", "radio.noise_dbm=-10", "--set", "radio.bandwidth_hz=1000")
    done = camu("plan", "--preset", "demo", *weak)
    assert done.code == 0, done.err
    head = "unit  N  power W  compute s     send s     wait s          J"
    assert head in done.out
    assert "e+0" in done.out
    assert "…" not in done.out
    lines = done.out.splitlines()
    assert any(line.startswith("W: distance") and "N: local updates" in line for line in lines)
    assert any("of 20 devices. A round" in line and line.endswith(" MB.") for line in lines)


@pytest.mark.slow
def test_table_and_pictures(camu: Camu, tmp_path: Path) -> None:
    for ending in ("svg", "png", "pdf", "html"):
        done = camu("plan", "--scheme", "petrel", "--figure", tmp_path / f"plan.{ending}")
        assert done.code == 0, done.err
        assert "A round takes" in done.out
        assert (tmp_path / f"plan.{ending}").stat().st_size > 5000
    assert "base station" in (tmp_path / "plan.svg").read_text()
    done = camu("plan", "--figure", tmp_path / "plan.doc")
    assert done.code == 2
    assert ".svg" in done.err


def test_literal_noise_warns_with_the_snr(camu: Camu) -> None:
    done = camu("plan", "--set", "radio.noise_dbm=-10", "--json")
    assert done.code == 0
    json.loads(done.out)  # the warning is not on stdout
    assert "about -7" in done.err
    assert "dB" in done.err
    assert "days" in done.err or "weeks" in done.err


def test_fleet_file_is_planned_without_data(camu: Camu, tmp_path: Path) -> None:
    path = tmp_path / "\N{GRINNING FACE} fleet.csv"  # no name of a file may be lost on the way
    rows = [f"sensor-{k},{10 * (k % 4)},{7 * (k // 4)},{50 + k},{k % 3 * 9}" for k in range(12)]
    path.write_text("id,x,y,label_0,label_1\n" + "\n".join(rows) + "\n")
    done = camu("plan", "--fleet", path, "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    members = {member for unit in plan["units"] for member in unit["members"]}
    assert members == {f"sensor-{k}" for k in range(12)}
    path.write_text("id,x,y,label_0,label_1\na,1,2,0,0\n")
    done = camu("plan", "--fleet", path)
    assert done.code == 2
    assert str(path) in done.err


def test_schemes_lists_them_all(camu: Camu) -> None:
    names = {"fedsgd", "wasserstein", "clustered", "compute-rounds", "camu", "dsc", "local-sgd"}
    rows = json.loads(camu("schemes", "--json").out)
    assert names <= {row["name"] for row in rows}
    assert all(row["sentence"].endswith(".") and row["citation"] for row in rows)
    assert "Petrel" in camu("schemes").out


def test_unknown_scheme_suggests(camu: Camu) -> None:
    done = camu("plan", "--scheme", "petrle")
    assert done.code == 2
    assert "petrel" in done.err


def test_the_saved_problem_has_the_answer_of_camu_joint(camu: Camu, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    done = camu("plan", "--preset", "demo", "--scheme", "fedavg", "--problem", path)
    assert done.code == 0, done.err
    assert f"problem: {path}" in " ".join(done.out.split())
    answer = json.loads(camu("allocate", path, "--json").out)
    plan = json.loads(camu("plan", "--preset", "demo", "--scheme", "camu-joint", "--json").out)
    assert answer["objective"] == plan["allocation"]["objective"]
    powers = [cluster["power_watts"] for cluster in answer["clusters"]]
    assert powers == [unit["power_watts"] for unit in plan["units"]]


def test_a_path_may_hold_any_character(camu: Callable[..., Any], tmp_path: Path) -> None:
    fleet = tmp_path / "fleet 😀.csv"
    fleet.write_bytes((Path(__file__).parents[2] / "docs/examples/fleet.csv").read_bytes())
    done = camu("plan", "--fleet", fleet, "--scheme", "fedavg", "--json")
    assert done.code == 0, done.err
    missing = camu("plan", "--fleet", tmp_path / "😀.csv")
    assert missing.code == 2
    assert "😀.csv: cannot be read" in missing.err


def test_many_units_are_shown_by_how_their_numbers_are_spread(camu: Camu, tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    rows = [f"d{k},{10 * (k % 10)},{7 * (k // 10)},{50 + k}" for k in range(60)]
    path.write_text("id,x,y,samples\n" + "\n".join(rows) + "\n")
    done = camu("plan", "--fleet", path, "--scheme", "fedavg")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["samples", "50", "56", "80", "103", "109"] in lines
    assert ["members", "1", "1", "1", "1", "1"] in lines
    assert "fedsgd: 60 units of 60 devices." in " ".join(done.out.split())
    assert len(lines) < 27  # not a line per unit


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SENSORS = ("--preset", "paper", "--fleet", EXAMPLES / "sensors.csv")


def test_a_plan_says_how_long_batteries_last(camu: Camu) -> None:
    done = camu("plan", *SENSORS)
    assert done.code == 0, done.err
    assert "Jain's fairness of the joules per device: 0.185" in done.out
    found = json.loads(camu("plan", *SENSORS, "--json").out)["batteries"]
    first = found["empty"]["first"]
    assert f"the leaders {first['device']} of unit 1 (round {first['rounds']})" in done.err
    words = [line.split() for line in done.out.splitlines()]
    days = f"{first['seconds'] / 86_400:.3g}"
    assert ["first", first["device"], str(first["rounds"]), days, "never", "100"] in words
    leaders = {leader["device"]: leader for leader in found["leaders"]}
    assert max(leaders.values(), key=lambda one: one["share"])["device"] == first["device"]
    assert sum(leader["share"] for leader in leaders.values()) < 1
    # A fleet on mains power has nothing to say.
    assert "batteries" not in json.loads(camu("plan", "--preset", "demo", "--json").out)


def test_leaders_in_turn_last_longer_on_the_example(camu: Camu) -> None:
    first = {}
    for leader in ("exemplar", "rotating"):
        setting = f"clustering.leader={leader}"
        done = camu("plan", *SENSORS, "--set", setting, "--json")
        first[leader] = json.loads(done.out)["batteries"]["empty"]["first"]["rounds"]
        assert ("is done" in done.err or "are done" in done.err) == (leader == "exemplar")
    assert first["rotating"] > 5 * first["exemplar"]


def test_the_downlink_is_part_of_a_plan(camu: Camu) -> None:
    done = camu("plan", "--preset", "demo", "--set", "radio.downlink=true")
    assert "idle. The base station spends" in " ".join(done.out.split())


def test_plan_refuses_noise_for_models_that_run_refuses(camu: Callable[..., Any]) -> None:
    pytest.importorskip("dp_accounting")
    private = ("--preset", "demo", "--set", "training.dp_unit=sample")
    outcomes = [camu(command, *private) for command in ("plan", "run")]
    assert [outcome.code for outcome in outcomes] == [2, 2]
    for outcome in outcomes:
        assert "training.dp_unit = sample: the model has buffers" in outcome.err
    group = ("--set", "training.normalisation=group")
    assert camu("plan", *private, *group).code == 0
