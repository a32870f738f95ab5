"""The study: done work is not done again, a kill loses nothing, Ray gives the same numbers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch

from camu.cli.reproduce import FURTHER, PRINTED
from camu.config import Config
from camu.experiments import claims, reproduce, theory
from camu.experiments.claims import Accuracies
from camu.experiments.design import (
    DATASETS,
    FULL,
    HARM,
    QUICK,
    SENSITIVITY,
    Cell,
    Scale,
    cells_of,
)
from camu.experiments.recalibrate import recalibrate, recalibrated_accuracy
from camu.experiments.reproduce import Study, run_study
from camu.experiments.scheduler import Executor, FinishedRun, study_config
from camu.experiments.tables import verdicts_page
from camu.learning.models import seeded_model
from camu.schemes import SCHEMES
from camu.simulation.directory import RunDirectory, run_in_directory
from camu.simulation.history import History, Record
from camu.world import build_world
from helpers.configs import small

TINY = Scale("tiny", 30, 2, 1, 2, (1000,))


tiny = partial(small, data__samples_per_device=30, scheme__name="clustered")

EXECUTE = """
import sys
from pathlib import Path
from camu.config import load_config
from camu.experiments.scheduler import Executor

if __name__ == "__main__":
    given, out, engine = sys.argv[1:]
    configs = {path.stem: load_config(path) for path in sorted(Path(given).glob("*.toml"))}
    executor = Executor(Path(out), engine=engine)
    executor.run(configs)
    print(executor.trained)
"""


def execute_elsewhere(
    folder: Path, configs: dict[str, Config], out: Path, engine: str
) -> subprocess.Popen[str]:
    """An `Executor` in a process of its own, which prints how many configurations it ran."""
    folder.mkdir()
    for name, config in configs.items():
        (folder / f"{name}.toml").write_text(config.to_toml())
    script = folder / "execute.py"
    script.write_text(EXECUTE)
    return subprocess.Popen(
        [sys.executable, script, folder, out, engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def execute(configs: dict[str, Config], out: Path) -> dict[str, FinishedRun]:
    return Executor(out).run(configs)


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path: Path) -> None:
    study = Study(("aggregation",), ("digits",), TINY)
    executor = Executor(tmp_path)
    first = run_study(study, executor)
    assert (executor.trained, executor.reused) == (4 + 15 * 2, 0)
    rows = json.loads((tmp_path / "verdicts.json").read_text())
    assert {row["claim"] for row in rows} >= {"A1", "A2", "A2b", "A1-trend", "A1@h=30"}
    for row in rows:
        assert set(row) >= {"claim", "dataset", "mean", "low", "high", "n", "verdict", "paper"}
        assert row["n"] == 2
        if row["sd"] == 0:  # two equal values say nothing about the spread of others
            assert row["low"] is row["high"] is None
        else:
            assert row["low"] <= row["mean"] <= row["high"]
        assert row["average_verdict"] is not None
    sweep = json.loads((tmp_path / "sweep.json").read_text())["digits"]
    assert str(sweep["chosen"]) in sweep["accuracy"]
    assert sweep["accuracy"][str(sweep["best"])] == max(sweep["accuracy"].values())
    rates = sorted(map(float, sweep["accuracy"]))
    place = rates.index(sweep["best"])
    assert sweep["chosen"] == rates[max(0, place - 1)]
    executor = Executor(tmp_path)
    assert run_study(study, executor) == first
    assert (executor.trained, executor.reused) == (0, 4 + 15 * 2)
    # People can find a run by its name.
    (found,) = (tmp_path / "runs").glob("digits-h30-clustered-seed1-*")
    assert (found / "summary.json").exists()


@pytest.mark.slow
def test_kill_in_the_middle_and_call_again(tmp_path: Path) -> None:
    """The command is killed, the workers with it; a second call ends with the same numbers."""
    configs = {f"s{seed}": tiny(run__seed=seed, run__rounds=12) for seed in range(4)}
    whole = execute(configs, tmp_path / "whole")
    out = tmp_path / "killed"
    process = execute_elsewhere(tmp_path / "given", configs, out, "local")
    while not list(out.glob("runs/*/rounds.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    for name, run in execute(configs, out).items():
        assert run.history.weights_sha256 == whole[name].history.weights_sha256


@pytest.mark.slow
def test_a_worker_that_is_killed_is_no_defect(tmp_path: Path) -> None:
    """As the kernel does when memory runs out: a sentence, and the next call goes on."""
    configs = {"long": tiny(run__rounds=100_000)}
    process = execute_elsewhere(tmp_path / "given", configs, tmp_path / "out", "local")
    while not list((tmp_path / "out").glob("runs/*/rounds.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    for child in psutil.Process(process.pid).children():
        if "spawn_main" in " ".join(child.cmdline()):
            child.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "camu.errors.CamuError: a process that trains was killed" in err.splitlines()[-1]


STOPPED = """
import signal, sys
from pathlib import Path
from camu.config import load_config
from camu.experiments.scheduler import Executor

