"""Keys of earlier versions: refused from users with the new name, translated from saved runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from camu.config import Config, load_config
from camu.config.former import FORMER
from camu.errors import InputError
from camu.simulation.directory import RunDirectory
from helpers.configs import IDEAL


@pytest.mark.parametrize("old", FORMER)
def test_a_former_key_is_refused_with_what_to_write(old: str, tmp_path: Path) -> None:
    assert old not in Config().flat()
    section, _, key = old.partition(".")
    file = tmp_path / "mine.toml"
    file.write_text(f"[{section}]\n{key} = 1\n")
    for layers in ({"settings": [f"{old}=1"]}, {"file": file}, {"overrides": {old: 1}}):
        with pytest.raises(InputError) as caught:
            load_config(**layers)
        assert str(caught.value).endswith(f"`{old}` {FORMER[old].now}")


SAVED = """
[fleet]
dropout_probability = 0.25
compute_model = "literal"
[training]
batch = {batch}
[allocation]
bound = "theorem1"
[contribution]
distance = "tv"
w_min = 0.0
[scheme]
name = "camu"
threshold_quantile = 0.3
max_extra_updates = 4
local_updates = 2
plan_seconds = 600.0
parameters = {{}}
[run]
seed = 3
workers = 2
device = "auto"
"""


def test_a_saved_run_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(SAVED.format(batch=32.0))
    config = RunDirectory(tmp_path).read_config()
    assert config.faults.dropout_probability == 0.25
    assert (config.readings.compute_model, config.readings.bound) == ("literal", "theorem1")
    assert (config.contribution.distance, config.readings.w_min) == ("tv", 0.0)
    assert config.scheme.parameters == {"threshold_quantile": 0.3}  # the others are the scheme's
    assert (config.run.seed, config.machine.workers, config.machine.device) == (3, 2, "cpu")
    assert (config.training.batch_samples, config.training.batch_fraction) == (32, None)
    assert Config.from_saved(config.to_toml(), "again") == config


@pytest.mark.parametrize(
    ("old", "samples", "fraction"), [(0.2, None, 0.2), (1.0, None, 1.0), (1.5, 2, None)]
)
def test_a_saved_batch_is_translated_by_its_value(
    old: float, samples: int | None, fraction: float | None
) -> None:
    training = Config.from_saved(SAVED.format(batch=old), "saved").training
    assert (training.batch_samples, training.batch_fraction) == (samples, fraction)
    assert training.batch == (samples or fraction)


@pytest.mark.parametrize("batch", ["nan", "inf", "-1", '"much"'])
def test_a_damaged_batch_is_refused(batch: str) -> None:
    with pytest.raises(InputError, match=r"saved: training\.batch_fraction = "):
        Config.from_saved(SAVED.format(batch=batch), "saved")


def test_one_of_the_two_batches_is_set() -> None:
    samples = load_config(settings=["training.batch_samples=1"])
    assert (samples.training.batch, samples.training.batch_fraction) == (1, None)
    fraction = samples.replace({"training.batch_fraction": 1.0})
    assert (fraction.training.batch_samples, fraction.training.batch) == (None, 1.0)
    assert samples.replace({"training.batch_samples": None}) == load_config()
    assert Config.from_toml(samples.to_toml()) == samples
    both = {"training.batch_fraction": 0.2, "training.batch_samples": 3}
    with pytest.raises(InputError, match=r"set one of training\.batch_fraction and"):
        load_config(overrides=both)


def test_dropped_keys_of_a_saved_run_become_present_ones() -> None:
    saved = """
[radio]
noise = "harsh"
waterfall_db = 0.023
[clustering]
max_iter = 400
data_preference = "quantile"
data_preference_value = 0.25
"""
    config = Config.from_saved(saved, "saved")
    assert config.radio.noise_dbm == -80.0
    assert config.clustering.preference_quantile == 0.25
    number = saved.replace('"harsh"', '"thermal"\nnoise_dbm = -95.0').replace("0.25", "-7.0")
    assert Config.from_saved(number, "saved").radio.noise_dbm == -95.0


@pytest.mark.parametrize(("scheme", "now"), [("camu-balanced", "dvfs"), ("mine:Mine", "slow_down")])
def test_a_renamed_parameter_is_read_from_a_saved_run(
    scheme: str, now: str, tmp_path: Path
) -> None:
    text = f'[scheme]\nname = "{scheme}"\n[scheme.parameters]\nslow_down = false\n'
    (tmp_path / "config.toml").write_text(text)
    assert RunDirectory(tmp_path).read_config().scheme.parameters == {now: False}


@pytest.mark.parametrize(
    ("sizes", "exponent"), [("sizes = 'equal'\nsize_exponent = 2.0", 0), ("sizes = 'power-law'", 1)]
)
def test_saved_sizes_become_an_exponent(sizes: str, exponent: float) -> None:
    assert Config.from_saved(f"[data]\n{sizes}\n", "saved").data.size_exponent == exponent


def test_a_saved_value_that_is_a_constant_now_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.toml").write_text("[allocation]\nconvexity = 0.5\nsmoothness = 1.0\n")
    RunDirectory(tmp_path).read_config()
    assert caplog.messages == ["allocation.convexity = 0.5 of a saved run is read as 0.01"]


IDEAL_KEYS = ("idle_watts", "static_watts", "min_hz")


def test_a_run_that_was_saved_with_ideal_devices_keeps_them(tmp_path: Path) -> None:
    for downlink, heard in (("false", 0.0), ("true", 0.3)):
        text = f"[radio]\nreceive_watts = 0.3\ndownlink = {downlink}\nsnr_gap_db = 2.5\n"
        (tmp_path / "config.toml").write_text(text)
        config = RunDirectory(tmp_path).read_config()
        assert [getattr(config.fleet, key) for key in IDEAL_KEYS] == [0.0, 0.0, 1.0]
        radio = config.radio
        assert (radio.circuit_watts, radio.amplifier_efficiency) == (0.0, 1.0)
        assert (radio.max_bits_per_hz, radio.snr_gap_db) == (math.inf, 2.5)
        assert radio.receive_watts == heard  # gathers were heard for nothing without downlink
        again = Config.from_saved(config.to_toml(), "again")
        assert again == config


def test_what_this_version_saves_it_reads_as_it_is() -> None:
    for preset in ("demo", "paper", "study"):
        config = load_config(preset=preset)
        assert Config.from_saved(config.to_toml(), preset) == config


def test_the_paper_has_ideal_devices_and_a_study_has_the_default_ones() -> None:
    paper, study, usual = (load_config(preset=p).flat() for p in ("paper", "study", "demo"))
    for key, value in IDEAL.items():
        assert paper[key] == value
        assert study[key] == usual[key] == Config().flat()[key] != value
