"""`camu run`: what it resumes, and what errors in a user's own code leave behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Camu = Callable[..., Any]
SMALL = ["--preset", "demo", "--set", "data.samples_per_device=30", "--set", "run.rounds=2"]
SMALL += ["--set", "machine.workers=1"]

SCHEME = """
import camu

class Mine(camu.schemes.FedAvg):
    def plan(self, world):
        {plan}

    def revise(self, view, state):
        {revise}
"""
RIGHT = {"plan": "return super().plan(world)", "revise": "return None"}

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        {init}
        self.linear = nn.Linear(64, classes)

    def forward(self, images):
        {forward}
        return self.linear(images.flatten(1))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_resume_where_no_run_is(camu: Camu, here: Path) -> None:
    for options in ([], SMALL):
        done = camu("run", *options, "--resume", "--out", "runs/typo")
        assert done.code == 2
        assert "runs/typo: there is no run to resume" in done.err
    assert not (here / "runs").exists()


def test_resume_from_another_directory_says_where_to_go(
    camu: Camu, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine.py").write_text("import camu\nMine = camu.schemes.FedAvg\n")
    (here / "fleet.csv").write_text("id,samples,x,y\na,30,1,2\nb,30,2,1\n")
    options = [*SMALL, "--set", "training.model=logistic", "--set", "run.rounds=1"]
    done = camu("run", *options, "--scheme", "./mine.py:Mine", "--out", "own")
    assert done.code == 0, done.err
    assert camu("run", *options, "--fleet", "fleet.csv", "--out", "file").code == 0
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    for name, key in (("own", "scheme.name = ./mine.py:Mine"), ("file", "fleet.file = fleet.csv")):
        done = camu("run", "--resume", "--out", here / name)
        assert done.code == 2
        assert f"{key}: it is not in the current directory; resume the run from" in done.err
    monkeypatch.chdir(here)
    assert camu("run", "--resume", "--out", here / "own").code == 0


@pytest.mark.slow
def test_resume_without_out_takes_the_last_default_directory(camu: Camu, here: Path) -> None:
    none = camu("run", *SMALL, "--resume")
    assert none.code == 2
    assert "no run to resume" in none.err
    for name in ("camu-digits-seed0", "camu-digits-seed0-2"):
        done = camu("run", *SMALL, "--json")
        assert json.loads(done.out)["directory"] == f"runs/{name}"
    resumed = camu("run", *SMALL, "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["directory"] == "runs/camu-digits-seed0-2"
    assert sorted(path.name for path in (here / "runs").iterdir()) == [
        "camu-digits-seed0",
        "camu-digits-seed0-2",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        ({"plan": "return 1 / 0"}, 1, "mine.py, line 6, in plan: ZeroDivisionError"),
        ({"plan": "return None"}, 2, "plan() returned None; it must return a Plan"),
        ({"revise": "return [1, 2]"}, 2, "a Plan or None"),
        ({"revise": "return view.plans"}, 1, "mine.py, line 9, in revise: AttributeError"),
    ],
)
def test_an_error_in_my_scheme_is_mine_and_the_command_works_after_the_fix(
    camu: Camu, here: Path, wrong: dict[str, str], code: int, message: str
) -> None:
    file = here / "mine.py"
    command = [
        "run",
        *SMALL,
        "--out",
        "runs/mine",
        "--set",
        "machine.callbacks=tensorboard",
        "--scheme",
    ]
    file.write_text(SCHEME.format(**{**RIGHT, **wrong}))
    failed = camu(*command, "./mine.py:Mine")
    assert failed.code == code
    assert message in failed.err
    assert "bug in camu" not in failed.err
    assert not (here / "runs" / "mine").exists()
    # Another directory, since Python keeps modules that it has imported.
    (here / "fixed").mkdir()
    (here / "fixed" / "mine.py").write_text(SCHEME.format(**RIGHT))
    fixed = camu(*command, "./fixed/mine.py:Mine")
    assert fixed.code == 0, fixed.err


@pytest.mark.slow
def test_an_error_after_a_checkpoint_leaves_a_run_that_can_be_resumed(
    camu: Camu, here: Path
) -> None:
    late = "return None if view.round < 2 or not __import__('pathlib').Path('bad').exists() else 7"
    (here / "late.py").write_text(SCHEME.format(**{**RIGHT, "revise": late}))
    (here / "bad").touch()
    command = ["run", *SMALL, "--set", "machine.checkpoint_every=1", "--scheme", "./late.py:Mine"]
    failed = camu(*command, "--out", "runs/late")
    assert failed.code == 2
    assert (here / "runs" / "late" / "config.toml").exists()
    again = camu(*command, "--out", "runs/late")
    assert "continue it with --resume" in again.err
    (here / "bad").unlink()
    resumed = camu("run", "--resume", "--out", "runs/late", "--json")
    assert resumed.code == 0, resumed.err
    undisturbed = camu(*command, "--out", "runs/whole", "--json")
    digests = [json.loads(done.out)["weights_sha256"] for done in (resumed, undisturbed)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"init": "self.size = sizes"}, "mine.py, line 7, in __init__: NameError"),
        ({"forward": "images = images.flat"}, "mine.py, line 11, in forward: AttributeError"),
    ],
)
def test_an_error_in_my_model_is_mine(
    camu: Camu, here: Path, wrong: dict[str, str], message: str
) -> None:
    text = MODEL.format(**{"init": "pass", "forward": "pass", **wrong})
    (here / "mine.py").write_text(text)
    command = ["run", *SMALL, "--out", "runs/mine", "--set", "training.model=./mine.py:Net"]
    failed = camu(*command)
    assert failed.code == 1
    assert message in failed.err
    assert "bug in camu" not in failed.err
    assert not (here / "runs").exists()


def test_an_error_in_my_scheme_is_mine_when_planning(camu: Camu, here: Path) -> None:
    (here / "mine.py").write_text(SCHEME.format(**{**RIGHT, "plan": "return 1 / 0"}))
    failed = camu("plan", "--scheme", "./mine.py:Mine")
    assert failed.code == 1
    assert "mine.py, line 6, in plan: ZeroDivisionError" in failed.err


def test_runs_of_mlflow_are_named_by_scheme_and_seed(
    camu: Camu, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    class Recorder(ModuleType):
        start_run = staticmethod(lambda run_name: names.append(run_name))
        log_params = log_metrics = end_run = staticmethod(lambda *args, **options: None)

    monkeypatch.setitem(sys.modules, "mlflow", Recorder("mlflow"))
    done = camu(
        "run", *SMALL, "--set", "machine.callbacks=mlflow", "--scheme", "fedavg", "--out", "out"
    )
    assert done.code == 0, done.err
    assert names == ["fedsgd-digits-seed0"]


def test_weights_and_biases_gets_every_round(
    camu: Camu, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []
    logged: list[tuple[int, float]] = []
    ended: list[bool] = []

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            logged.append((step, values["virtual_seconds"]))

        def finish(self) -> None:
            ended.append(True)

    class Recorder(ModuleType):
        @staticmethod
        def init(**given: Any) -> Run:
            started.append(given)
            return Run()

    monkeypatch.setitem(sys.modules, "wandb", Recorder("wandb"))
    done = camu("run", *SMALL, "--set", "machine.callbacks=wandb", "--out", "out")
    assert done.code == 0, done.err
    [given] = started
    assert (given["name"], given["dir"]) == ("camu-digits-seed0", "out")
    assert given["config"]["run.rounds"] == len(logged)
    lines = (here / "out" / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    assert logged == [(one["round"], one["virtual_seconds"]) for one in rounds[1:]]
    assert ended == [True]


WATCHING = """
import camu


