"""Updates of real nodes arrive as they were sent, unless the user asks for simulated damage."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra `flower` is not installed")

from camu.config import Config, load_config
from camu.deploy.deployment import Deployment, for_real_links
from camu.deploy.host import control
from camu.errors import CamuError, InputError

DAMAGE = [
    "radio.uplink=analog",
    "radio.uplink=hybrid-weights",
    "radio.uplink=packet",
    "radio.outage_snr_db=3",
    "faults.dropout_probability=0.1",
    "faults.dropout_trace=absent.csv",
    "faults.availability_trace=there.csv",
    "faults.leader_failure_probability=0.1",
    "faults.corrupt_probability=0.1",
]


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that `camu deploy run` would start."""
    found: list[Config] = []

    def run_remote(deployment: Deployment, *_: Any) -> None:
        found.append(deployment.config)
        raise CamuError("far enough")

    monkeypatch.setattr(control, "run_remote", run_remote)
    return found


def test_the_uplink_of_a_deployment_is_digital_by_default(
    camu: Callable[..., Any], deployed: list[Config], tmp_path: Path
) -> None:
    run = ["deploy", "run", "--insecure", "--out", tmp_path / "run"]
    assert "far enough" in camu(*run, "--preset", "paper").err
    assert "far enough" in camu(*run, "--preset", "paper", "--simulate-faults").err
    assert [config.radio.uplink for config in deployed] == ["digital", "hybrid"]
    assert deployed[1] == load_config(preset="paper")
    assert camu("deploy", "app", tmp_path / "app").code == 0
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    config = Config.from_toml(app["tool"]["flwr"]["app"]["config"]["config"])
    assert config.radio.uplink == "digital"


@pytest.mark.parametrize("setting", DAMAGE)
def test_simulated_damage_is_refused_unless_it_was_asked_for(
    camu: Callable[..., Any], deployed: list[Config], tmp_path: Path, setting: str
) -> None:
    run = ["deploy", "run", "--insecure", "--out", tmp_path / "run", "--set", setting]
    refused = camu(*run)
    assert refused.code == 2
    assert setting.replace("=", " = ") in refused.err
    assert "--simulate-faults" in refused.err
    assert deployed == []
    assert camu("deploy", "app", tmp_path / "app", "--set", setting).code == 2
    assert not (tmp_path / "app").exists()
    assert "far enough" in camu(*run, "--simulate-faults").err
    assert len(deployed) == 1


@pytest.mark.parametrize(
    "setting",
    ["fleet.speed_mps=[1, 2]", "fleet.position_trace=places.csv", "clustering.replan_every=3"],
)
def test_real_devices_move_by_themselves(
    camu: Callable[..., Any], deployed: list[Config], tmp_path: Path, setting: str
) -> None:
    run = ["deploy", "run", "--insecure", "--out", tmp_path / "run", "--set", setting]
    for arguments in (run, [*run, "--simulate-faults"]):
        refused = camu(*arguments)
        assert refused.code == 2
        assert f"{setting.partition('=')[0]}: real devices move by themselves" in refused.err
    assert deployed == []


@pytest.mark.parametrize("setting", ["radio.pilot_symbols=4", "radio.csi_correlation=0.5"])
def test_rates_that_are_too_high_are_simulated_damage(setting: str) -> None:
    config = load_config(settings=["radio.fading=rayleigh", setting])
    with pytest.raises(InputError, match=setting.replace("=", " = ")):
        for_real_links(config, simulate=False)
    assert for_real_links(config, simulate=True) == config


def test_a_run_is_continued_from_any_directory(
    camu: Callable[..., Any],
    deployed: list[Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own.npz").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    run = ["deploy", "run", "--insecure", "--out", out]
    files = ["--set", "fleet.file=fleet.csv", "--set", "data.dataset=./own.npz"]
    assert "far enough" in camu(*run, *files).err
    assert deployed[0].fleet.file == str(tmp_path / "fleet.csv")
    assert deployed[0].data.dataset == str(tmp_path / "own.npz")
    out.mkdir()
    (out / "config.toml").write_text(deployed[0].to_toml())
    (tmp_path / "fleet.csv").touch()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "far enough" in camu(*run, "--resume").err
    assert deployed[1] == deployed[0]


def test_a_run_is_not_written_where_a_file_is(
    camu: Callable[..., Any], deployed: list[Config], tmp_path: Path
) -> None:
    (tmp_path / "run").touch()
    refused = camu("deploy", "run", "--insecure", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "is a file; give a directory" in refused.err
    assert deployed == []
