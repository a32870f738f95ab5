"""A run plans once: clusters are formed once, P1 is solved once, PPO trains once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.allocation import ppo
from camu.config import Config
from camu.experiments import reproduce, scheduler
from camu.experiments.design import Scale
from camu.experiments.reproduce import Study, run_study
from camu.experiments.scheduler import Executor, in_turn
from camu.planning import groups
from camu.schemes import camu_joint as joint
from camu.simulation.directory import RunDirectory
from helpers.configs import IDEAL

SMALL = ["--preset", "demo", "--set", "data.samples_per_device=20", "--set", "machine.workers=1"]
SMALL += ["--set", "training.model=logistic", "--set", "run.eval_every=10"]
JOINT = ["--scheme", "camu-joint", "--set", "allocation.ppo_steps=64"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often devices were clustered, P1 was solved, and PPO was trained."""
    counts: Counter[str] = Counter()

    def counted(module: Any, name: str, what: str) -> None:
        plain = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counts[what] += 1
            return plain(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    counted(groups, "cluster_devices", "clustering")
    counted(joint, "solve", "P1")
    counted(ppo, "train", "PPO")
    return counts


@pytest.mark.parametrize("solver", ["exact", pytest.param("ppo", marks=pytest.mark.slow)])
def test_run_plans_once_and_resume_not_at_all(
    camu: Callable[..., Any], calls: Counter[str], tmp_path: Path, solver: str
) -> None:
    out = tmp_path / "run"
    options = [*SMALL, *JOINT, "--set", f"allocation.solver={solver}", "--out", out]
    once = {"clustering": 1, "P1": 1} | ({"PPO": 1} if solver == "ppo" else {})
    done = camu("run", *options, "--set", "run.rounds=2")
    assert done.code == 0, done.err
    assert calls == once
    done = camu("run", *options, "--set", "run.rounds=4", "--resume")
    assert done.code == 0, done.err
    assert calls == once
    assert len(RunDirectory(out).read_records()) == 5
    assert camu("report", out).code == 0
    assert calls == once


@pytest.mark.slow
def test_a_study_plans_once_per_run_and_judges_without_planning(
    calls: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = reproduce.study_config

    def quick(changes: dict[str, Any]) -> Config:
        small = {"training.model": "logistic", "allocation.ppo_steps": 64}
        small |= {"data.dataset": "digits"}  # in place of MNIST
        small |= IDEAL  # with idle power P1 is solved for less and less until a round is paid for
        return plain({**changes, **small})

    monkeypatch.setattr(reproduce, "study_config", quick)
    monkeypatch.setattr(reproduce, "LEARNING_RATES", (0.1,))
    monkeypatch.setattr(scheduler, "on_processes", in_turn())
    study = Study(("resources",), ("mnist",), Scale("tiny", 20, 1, 1, 2, (1000,)))
    run_study(study, Executor(tmp_path))
    schemes = [cell.scheme for cell in study.cells("mnist")]
    single = ("fedavg", "wasserstein", "local-sgd", "adaptive-tau")
    clustered = [name for name in schemes if name not in single]
    assert schemes.count("camu-joint") == 2
    assert calls == {"clustering": 2 * len(clustered), "P1": 2 * 2, "PPO": 2}
    before = dict(calls)
    run_study(study, Executor(tmp_path))
    assert calls == before
