"""Run directories as `camu run` leaves them, without training: the plans are real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camu.config import load_config
from camu.schemes import make_scheme
from camu.sealed import file_digest, read_sealed_json, write_sealed_json
from camu.world import build_world

MakeRun = Callable[..., Path]


def make_run(
    folder: Path,
    scheme: str = "camu",
    seed: int = 0,
    rounds: int = 6,
    finished: bool = True,
    settings: tuple[str, ...] = (),
) -> Path:
    """A run whose accuracy rises evenly, a little faster for higher seeds."""
    own = [f"scheme.name={scheme}", f"run.seed={seed}", f"run.rounds={rounds}", *settings]
    config = load_config(preset="demo", settings=own)
    world = build_world(config)
    plan = make_scheme(config).plan(world).to_dict(world)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.to_toml())
    write_sealed_json(folder / "plan.json", plan)
    compute = sum(unit["compute_joules"] for unit in plan["units"])
    lines = [
        {
            "round": number,
            "accuracy": 0.1 + number * (0.1 + 0.01 * seed) if number % 2 == 0 else None,
            "loss": None,
            "virtual_seconds": number * plan["round_seconds"],
            "joules": {
                "compute": number * compute,
                "transmit": number * (plan["round_joules"] - compute),
            },
            "waiting_seconds": [],
            "bits": {"uplink": 8_000_000 * number, "downlink": 0, "gather": 4_000_000 * number},
        }
        for number in range(rounds + 1)
    ]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        digests = {"rounds.jsonl": file_digest(folder / "rounds.jsonl")}
        summary = {"scheme": scheme, "stopped": "rounds", "files": digests}
        write_sealed_json(folder / "summary.json", summary)
    return folder


@pytest.fixture(name="make_run")
def _make_run() -> MakeRun:
    return make_run


VERDICTS: list[dict[str, Any]] = [
    {"claim": "A1", "dataset": "digits", "mean": 1.234, "low": 0.4, "high": 2.06, "n": 3,
     "verdict": "reproduced", "paper": "0.255 -> 6.262", "statement": "</script><script>alert(1)",
     "unit": "points"},
    {"claim": "U1", "dataset": "digits", "mean": 2.1, "low": 1.0, "high": 3.2, "n": 3,
     "verdict": "contradicted", "paper": -4.468, "statement": "", "unit": ""},
    {"claim": "T1", "dataset": "digits", "mean": 0.0, "low": None, "high": None, "n": 9,
     "verdict": "open", "paper": "holds", "statement": "", "unit": ""},
]  # fmt: skip


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three schemes on three seeds, with verdicts and a PPO learning curve; do not change it."""
    folder = tmp_path_factory.mktemp("study")
    for scheme in ("fedavg", "camu", "petrel"):
        for seed in range(3):
            make_run(folder / scheme / f"seed-{seed}", scheme, seed)
    curve = [[1000 * step, 1.0 + 0.8**step, -1.0] for step in range(1, 20)]
    path = folder / "camu" / "seed-0" / "plan.json"
    plan = read_sealed_json(path, "a plan", "write it again")
    plan["allocation"] = {
        "solver": "ppo",
        "objective": 1.01,
        "lower_bound": 0.999,
        "energy_joules": 1.0,
        "shadow_price": None,
        "binding": [],
        "gap": 0.01,
        "learning_curve": [[0, None, -1.0], *curve],
    }
    write_sealed_json(path, plan)
    (folder / "verdicts.json").write_text(json.dumps(VERDICTS))
    return folder


MANY = (
    "fedavg", "local-sgd", "wasserstein", "clustered", "camu", "camu-nova", "compute-rounds", "dsc",
    "hti", "hierfavg", "pr-sgd", "adaptive-batch", "hti-total", "fedprox", "scaffold", "feddyn",
)  # fmt: skip


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More schemes than one table or chart shows together; do not change it."""
    folder = tmp_path_factory.mktemp("many")
    for scheme in MANY:
        make_run(folder / scheme, scheme)
    return folder


def page_data(page: Path) -> dict[str, Any]:
    """What the page's script reads, with tables in place of their numbers."""
    text = page.read_text(encoding="utf-8")
    start = text.index('type="application/json">') + len('type="application/json">')
    document: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    held = document["tables"]
    for scene in document["scenes"]:
        for tables in (scene["tables"], *(plan["tables"] for plan in scene["plans"].values())):
            tables.update({name: held[number] for name, number in tables.items()})
    return document


@pytest.fixture(name="page_data")
def _page_data() -> Callable[[Path], dict[str, Any]]:
    return page_data


def column(table: dict[str, Any], name: str) -> np.ndarray:
    """One column of an embedded table."""
    value = table["columns"][name]
    return np.array(value if isinstance(value, list) else [value] * table["rows"])


@pytest.fixture(name="column")
def _column() -> Callable[[dict[str, Any], str], np.ndarray]:
    return column