def stop(number, frame):
    if list(Path(out).glob("runs/*/rounds.jsonl")):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

if __name__ == "__main__":
    given, out = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        Executor(Path(out)).run({"long": load_config(given)})
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.mark.slow
def test_work_in_the_background_of_a_shell_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(tiny(run__rounds=100_000).to_toml())
    (tmp_path / "stopped.py").write_text(STOPPED)
    command = [sys.executable, "stopped.py", "long.toml", "out"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert found.stdout == "stopped\n", found.stderr
    assert not list((tmp_path / "out").glob("runs/*/summary.json"))


@pytest.mark.xdist_group("ray")
@pytest.mark.slow
def test_ray_gives_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    configs = {f"s{seed}": tiny(run__seed=seed) for seed in range(2)}
    # In a process of its own: Ray leaves threads and warnings behind that are not ours to judge.
    process = execute_elsewhere(tmp_path / "given", configs, tmp_path / "ray", "ray")
    out, err = process.communicate()
    assert process.returncode == 0, err[-2000:]
    assert out.strip().endswith("2")
    there = Executor(tmp_path / "ray").run(configs)  # finished: nothing is trained
    for name, run in execute(configs, tmp_path / "local").items():
        one, other = run.planned.directory, there[name].planned.directory
        assert not there[name].trained
        mine, theirs = one.read_summary(), other.read_summary()
        assert {**mine, "wall_seconds": 0} == {**theirs, "wall_seconds": 0}
        assert one.rounds.read_text() == other.rounds.read_text()
        models = [load_file(run.model) for run in (one, other)]
        assert models[0].keys() == models[1].keys()
        assert all(np.array_equal(models[0][key], models[1][key]) for key in models[0])


@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_cells_share_everything_but_the_scheme(scale: Scale) -> None:
    """All schemes of one data set, h and channel differ in nothing that draws the world."""
    for dataset in DATASETS:
        for experiment in (*PRINTED, *FURTHER):
            cells = cells_of(experiment, dataset)
            assert len({cell.name for cell in cells}) == len(cells)
            if experiment not in ("aggregation", "updates", "resources"):
                continue
            worlds: dict[tuple[object, object], set[str]] = {}
            for cell in cells:
                config = study_config(cell.changes(scale, 0.3, 0))
                key = (config.data.noniid_devices, config.radio.noise_dbm)
                drawn = (config.data, config.fleet, config.radio, config.training, config.run)
                worlds.setdefault(key, set()).add(repr(drawn))
            assert all(len(found) == 1 for found in worlds.values())


def test_thresholds_follow_the_data() -> None:
    assert Scale("x", 2000, 1, 1, 1, ()).threshold(1e4) == 1e4
    assert QUICK.threshold(1e4) == 1000


def test_wrong_data_set_is_refused(camu) -> None:
    done = camu("reproduce", "updates", "--dataset", "digits", "--quick")
    assert done.code == 2
    assert "mnist or fashion-mnist" in done.err


@pytest.mark.parametrize("name", ["contest", "unseen", "leaderboard"])
def test_what_the_board_replaced_is_refused_with_its_name(camu, name: str) -> None:
    done = camu("reproduce", name, "--quick")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert name in done.err
    assert "`camu board run`" in done.err
    assert name not in camu("reproduce", "--help").out


@pytest.mark.parametrize(("scale", "rate"), [(QUICK, 0.3), (FULL, 0.3), (FULL, 0.03)])
def test_variations_follow_scale_and_rate(scale: Scale, rate: float) -> None:
    """A third is a third of what the study uses, not of what the quick study happens to use."""
    epoch = Cell("mnist", 30, "camu", variation="local update is an epoch")
    assert epoch.changes(scale, rate, 0)["run.rounds"] == scale.rounds // 3
    slow = Cell("mnist", 30, "camu", variation="a third of the learning rate")
    assert slow.changes(scale, rate, 0)["training.learning_rate"] == pytest.approx(rate / 3)


def test_every_variation_is_judged_by_the_direction_of_its_claim() -> None:
    """Made-up accuracies: each scheme is a clear step above the one before it."""
    order = ["fedavg", "wasserstein", "clustered", "camu", "petrel"]

    def accuracy(cell: Cell, seed: int) -> float:
        return 0.5 + 0.1 * order.index(cell.scheme) + 1e-4 * seed * len(cell.name)

    rows = list(claims.sensitivity(Accuracies("mnist", accuracy, range(3))))
    verdicts = {row.claim: row.verdict for row in rows}
    for variation in ("as is", *SENSITIVITY):
        found = [verdicts[f"{claim}, {variation}"] for claim in ("A1", "A2", "U1", "U2", "U3")]
        expected = ["reproduced", "reproduced", "contradicted", "reproduced", "contradicted"]
        assert found == expected, variation
    lines = verdicts_page(rows).splitlines()
    assert lines[0].startswith(f"{len(rows)} verdicts: ")
    columns = lines[2].count("|")
    assert columns > 8
    assert {line.count("|") for line in lines[2:]} == {columns}


def test_harm_is_judged_reading_by_reading() -> None:
    """Made-up accuracies: petrel loses on label 3 alone, and the gate brings half of it back."""
    loss = {"clustered": 0.0, "petrel": 0.4, "camu": 0.2}

    def labels(cell: Cell, seed: int) -> np.ndarray:
        found = np.full(10, 0.9) + 1e-3 * seed
        found[3] -= loss[cell.scheme] + 1e-3 * (seed % 2) * len(cell.scheme)
        return found

    def accuracy(cell: Cell, seed: int) -> float:
        return float(labels(cell, seed).mean())

    found = claims.harm(Accuracies("mnist", accuracy, range(4)))
    rows = list(itertools.islice(found, 2 * (1 + len(HARM))))  # without J1
    assert {row.verdict for row in rows} == {"reproduced"}  # U1 is harm, U3 is the gate's gain
    worst = list(claims.labels("mnist", labels, range(4)))
    assert {"label 3, the worst of 10" in row.statement for row in worst} == {True}
    assert worst[0].mean == pytest.approx(-40, abs=1)


def test_equal_work_is_equally_many_weighted_updates() -> None:
    """Made-up runs: a point per update. Petrel makes more per round, and is luckier by seed."""

    def run(cell: Cell, seed: int) -> History:
        updates, luck = (2 + seed, 0.001 * seed) if cell.scheme == "petrel" else (1, 0.0)
        joules = {"compute": 0.0, "transmit": 0.0}
        records = (Record(n, 0.01 * updates * n + luck, None, 1.0, joules) for n in range(21))
        return History(tuple(records), "sha", "rounds")

    cells = [Cell("mnist", 30, name) for name in ("clustered", "petrel")]
    histories = {(cell, seed): run(cell, seed) for cell in cells for seed in range(3)}
    found = claims.equal_work("mnist", range(3), histories, {s: 2.0 + s for s in range(3)})
    assert found.mean == pytest.approx(0.1)  # the luck alone: 0, 0.1 and 0.2 points
    assert found.verdict == "no effect above 1 point"


def test_joint_optimisation_is_taken_apart() -> None:
    base = {"petrel": 0.80, "hti": 0.79, "camu": 0.76, "camu-joint": 0.77}

    def accuracy(cell: Cell, seed: int) -> float:
        return base[cell.scheme] + (0.0 if cell.variation else 0.02) + 1e-4 * seed

    found = Accuracies("mnist", accuracy, range(4))
    parts = {row.claim: row.mean for row in claims.joint(found)}
    assert parts == pytest.approx({"J1, gate": -4, "J1, power": 1, "J1, noise": 2})
    whole = {row.claim: row.mean for row in claims.resources(found)}
    assert whole["J1-exact"] == pytest.approx(parts["J1, gate"] + parts["J1, power"])


def test_the_gate_s_bias_is_that_of_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "GATE_WORLDS", 5)
    rows = {row.claim: row for row in claims.gate("digits", TINY, 0.1)}
    assert rows["G1, h = 30, 1 label"].n == claims.GATE_WORLDS
    assert 0.5 < rows["G2, h = 30, 1 label"].mean <= 1
    moved = []
    for seed in range(claims.GATE_WORLDS):
        world = build_world(study_config(Cell("digits", 30, "camu").changes(TINY, 0.1, seed)))
        counts = world.devices.label_counts
        everyone = counts.sum(axis=0) / counts.sum()
        distances = []
        for scheme in ("clustered", "wasserstein"):
            trained = sum(
                unit.weight * share * counts[k] / counts[k].sum()
                for unit in SCHEMES[scheme]().plan(world).units
                for k, share in zip(unit.members, unit.member_weights, strict=True)
            )
            distances.append(np.abs(trained - everyone).sum() / 2)
        moved.append(distances[0] - distances[1])
    assert rows["G3, h = 30, 2 labels"].mean == pytest.approx(np.mean(moved))


