"""`camu allocate`: answers in their agreed form, the price of a joule, kind refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = Path(__file__).parents[2] / "docs" / "examples" / "problem.json"
Camu = Callable[..., Any]


@pytest.mark.parametrize("solver", ["exact", "latency"])
def test_json_keeps_its_contract(camu: Camu, solver: str) -> None:
    done = camu("allocate", PROBLEM, "--solver", solver, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert set(answer) >= {"solver", "objective", "lower_bound", "gap", "energy_joules", "seconds"}
    problem = json.loads(PROBLEM.read_text())
    assert len(answer["clusters"]) == len(problem["clusters"])
    assert set(answer["clusters"][0]) == {"power_watts", "extra_updates"}
    assert answer["energy_joules"] <= problem["energy_joules"] * (1 + 1e-9)
    assert answer["lower_bound"] <= answer["objective"]


def test_table_and_picture(camu: Camu, tmp_path: Path) -> None:
    done = camu("allocate", PROBLEM, "--figure", tmp_path / "a.svg")
    assert done.code == 0, done.err
    assert "One joule more" in done.out
    assert "Binding: energy_joules" in done.out
    assert "What a joule buys" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("solver", ["exact", "latency"])
def test_each_leader_has_a_cap_of_its_own(camu: Camu, tmp_path: Path, solver: str) -> None:
    document = json.loads(PROBLEM.read_text())
    caps = [0.01 * (1 + index) for index in range(len(document["clusters"]))]
    for cluster, cap in zip(document["clusters"], caps, strict=True):
        cluster["max_power_watts"] = cap
    path = change(tmp_path, energy_joules=1e4, clusters=document["clusters"])
    done = camu("allocate", path, "--solver", solver, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert [c["power_watts"] for c in answer["clusters"]] == pytest.approx(caps)
    done = camu("allocate", path, "--solver", solver)
    assert "cap W" in done.out
    assert ("More joules would change nothing" in done.out) == (solver == "exact")


def change(tmp_path: Path, **values: Any) -> Path:
    document = json.loads(PROBLEM.read_text())
    for key, value in values.items():
        if key == "gain":
            document["clusters"][0]["gain"] = value
        else:
            document[key] = value
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gain": 0}, "clusters[0].gain"),
        ({"energy_joules": -1}, "energy_joules"),
        ({"clusters": []}, "clusters"),
        ({"noise_watts": float("nan")}, "noise_watts"),
        ({"power_law": "loud"}, "power_law"),
    ],
)
def test_malformed_problems_exit_2(
    camu: Camu, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    done = camu("allocate", change(tmp_path, **values))
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_infeasible_budget_names_one_that_does(camu: Camu, tmp_path: Path) -> None:
    done = camu("allocate", change(tmp_path, energy_joules=1e-3))
    assert done.code == 1
    numbers = [word.strip(".,;()") for word in done.err.replace("\n", " ").split()]
    budgets = [float(w) for w in numbers if w.replace(".", "").replace("e-", "").isdigit()]
    assert any(
        camu("allocate", change(tmp_path, energy_joules=budget), "--json").code == 0
        for budget in budgets
        if budget > 1e-3
    )


def test_missing_file_is_named(camu: Camu, tmp_path: Path) -> None:
    done = camu("allocate", tmp_path / "absent.json")
    assert done.code == 2
    assert "absent.json" in done.err


def test_a_sweep_has_the_answers_of_single_budgets(camu: Camu, tmp_path: Path) -> None:
    budget = json.loads(PROBLEM.read_text())["energy_joules"]
    picture = tmp_path / "sweep.svg"
    text = f"energy=1e-9,{budget},{2 * budget}"
    done = camu("allocate", PROBLEM, "--sweep", text, "--figure", picture, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    rows = found["rows"]
    assert rows[0]["objective"] is None
    assert found["smallest_budget_joules"] > 1e-9
    for row in rows[1:]:
        path = change(tmp_path, energy_joules=row["budget_joules"])
        answer = json.loads(camu("allocate", path, "--json").out)
        assert row["objective"] == answer["objective"]
        assert row["compute_joules"] + row["transmit_joules"] == pytest.approx(
            answer["energy_joules"]
        )
        assert row["power_watts"] == pytest.approx(
            sum(cluster["power_watts"] for cluster in answer["clusters"])
        )
    assert rows[2]["objective"] < rows[1]["objective"]
    assert "What a joule buys" in picture.read_text()
    done = camu("allocate", PROBLEM, "--sweep", text)
    assert "too small" in done.out
    assert "The smallest budget that has an answer is" in done.out


def test_a_range_of_budgets_has_equal_ratios(camu: Camu) -> None:
    found = json.loads(camu("allocate", PROBLEM, "--sweep", "energy=1:16:5", "--json").out)
    assert [row["budget_joules"] for row in found["rows"]] == pytest.approx([1, 2, 4, 8, 16])


@pytest.mark.parametrize(
    "text",
    [
        *("power=1,2", "energy", "energy=", "energy=1,x", "energy=0,1", "energy=1:2", "energy=nan"),
        *("energy=1:2:1", "energy=2:1:3", "energy=1,inf", "energy=1:2:100000000", "energy=-1:2:3"),
    ],
)
def test_a_wrong_sweep_is_refused(camu: Camu, text: str, tmp_path: Path) -> None:
    done = camu("allocate", PROBLEM, "--sweep", text, "--figure", tmp_path / "a.svg")
    assert done.code == 2
    assert "energy=FROM:TO:COUNT" in done.err
    assert not (tmp_path / "a.svg").exists()


def test_a_problem_over_rounds_prints_one_document(camu: Camu, tmp_path: Path) -> None:
    device = {"cycles": 1e7, "capacitance": 1e-28, "max_hz": 1e9}
    cluster = {
        "weight": 1.0,
        "divergence": 0.1,
        "dissimilarity": 0.1,
        "gain": 1e-9,
        "bandwidth_hz": 1e6,
        "gather_seconds": 0.1,
        "gather_joules": 0.1,
        "max_updates": 3,
        "max_power_watts": 1.0,
        "devices": [device],
    }
    document = {
        "kind": "P2",
        "clusters": [cluster],
        "noise_watts": 1e-13,
        "payload_bits": 1e6,
        "convexity": 0.1,
        "smoothness": 1.0,
        "learning_rate": 0.1,
        "initial_gap": 1.0,
        "energy_joules": 1000.0,
        "seconds": 1000.0,
        "max_rounds": 50,
    }
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document))
    done = camu("allocate", path, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["clusters"][0]["updates"] >= 1
    assert done.err.strip() == ""
