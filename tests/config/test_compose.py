"""Configuration: layers compose, TOML round-trips, wrong input is refused with the way out."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from camu.config import PRESETS, Config, keys_affecting, load_config
from camu.config.layers import compose
from camu.config.schema import preset_layers
from camu.config.words import as_markdown, describe_keys
from camu.errors import InputError
from helpers.configs import IDEAL


@pytest.mark.parametrize("preset", PRESETS)
def test_resolved_toml_loads_to_an_equal_config(preset: str, tmp_path: Path) -> None:
    config = load_config(preset=preset)
    path = tmp_path / "resolved.toml"
    path.write_text(config.to_toml())
    assert load_config(file=path) == config


def test_a_text_loads_like_a_file() -> None:
    assert Config.from_toml("[run]\nseed = 4\n") == Config().replace({"run.seed": 4})
    for text in ("[run]\nseed = -1\n", "[run]\nsed = 1\n", "[run"):
        with pytest.raises(InputError, match=r"^letter: "):
            Config.from_toml(text, "letter")
    with pytest.raises(InputError, match=r'a\.toml: this is a path; .*load_config\("a\.toml"\)'):
        Config.from_toml("a.toml")


def test_flat_holds_every_key_and_makes_the_same_config() -> None:
    config = load_config(preset="demo", settings=["scheme.parameters.a=1"])
    flat = config.flat()
    assert set(flat) == {f"{key.section}.{key.name}" for key in describe_keys(Config)}
    assert flat["run.seed"] == config.run.seed
    assert Config().replace(flat) == config


@pytest.mark.slow
@given(
    noise=st.none() | st.floats(-200, 100),
    power=st.floats(1e-6, 1.0),
    threshold=st.none() | st.floats(0, allow_nan=False, allow_infinity=True),
    seed=st.integers(0, 2**53),
    parameters=st.dictionaries(
        st.from_regex("[a-z]{1,5}", fullmatch=True), st.booleans() | st.integers(-9, 9) | st.text()
    ),
)
def test_any_config_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    noise: float | None,
    power: float,
    threshold: float | None,
    seed: int,
    parameters: dict[str, bool | int | str],
) -> None:
    given = parameters if threshold is None else {**parameters, "threshold": threshold}
    changes = {"radio.noise_dbm": noise, "fleet.power_watts": power, "run.seed": seed}
    config = Config().replace({**changes, "scheme.parameters": given})
    path = tmp_path_factory.mktemp("round") / "trip.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert load_config(file=path) == config


def test_later_layers_win(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[run]\nrounds = 7\nseed = 5\n[training]\nlearning_rate = 0.25\n")
    assert load_config(file=path).run.rounds == 7
    assert load_config(file=path).run.eval_every == Config().run.eval_every
    both = load_config(file=path, preset="paper")
    assert both.training.learning_rate == 0.25  # a preset never overrides the user's file
    assert both.run.eval_every == 20  # the file leaves the preset's other keys alone
    assert load_config(path, "paper", ["training.learning_rate=1", "run.seed=6"]).run.seed == 6


def test_a_file_names_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "study"\n[run]\nrounds = 7\n')
    config = load_config(file=path)
    assert config == load_config(preset="study").replace({"run.rounds": 7})
    assert config == load_config(file=path, preset="study") == Config.from_toml(path.read_text())
    assert "extends" not in config.to_toml()
    with pytest.raises(InputError, match="extends the preset `study`, but --preset is `demo`"):
        load_config(file=path, preset="demo")
    for wrong in ('extends = "papper"', "extends = 3", 'extends = ["paper"]', 'preset = "paper"'):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"mine.toml: .*extends"):
            load_config(file=path)


def test_a_wrong_value_names_the_preset_that_set_it() -> None:
    with pytest.raises(InputError, match=r"^--set fleet.regions.*\n?.*30: at most the 1 dev"):
        load_config(
            preset="study",
            settings=['fleet.regions=[{name="a", devices=1, x=[0,1], y=[0,1]}]'],
        )
    layers = preset_layers("study", "--preset")
    assert [source for source, _ in layers] == ["preset paper", "preset study"]
    regions = [{"name": "a", "devices": 1, "x": [0, 1], "y": [0, 1]}]
    few = ("mine", {"fleet": {"regions": regions}})
    with pytest.raises(InputError, match=r"^preset paper: data.noniid_devices = 30: at most the 1"):
        compose(Config, [few, *layers])


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_repeats_a_value(preset: str) -> None:
    layers = preset_layers(preset, "--preset")
    below = compose(Config, layers[:-1]).flat()
    for section, keys in layers[-1][1].items():
        for key, value in keys.items():
            assert below[f"{section}.{key}"] != value, f"{section}.{key}"


def test_settings_are_typed() -> None:
    config = load_config(
        settings=[
            "radio.noise_dbm=-90",
            "data.dataset=fashion-mnist",
            "data.with_replacement=true",
            "fleet.cpu_hz=[1e9, 2e9]",
            "scheme.parameters.a=1",
            "scheme.parameters.b=text",
        ]
    )
    assert config.radio.noise_dbm == -90.0
    assert config.data.dataset == "fashion-mnist"
    assert config.data.with_replacement is True
    assert config.fleet.cpu_hz == (1e9, 2e9)
    endless = load_config(settings=["scheme.parameters.threshold=inf"])
    assert endless.scheme.parameters == {"threshold": float("inf")}
    assert config.scheme.parameters == {"a": 1, "b": "text"}
    assert config.replace({"radio.noise_dbm": None}).radio.noise_dbm is None
    assert config.replace({"scheme.parameters.a": None}).scheme.parameters == {"b": "text"}
    more = {"c": 3}
    changed = config.replace({"scheme.parameters": more, "scheme.parameters.a": 2})
    assert changed.scheme.parameters == {"a": 2, "b": "text", "c": 3}
    assert more == {"c": 3}  # the caller's table is left alone
    assert (
        load_config(settings=["radio.noise_dbm=-90", "radio.noise_dbm=none"]).radio.noise_dbm
        is None
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("radio.nois_dbm=-90", ["radio.noise_dbm"]),
        ("training.rounds=3", ["run.rounds"]),
        ("scheme.w_min=0.1", ["did you mean `readings.w_min`?"]),
        ("scheme.distance=tv", ["did you mean `contribution.distance`?"]),
        ("radoi.noise_dbm=-90", ["radio"]),
        ("radio.antennas=0", ["radio.antennas", ">= 1"]),
        ("radio.antennas=1.5", ["whole number"]),
        ("radio.noise_dbm=loud", ["a number", "dBm"]),
        ("radio.exponent=nan", ["radio.exponent"]),
        ("data.dataset=cifar", ["mnist | fashion-mnist | cifar-10 | digits"]),
        ("training.model=cnnn", ["did you mean `cnn`?", "logistic"]),
        ("allocation.solver=exakt", ["did you mean `exact`?"]),
        ("data.noniid_devices=31", ["30 devices"]),
        ("fleet.power_watts=9", ["max_power_watts"]),
        ("fleet.cpu_hz=[2e9, 1e9]", ["the smaller first"]),
        ("fleet.cpu_hz=[1]", ["2 numbers"]),
        ('fleet.regions=[{name="a", devices=1, x=[1,0], y=[0,1]}]', ["x = [1.0, 0.0]"]),
        ("scheme.threshold=nan", ["is now `scheme.parameters.threshold`"]),
        ("scheme.local_updates=3", ["is now `scheme.parameters.local_updates`"]),
        ("scheme.plan_seconds=3", ["was dropped"]),
        ("scheme.parameters=3", ["this is a table; write scheme.parameters.NAME=VALUE"]),
        ("rounds=3", ["section.key=value"]),
        ("run.rounds", ["section.key=value"]),
    ],
)
def test_wrong_settings_name_the_way_out(setting: str, said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_config(preset="paper", settings=[setting])
    assert setting in str(caught.value)
    for part in said:
        assert part in str(caught.value)


def test_a_broken_rule_names_the_layer_that_broke_it() -> None:
    with pytest.raises(InputError) as caught:
        load_config(
            preset="paper", settings=["data.noniid_devices=31", "clustering.data=pmf", "run.seed=1"]
        )
    assert str(caught.value).startswith("--set data.noniid_devices=31: data.noniid_devices = 31")
    with pytest.raises(InputError, match=r"^--set fleet.max_power_watts=0.1: fleet.power_watts"):
        load_config(settings=["fleet.max_power_watts=0.1", "fleet.file=power_watts.csv"])


def _float_keys() -> list[str]:
    return [
        f"{section}.{name}"
        for section, field in Config.model_fields.items()
        if field.annotation is not None
        for name, each in field.annotation.model_fields.items()
        if "float" in str(each.annotation)
    ]


@pytest.mark.parametrize("key", _float_keys())
def test_no_number_may_be_nan(key: str) -> None:
    length = {"fleet.cpu_hz": 2, "fleet.base_station": 3}.get(key)
    text = f"[{', '.join(['nan'] * length)}]" if length else "nan"
    text = "[[nan, nan, nan]]" if key == "fleet.positions" else text
    name = "scheme.parameters.a" if key == "scheme.parameters" else key
    with pytest.raises(InputError) as caught:
        load_config(settings=[f"{name}={text}"])
    assert name in str(caught.value)
    assert "number" in str(caught.value)


def test_overrides_are_values_and_go_last() -> None:
    name = '\N{GRINNING FACE} "a\\b".csv'
    config = load_config(settings=["fleet.file=x"], overrides={"fleet.file": name, "run.seed": 9})
    assert config.fleet.file == name
    assert config.run.seed == 9
    with pytest.raises(InputError, match=r"overrides: run.rounds = 0"):
        load_config(overrides={"run.rounds": 0})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nrounds = ", "not valid TOML"),
        ("[run]\nround = 3\n", "run.rounds"),
        ("run = 3\n", "write [run]"),
        ("[run]\nrounds = 0\n", ">= 1"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_config(file=path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_wrong_item_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[fleet.regions]]\nname = "\\u001b[31m"\ndevices = 3\nx = [0, 9]\ny = [0, 9]\n'
    )
    with pytest.raises(InputError) as error:
        load_config(path)
    assert "fleet.regions.0.name" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(InputError, match=r"fleet\.regions = .*at least 1 item"):
        load_config(settings=["fleet.regions=[]"])


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("absent", "binary", "."):
        with pytest.raises(InputError, match=str(tmp_path)):
            load_config(file=tmp_path / name)


def test_unknown_preset_suggests() -> None:
    with pytest.raises(InputError, match="did you mean `paper`"):
        load_config(preset="papper")
    with pytest.raises(InputError, match=r"^--preset '': not one of the presets demo"):
        load_config(preset="")


def test_every_key_says_what_it_affects() -> None:
    end, nothing = keys_affecting("stopping"), keys_affecting("none")
    limits = {"rounds", "target", "max_virtual_seconds", "max_joules", "patience"}
    limits |= {"min_virtual_seconds", "min_joules", "min_megabytes"}
    assert end == {f"run.{name}" for name in limits}
    machinery = {f"machine.{name}" for name in Config().machine.model_dump()}
    assert nothing == machinery | {"data.sample_bytes"}  # of data that no run sends
    assert keys_affecting("result") == Config().flat().keys() - end - nothing


def test_importing_the_configuration_is_light() -> None:
    heavy = ("torch", "sklearn", "scipy", "numpy", "rich", "typer")
    code = f"import sys, camu.config; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Config().run.rounds = 3


def test_every_key_has_a_sentence_and_numbers_have_a_unit() -> None:
    for key in describe_keys(Config):
        assert key.meaning.endswith("."), key
        assert key.accepts, key
    for section in Config.model_fields.values():
        assert section.annotation is not None
        for name, field in section.annotation.model_fields.items():
            numeric = re.search(r"\b(int|float)\b", str(field.annotation)) is not None
            unit = field.json_schema_extra["unit"]
            assert unit or not numeric or name in ("seed", "patience", "parameters"), name


def test_docs_list_the_keys_as_they_are() -> None:
    assert max(map(len, as_markdown(Config, describe_keys(Config)).splitlines())) <= 120
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text().strip() == as_markdown(Config, describe_keys(Config)).strip(), (
        "run: camu config keys --markdown > docs/configuration.md"
    )


def test_paper_preset_is_section_v() -> None:
    config = load_config(preset="paper")
    assert config.fleet.devices == 30
    assert config.fleet.base_station == (-50, 0, 10)
    assert [(r.devices, r.x, r.y) for r in config.fleet.regions] == [
        (15, (-10, 0), (-5, 5)),
        (15, (10, 20), (-5, 5)),
    ]
    radio = config.radio
    assert (radio.antennas, radio.bs_gain_dbi, radio.device_gain_dbi) == (15, 5, 0)
    assert (radio.carrier_hz, radio.exponent) == (915e6, 3.76)
    assert (config.training.learning_rate, config.training.batch_fraction) == (0.5e-3, 0.2)
    # A study differs in devices that exist, with the powers and the rates of the defaults.
    changes: dict[str, Any] = {"fleet": {}, "radio": {"uplink": "digital"}}
    for key in IDEAL:
        section, _, name = key.partition(".")
        changes[section][name] = Config().flat()[key]
    study = load_config(preset="study")
    assert study.fleet == config.fleet.model_copy(update=changes["fleet"])
    assert study.radio == config.radio.model_copy(update=changes["radio"])
    assert config.radio.uplink == "hybrid"


def test_a_number_of_devices_keeps_the_proportions_of_the_regions() -> None:
    counts = lambda config: [region.devices for region in config.fleet.regions]  # noqa: E731
    config = load_config(preset="demo", settings=["fleet.devices=101"])
    assert config.fleet.devices == sum(counts(config)) == 101
    assert sorted(counts(config)) == [50, 51]
    assert Config.from_toml(config.to_toml()) == config
    three = [
        {"name": name, "devices": count, "x": [0, 9], "y": [0, 9]}
        for name, count in (("A", 98), ("B", 1), ("C", 1))
    ]
    free = {"data.noniid_devices": None}
    own = config.replace({"fleet.regions": three, **free})
    assert own.fleet.devices == 100  # regions of a later layer say how many
    assert counts(own.replace({"fleet.devices": 10})) == [8, 1, 1]
    assert counts(own.replace({"fleet.devices": 1000})) == [980, 10, 10]
    with pytest.raises(InputError, match=r"fleet\.devices = 2: there are 3 regions"):
        own.replace({"fleet.devices": 2})
    with pytest.raises(InputError, match=r"fleet\.devices = 'x'"):
        load_config(settings=["fleet.devices=x"])