@pytest.mark.slow
def test_statistics_are_computed_again_on_all_devices(tmp_path: Path) -> None:
    config = study_config(Cell("digits", 30, "petrel").changes(TINY, 0.1, 0))
    run = RunDirectory(tmp_path / "run")
    run_in_directory(config, run)
    found = recalibrated_accuracy(run)
    assert found == recalibrated_accuracy(run)
    # Against one pass over the same samples: equal batches have equal say.
    world = build_world(config)
    assert world.federation is not None
    module = seeded_model(config)
    module.load_state_dict(load_torch(run.model), strict=False)
    recalibrate(module, world.federation)
    norm = next(m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d))
    before = torch.nn.Sequential(*list(module.children())[: list(module.children()).index(norm)])
    own = world.federation.indices
    picked = np.concatenate([one[np.linspace(0, len(one) - 1, 70).astype(int)] for one in own])
    pixels = torch.from_numpy(world.federation.dataset.train_inputs[picked]).float()[:, None] / 255
    with torch.no_grad():
        mean = before(pixels).mean(dim=(0, 2, 3))
    assert torch.allclose(norm.running_mean, mean, atol=1e-4)
    assert not module.training


def test_the_allocations_of_resources_come_from_the_plans() -> None:
    """B1 is about objectives and certified gaps, as plan.json holds them."""
    objective = {"exact": (1.0, 2.0), "ppo": (1.1, 2.1)}
    found = {
        (solver, seed): {"objective": value, "gap": 1e-9 * (seed + 1)}
        for solver, values in objective.items()
        for seed, value in enumerate(values)
    }
    verdict = claims.exact_against_ppo("mnist", found, range(2))
    assert verdict.mean == pytest.approx((10.0 + 5.0) / 2)
    assert "2.0e-09" in verdict.statement


def test_the_corrected_bound_holds_where_the_printed_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = {"data.samples_per_device": 40, "data.with_replacement": True}
    monkeypatch.setattr(theory, "study_config", lambda keys: study_config({**keys, **small}))
    found = theory.margins("digits", 1)
    assert found["theorem1"] < 0 < found["corrected"]


def test_theory_says_what_it_did(camu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def margins(dataset: str, seed: int) -> dict[str, float]:
        asked.append(seed)
        return {"theorem1": -1.0 - seed, "corrected": 1.0 + seed}

    monkeypatch.setattr(reproduce, "margins", margins)
    done = camu("reproduce", "theory", "--dataset", "mnist", "--seeds", 3, "--out", tmp_path)
    assert done.code == 0, done.err
    assert asked == [0, 1, 2]
    assert "computed 3 convex federations" in done.err
    assert "trained" not in done.err
    rows = json.loads((tmp_path / "verdicts.json").read_text())
    assert [row["n"] for row in rows] == [3, 3]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "T1-corrected" in page
    assert str(tmp_path / "report.html") in done.out
