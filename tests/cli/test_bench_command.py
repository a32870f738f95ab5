"""`camu bench`: a table for people, one JSON document for programs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from camu.cli.bench import describe

Camu = Callable[..., Any]
MACHINE = {"kernel": "native avx2", "quick": False, "load_before": 0.1, "cores": 2}
W1 = {
    "samples_per_second": 23456.7,
    "ratio_to_plain": 2.5,
    "ratio_to_tuned": 1.25,
    "roofline_fraction": 0.42,
    "overhead_fraction": 0.03,
    "peak_mb": 480.2,
    "kernel": "native avx2",
}


@pytest.mark.slow
def test_json_holds_the_chosen_workloads_only(camu: Camu) -> None:
    done = camu("bench", "--quick", "--workloads", "W3d, W1", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert set(report) == {"workloads", "machine"}
    assert set(report["workloads"]) == {"W1", "W3d"}
    assert report["workloads"]["W1"]["ratio_to_tuned"] > 0


def test_an_unknown_workload_is_named_with_those_there_are(camu: Camu) -> None:
    done = camu("bench", "--workloads", "W3x")
    assert done.code == 2
    assert "W3x" in done.err
    assert "W3d" in done.err


def rendered(result: dict[str, Any]) -> str:
    from rich.console import Console

    console = Console(width=80, emoji=False)
    with console.capture() as capture:
        for part in describe(result):
            console.print(part, highlight=False)
    return capture.get()


def test_the_table_fits_a_terminal_and_explains_its_columns() -> None:
    own = {key: W1[key] for key in W1 if key != "overhead_fraction"} | {"kernel": "torch"}
    text = rendered({"workloads": {"W1": W1, "evaluation": own}, "machine": MACHINE})
    assert "…" not in text
    (row,) = [line for line in text.splitlines() if line.startswith(" W1")]
    assert row.split() == ["W1", "23,457", "2.50", "1.25", "42", "3", "480"]
    for word in ("times plain:", "times tuned:", "of sgemm:", "outside training:", "memory:"):
        assert word in text
    assert "kernel: native avx2, evaluation: torch" in text
    assert "Other programs" not in text


def test_a_busy_machine_is_mentioned() -> None:
    text = rendered({"workloads": {"W1": W1}, "machine": MACHINE | {"load_before": 1.7}})
    assert "Other programs were running (load 1.7 on 2 cores)" in text