class Mine(camu.Callback):
    def on_round(self, run, record):
        {what}
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ('run.stop("mine") if record.round == 1 else None', "stopped by: mine"),
        ("1 / 0", "machine.callbacks, ./watch.py:Mine: watch.py, line 7, in on_round: Zero"),
    ],
)
def test_my_own_callback_watches_and_its_errors_are_mine(
    camu: Camu, here: Path, what: str, said: str
) -> None:
    (here / "watch.py").write_text(WATCHING.format(what=what))
    done = camu("run", *SMALL, "--set", "machine.callbacks=./watch.py:Mine", "--out", "out")
    assert done.code == ("Zero" in said)
    assert said in done.out + done.err


def test_an_unknown_callback_is_refused_with_those_that_there_are(camu: Camu, here: Path) -> None:
    done = camu("run", *SMALL, "--set", "machine.callbacks=tensorbord", "--out", "out")
    assert done.code == 2
    assert "tensorbord is no callback; use tensorboard, mlflow, wandb" in done.err
    (here / "no.py").write_text("class No: ...")
    done = camu("run", *SMALL, "--set", "machine.callbacks=./no.py:No", "--out", "out")
    assert done.code == 2
    assert "make it a class derived from camu.Callback" in done.err


@pytest.mark.slow
def test_settings_go_over_the_configuration_of_a_resumed_run(camu: Camu, here: Path) -> None:
    first = camu("run", *SMALL, "--scheme", "local-sgd", "--out", "run")
    assert first.code == 0, first.err
    longer = camu("run", "--resume", "--out", "run", "--set", "run.rounds=3", "--json")
    assert longer.code == 0, longer.err
    summary = json.loads(longer.out)
    assert (summary["scheme"], summary["rounds"]) == ("local-sgd", 3)
    assert "rounds = 3" in (here / "run" / "config.toml").read_text("utf-8")
    manifest = json.loads((here / "run" / "manifest.json").read_text("utf-8"))
    assert manifest["config"]["run.rounds"] == 3


def test_messages_show_text_as_it_was_typed(camu: Camu, here: Path) -> None:
    done = camu("plan", "--scheme", "./nofile.py:X")
    assert done.code == 2
    assert "./nofile.py:X" in done.err


def test_an_snr_file_needs_a_fleet(camu: Camu) -> None:
    done = camu("plan", "--snr", "snr.csv")
    assert done.code == 2
    assert "--fleet" in done.err


def test_an_aggregate_that_is_not_finite_is_the_schemes_fault(camu: Camu, here: Path) -> None:
    (here / "nanny.py").write_text(
        "import camu\n"
        "class Nan(camu.schemes.FedAvg):\n"
        "    def aggregate(self, view, state):\n"
        "        return view.weights.with_parameters(view.weights.parameters * float('nan'))\n"
        "class Short(camu.schemes.FedAvg):\n"
        "    def aggregate(self, view, state):\n"
        "        return view.weights.with_parameters([1.0])\n"
    )
    done = camu("run", *SMALL, "--scheme", "./nanny.py:Nan", "--out", "run")
    assert done.code == 2
    assert "aggregate() returned weights that are not finite" in done.err
    done = camu("run", *SMALL, "--scheme", "./nanny.py:Short", "--out", "run")
    assert done.code == 2
    assert "scheme nanny:Short: weights: parameters hold 1 numbers" in done.err
