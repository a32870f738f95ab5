"""`camu answer`: the page that an owner reads, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Camu = Callable[..., Any]
ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "docs" / "examples" / "boards.csv"
SENSORS = ROOT / "docs" / "examples" / "sensors.csv"


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_the_page_answers_every_question(camu: Camu) -> None:
    asked = ("--buy", 2, "--kwh", 1e-7, "--set", "fleet.grams_per_kwh=380")
    done = camu("answer", "--fleet", SENSORS, *asked)
    assert done.code == 0, done.err
    page = words_of(done.out)
    for part in (
        "What it costs a round 40 rounds sending the data once",
        "CO2 of that energy",
        "Sending the data once is cheaper in time",
        "Break-even: sending the data costs as much as",
        "Batteries empty device days without learning",
        "Who leads:",
        "With best-uplink,",
        "What holds a round up, and what each saves if it were like",
        "Replace 2 devices:",
        "A budget of 0.36 J",
        "0 of 40 rounds fit. What would fit more:",
        "How far it moves if what is assumed is wrong (40 rounds)",
    ):
        assert part in page
    assert "40 rounds: as run.rounds says; --rounds N or --target SCORE (measured)" in page


def test_json_has_the_figures_of_plan(camu: Camu) -> None:
    options = ("--fleet", BOARDS, "--json", "--set", "fleet.grams_per_kwh=380")
    done, plan = camu("answer", *options, "--rounds", 7), camu("plan", *options)
    assert done.code == 0, done.err
    found, planned = json.loads(done.out), json.loads(plan.out)
    assert found["round"]["seconds"] == planned["round_seconds"]
    assert found["learning"]["joules"] == pytest.approx(7 * planned["round_joules"])
    assert found["rounds"]["how"] == "as --rounds says"
    for name in ("round", "learning", "sending"):
        grams = 380 * found[name]["joules"] / 3.6e6
        assert found["co2_grams"][name] == pytest.approx(grams)
    assert found["sending"]["megabytes"] == planned["sending"]["megabytes"]
    assert found["sending"]["arrival_seconds"] == planned["sending"]["seconds"]
    assert found["assumptions"][0]["what"] == "rounds"
    assert len(found["holdups"]) == 10
    assert found["cheaper"]["megabytes"] == "sending"
    assert found["batteries"] is None


def test_a_budget_per_round_that_no_plan_meets_gets_plans_that_do(camu: Camu) -> None:
    budget = ("--scheme", "camu-joint", "--set", "allocation.energy_joules=3")
    done = camu("answer", "--fleet", SENSORS, *budget, "--json")
    assert done.code == 0, done.err
    assert "too small" in done.err
    found = json.loads(done.out)
    assert found["budget"]["rounds"] == 0
    fitting = [one for one in found["options"] if one["rounds"] is None]  # in any number of rounds
    assert fitting
    assert all(one["bill"]["joules"] <= 40 * 3 * (1 + 1e-9) for one in fitting)


def test_one_device_has_an_answer(camu: Camu, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,x,y,samples\na,1,2,30\n")
    done = camu("answer", "--fleet", tmp_path / "one.csv")
    assert done.code == 0, done.err
    assert "Every device sends its own update." in done.out


def test_a_class_that_dominates_is_said(camu: Camu, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,x,y,label_good,label_bad\na,1,2,80,20\nb,3,2,78,22\n")
    done = camu("answer", "--fleet", tmp_path / "f.csv")
    assert done.code == 0, done.err
    said = "79% of the samples are of class good: always saying so has 79% accuracy."
    assert said in words_of(done.out)


def test_an_unknown_server_is_refused_before_any_work(camu: Camu) -> None:
    done = camu("answer", "--fleet", BOARDS, "--server", "pi-44")
    assert done.code == 2
    assert "--server: pi-44: no such board" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seeds", 3), "--seeds and --out are about short runs; give --target SCORE too"),
        (("--hours", 0), "--hours, --kwh and --megabytes are numbers above 0, not 0"),
        (("--like", "nobody"), "--like nobody: no device has this id"),
        (("--target", 90), "--target 90: accuracy is from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(camu: Camu, words: tuple[Any, ...], said: str) -> None:
    done = camu("answer", "--fleet", BOARDS, *words)
    assert done.code == 2
    assert said in words_of(done.err)


@pytest.mark.slow
def test_rounds_to_a_target_are_measured_in_short_runs(camu: Camu, tmp_path: Path) -> None:
    share = ("--set", "data.with_replacement=true", "--set", "machine.workers=1")
    asked = ("--target", 0.3, "--rounds", 12, "--out", tmp_path / "runs")
    done = camu("answer", "--fleet", BOARDS, *share, *asked, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["rounds"]["how"].startswith("measured for accuracy 30.0% in 2 short runs of 12")
    assert found["rounds"]["target"] == 0.3
    number = found["rounds"]["number"]
    assert found["learning"]["joules"] == pytest.approx(number * found["round"]["joules"])
    assert (tmp_path / "runs").is_dir()
