"""Commands write neither over a user's files nor over what they read."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camu.files import write_text
from camu.outputs import RUN_FILES, claim
from camu.simulation.directory import RunDirectory

Camu = Callable[..., Any]
FLEET = Path(__file__).parents[1] / "docs" / "examples" / "fleet.csv"
RUN = ["run", "--preset", "demo", "--set", "run.rounds=2", "--set", "training.model=logistic"]
COMPARE = ["compare", *RUN[1:], "--schemes", "fedavg", "--seeds", "1"]

# Runs a command that is killed just before it renames a file for the nth time.
KILLED = """
import os, signal, sys
left, rename = int(sys.argv.pop(1)), os.replace
def replace(*names):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*names)
os.replace = replace
from camu.cli import main
main()
"""


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's, which is also the current one."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests copy it before they do anything to it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    command = [sys.executable, "-m", "camu.cli", *RUN, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.mark.parametrize("rename", [1, 2, 3, 4])
def test_a_run_after_a_kill_at_its_beginning_trains_its_own_plan(
    camu: Camu, tmp_path: Path, rename: int
) -> None:
    """A kill between any two of the first files leaves nothing that another run could take up."""
    out, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", KILLED, str(rename), *RUN, "--scheme", "camu", "--out"]
    killed = subprocess.run([*command, str(out)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    other = [*RUN, "--scheme", "fedavg", "--seed", "7"]
    again = camu(*other, "--out", out)
    if RunDirectory(out).exists() and again.code == 2:  # the killed run had begun
        assert "a run is already here" in again.err
        again = camu("run", "--resume", "--out", out)
        assert again.code == 0, again.err
        other = [*RUN, "--scheme", "camu"]
    assert again.code == 0, again.err
    assert camu(*other, "--out", whole).code == 0
    for name in ("plan.json", "rounds.jsonl", "devices.csv", "config.toml"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    left = [path.name for path in out.rglob(".*") if path.name != ".lock"]
    assert left == []


def test_a_plan_without_its_run_is_not_trained(camu: Camu, finished: Path, mine: Path) -> None:
    shutil.copy(finished / "plan.json", mine)
    refused = camu(*RUN, "--scheme", "fedavg", "--seed", "7", "--out", mine)
    assert refused.code == 2
    assert "holds other files (plan.json)" in refused.err
    assert "delete" not in refused.err


def test_a_refused_run_removes_nothing(camu: Camu, mine: Path) -> None:
    (mine / "tensorboard").mkdir()
    for name in ("tensorboard/x", "manifest.json", "rounds.jsonl"):
        (mine / name).write_text("mine")
    before = contents(mine)
    refused = camu(*RUN, "--set", "faults.dropout_trace=nope.csv", "--out", mine)
    assert refused.code == 2
    assert contents(mine) == before


@pytest.mark.parametrize("name", [*RUN_FILES, "report.html", "notes.txt"])
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_run_refuses_a_directory_of_the_users(
    camu: Camu, mine: Path, name: str, resume: list[str]
) -> None:
    (mine / name).write_text("" if name == "config.toml" else "mine")
    before = contents(mine)
    refused = camu(*RUN, "--out", mine, *resume)
    assert refused.code in (1, 2)
    assert contents(mine) == before
    assert "delete" not in refused.err


def test_a_run_does_not_replace_its_fleet_or_its_first_model(
    camu: Camu, finished: Path, mine: Path
) -> None:
    shutil.copy(FLEET, mine / "devices.csv")
    refused = camu(
        *RUN, "--fleet", "devices.csv", "--set", "data.with_replacement=true", "--out", "."
    )
    assert refused.code == 2
    (mine / "devices.csv").unlink()
    shutil.copy(finished / "model.safetensors", mine)
    before = contents(mine)
    assert camu(*RUN, "--start", "model.safetensors", "--out", ".").code == 2
    assert contents(mine) == before
    run = mine / "run"
    shutil.copytree(finished, run)
    before = contents(run)
    again = camu("run", "--resume", "--start", run / "model.safetensors", "--out", run)
    assert again.code == 2
    assert "the command reads this file" in again.err
    assert contents(run) == before


@pytest.mark.parametrize("name", ["comparison.csv", "comparison.json", "report.html", "notes.txt"])
def test_a_comparison_refuses_a_directory_of_the_users(camu: Camu, mine: Path, name: str) -> None:
    (mine / name).write_text("mine")
    refused = camu(*COMPARE, "--out", mine)
    assert refused.code == 2
    assert f"holds other files ({name})" in refused.err
    assert contents(mine) == {name: b"mine"}


@pytest.mark.parametrize(
    "command",
    [
        COMPARE,
        ["forecast", *RUN[1:], "--target", "0.5"],
        ["demo"],
        ["reproduce", "theory", "--seeds", "2"],
        ["board", "run", "--world", "sixty", "--only", "fedsgd"],
    ],
    ids=["compare", "forecast", "demo", "theory", "board"],
)
def test_results_do_not_go_into_a_run(camu: Camu, finished: Path, command: list[str]) -> None:
    before = contents(finished)
    refused = camu(*command, "--out", finished)
    assert refused.code == 2
    assert "holds other files" in refused.err
    assert contents(finished) == before


def test_a_run_does_not_go_into_a_comparison(camu: Camu, tmp_path: Path) -> None:
    out = tmp_path / "both"
    assert camu(*COMPARE, "--out", out).code == 0
    assert camu(*COMPARE, "--out", out).code == 0  # its own results are no obstacle
    assert camu(*RUN, "--out", out).code == 2
    refused = camu("demo", "--out", out)
    assert refused.code == 2
    assert "`camu demo` did not make this directory" in refused.err


@pytest.mark.parametrize("option", ["--csv", "--figure", "--problem"])
def test_a_plan_does_not_replace_what_it_reads(camu: Camu, mine: Path, option: str) -> None:
    name = "f.svg" if option == "--figure" else "f.csv"
    shutil.copy(FLEET, mine / "f.csv")
    if name != "f.csv":
        os.link(mine / "f.csv", mine / name)
    config = mine / "own.toml"
    config.write_text('[fleet]\nfile = "f.csv"\n')
    before = contents(mine)
    for given in (["--fleet", "f.csv"], ["-c", config]):
        refused = camu("plan", *given, option, mine / name)
        assert refused.code == 2, refused.out
        assert "the command reads this file" in refused.err
    assert camu("plan", "-c", config, "--csv", config).code == 2
    assert contents(mine) == before


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "--preset", "demo", "--scheme", "ownfp:FedProx", "--csv"],
        ["plan", "--preset", "demo", "--scheme", "ownfp:FedProx", "--problem"],
        ["plan", "--preset", "demo", "--set", "training.model=ownfp:Model", "--csv"],
        ["plan", "--preset", "demo", "--set", "data.dataset=ownfp:data", "--csv"],
        [*COMPARE[:-4], "--schemes", "ownfp:FedProx@mu=0.1", "--seeds", "1", "--latex"],
        ["allocate", "p.json", "--solver", "ownfp:solve", "--problem"],
    ],
    ids=["scheme", "problem", "model", "data", "compare", "solver"],
)
def test_the_users_own_code_is_not_replaced(camu: Camu, mine: Path, command: list[str]) -> None:
    shutil.copy(FLEET.with_name("fedprox.py"), mine / "ownfp.py")
    with (mine / "ownfp.py").open("a") as file:
        file.write("\nimport mu_of_mine\n")
    (mine / "mu_of_mine.py").write_text("MU = 0.1\n")
    before = contents(mine)
    for name in ("ownfp.py", "mu_of_mine.py"):
        refused = camu(*command, name)
        assert refused.code == 2, refused.out
        assert "the command reads this file" in refused.err
    assert contents(mine) == before


def test_an_import_does_not_replace_what_it_reads(camu: Camu, mine: Path) -> None:
    (mine / "fleet.csv").write_text("id,gain_db,note\na,-82,mine\n")
    before = contents(mine)
    assert camu("fleet", "import", "fleet.csv", "--samples", "20", "--out", ".").code == 2
    assert contents(mine) == before
    command = ["fleet", "import", "fleet.csv", "--samples", "20", "--out", "made"]
    assert camu(*command).code == 0
    assert camu(*command).code == 0
    refused = camu("fleet", "import", "made/fleet.csv", "--samples", "20", "--out", "made")
    assert refused.code == 2
    assert "the command reads this file" in refused.err


@pytest.mark.parametrize(
    "command",
    [
        ["report", "RUN", "--out", "RUN/rounds.jsonl"],
        ["report", "RUN", "--out", "RUN/summary.json"],
        ["export", "RUN", "--to", "RUN/checkpoint/state.safetensors"],
        ["export", "RUN", "--to", "RUN/model.safetensors"],
        ["plan", "--preset", "demo", "--csv", "RUN/devices.csv"],
        ["allocate", "--from-plan", "RUN", "--problem", "RUN/plan.json"],
    ],
    ids=["rounds", "summary", "checkpoint", "model", "devices", "plan"],
)
def test_the_files_of_a_run_are_its_own(camu: Camu, finished: Path, command: list[str]) -> None:
    before = contents(finished)
    refused = camu(*(word.replace("RUN", str(finished)) for word in command))
    assert refused.code == 2
    assert "this file belongs to the run in that directory" in refused.err
    assert contents(finished) == before


def test_an_allocation_does_not_replace_its_problem(camu: Camu, mine: Path) -> None:
    assert camu("plan", "--preset", "demo", "--problem", "p.json").code == 0
    os.symlink("p.json", mine / "link.svg")
    before = contents(mine)
    assert camu("allocate", "p.json", "--problem", "p.json").code == 2
    assert camu("allocate", "p.json", "--figure", "link.svg").code == 2
    assert contents(mine) == before


def test_an_allocation_does_not_replace_the_fleet_of_its_plan(camu: Camu, mine: Path) -> None:
    shutil.copy(FLEET, mine / "f.csv")
    (mine / "plan.txt").write_text(camu("plan", "--fleet", "f.csv", "--json").out)
    before = contents(mine)
    refused = camu("allocate", "--from-plan", "plan.txt", "--problem", "f.csv")
    assert refused.code == 2
    assert "f.csv: the command reads this file" in refused.err
    assert contents(mine) == before


def test_figures_do_not_go_among_a_users_files(camu: Camu, finished: Path, mine: Path) -> None:
    (mine / "notes.txt").write_text("mine")
    assert camu("report", finished, "--out", mine / "x.html", "--figures", mine).code == 2
    assert contents(mine) == {"notes.txt": b"mine"}


def test_equal_runs_have_equal_files(camu: Camu, finished: Path, tmp_path: Path) -> None:
    assert camu(*RUN, "--out", tmp_path / "again").code == 0
    for name in ("model.safetensors", "devices.csv", "rounds.jsonl", "plan.json", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (finished / name).read_bytes(), name


def test_ids_that_are_formulas_are_protected_and_read_back(camu: Camu, mine: Path) -> None:
    rows = "".join(f"=x{k},{k},1,30\n" for k in range(4))
    (mine / "f.csv").write_text(f"id,x,y,samples\n{rows}")
    assert camu("plan", "--fleet", "f.csv", "--csv", "units.csv").code == 0
    assert ",'=x" in (mine / "units.csv").read_text()
    done = camu(*RUN, "--fleet", "f.csv", "--out", "run")
    assert done.code == 0, done.err
    assert (mine / "run" / "devices.csv").read_text().splitlines()[1].startswith("'=x0,")
    devices = RunDirectory(mine / "run").read_devices()
    assert devices is not None
    assert devices.ids == ("=x0", "=x1", "=x2", "=x3")


@pytest.mark.parametrize("target", ["nan", "2", "-0.1", "much"])
@pytest.mark.parametrize("command", [COMPARE, ["forecast", *RUN[1:]]], ids=["compare", "forecast"])
def test_a_target_that_is_no_accuracy_is_refused_before_the_runs(
    camu: Camu, tmp_path: Path, command: list[str], target: str
) -> None:
    refused = camu(*command, f"--target={target}", "--out", tmp_path / "out")
    assert refused.code == 2
    wanted = "give a number" if target == "much" else "accuracy is from 0 to 1"
    assert f"--target {target}: {wanted}" in refused.err
    assert not (tmp_path / "out").exists()


def test_a_fleet_whose_name_is_no_text_is_refused(camu: Camu, mine: Path) -> None:
    name = os.fsdecode(b"g\xff.csv")
    shutil.copy(FLEET, mine / name)
    refused = camu(*RUN, "--set", "data.with_replacement=true", "--fleet", name, "--out", "o")
    assert refused.code == 2
    assert "fleet.file" in refused.err
    assert "not valid UTF-8 text" in refused.err


def test_a_mark_of_something_else_is_refused(tmp_path: Path) -> None:
    from camu.errors import InputError

    claim(tmp_path / "a", "demo")
    assert claim(tmp_path / "a", "demo") == {"command": "demo"}
    for text in ("[]", '{"command": "other"}', "nonsense"):
        (tmp_path / "a" / "camu.json").write_text(text)
        with pytest.raises(InputError, match=r"camu\.json"):
            claim(tmp_path / "a", "demo")


def test_the_umask_and_the_mode_of_a_replaced_file_are_respected(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "new", "a")
        write_text(tmp_path / "open", "a")
        (tmp_path / "open").chmod(0o640)
        write_text(tmp_path / "open", "b")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o600, "open": 0o640}
