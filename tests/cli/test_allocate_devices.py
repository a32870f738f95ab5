"""`camu allocate` for problems per device: of a plan, of a file, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Camu = Callable[..., Any]
KINDS = ("ofdma-energy", "ofdma-time", "fedl", "resource-blocks")


@pytest.fixture
def plan(camu: Camu, tmp_path: Path) -> Path:
    done = camu("plan", "--preset", "demo", "--scheme", "fedavg", "--json")
    (tmp_path / "plan.json").write_text(done.out)
    return tmp_path / "plan.json"


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_of_a_plan_is_saved_solved_and_printed(
    camu: Camu, plan: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "problem.json"
    done = camu("allocate", "--from-plan", plan, "--kind", kind, "--problem", file, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["kind"] == json.loads(file.read_text())["kind"] == kind
    assert len(answer["devices"]) == 20
    columns = {"bandwidth_hz", "power_watts", "cpu_hz", "device_seconds", "device_joules"}
    assert columns <= set(answer["devices"][0])
    # A deadline is longer than the least one by 1e-9 of it, which rounding may exceed a little.
    assert 0 <= answer["objective"] - answer["lower_bound"] <= 1.000001e-9 * answer["objective"]
    assert sum(row["device_joules"] for row in answer["devices"]) == pytest.approx(
        answer["energy_joules"]
    )
    again = json.loads(camu("allocate", file, "--json").out)
    assert again["devices"] == answer["devices"]
    text = camu("allocate", file).out
    for word in ("kHz", "GHz", "no answer is below", "Binding:"):
        assert word in text


def test_least_energy_and_shortest_round_are_each_others_inverse(
    camu: Camu, plan: Path, tmp_path: Path
) -> None:
    def ask(kind: str, **values: float) -> Any:
        file = tmp_path / "problem.json"
        camu("allocate", "--from-plan", plan, "--kind", kind, "--problem", file)
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
        return json.loads(camu("allocate", file, "--json").out)

    least = ask("ofdma-energy", deadline_seconds=0.65)  # later it would bind nothing
    shortest = ask("ofdma-time", energy_joules=least["objective"])
    assert shortest["objective"] == pytest.approx(0.65, rel=1e-6)


def test_a_deadline_that_nobody_meets_is_refused_with_the_least(
    camu: Camu, plan: Path, tmp_path: Path
) -> None:
    file = tmp_path / "problem.json"
    camu("allocate", "--from-plan", plan, "--kind", "ofdma-energy", "--problem", file)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "deadline_seconds": 0.01}))
    done = camu("allocate", file)
    assert done.code == 1
    assert "deadline_seconds = 0.01 is too short" in done.err
    least = float(done.err.split("a round takes ")[1].split(" s")[0])
    file.write_text(json.dumps({**document, "deadline_seconds": least * 1.0001}))
    assert camu("allocate", file).code == 0
    file.write_text(json.dumps({**document, "deadline_seconds": least * 0.9999}))
    assert camu("allocate", file).code == 1


def test_wrong_requests_name_the_option_and_the_fix(camu: Camu, plan: Path, tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    camu("allocate", "--from-plan", plan, "--kind", "fedl", "--problem", file)
    (tmp_path / "clusters.json").write_text(camu("plan", "--preset", "demo", "--json").out)
    of_plan, of_clusters = ("--from-plan", plan), ("--from-plan", tmp_path / "clusters.json")
    for arguments, said in (
        ((*of_plan, "--kind", "fedll"), "--kind fedll: no such kind; did you mean"),
        ((file, "--kind", "fedl"), "--kind: goes with --from-plan"),
        ((*of_clusters, "--kind", "fedl"), "has units of several devices"),
        ((file, "--figure", tmp_path / "a.svg"), "--figure: there is none of fedl"),
        ((file, "--sweep", "energy=1,2"), "--sweep: fedl cannot be swept"),
        ((file, "--solver", "ppo"), "solver = ppo: fedl has only the solver exact"),
    ):
        done = camu("allocate", *arguments)
        assert done.code == 2, done.out
        assert said in done.err
