"""What a page may set: everything that a file may, but no path and no code."""

from __future__ import annotations

from typing import Any

import pytest

from camu.config import Config
from camu.config.words import section_keys
from camu.errors import InputError
from camu.live.settings import FIXED, configured, faults, read_state
from camu.simulation.manifest import INPUT_FILES
from helpers.configs import small


def state(**changes: Any) -> Any:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return read_state({"changes": dotted, "schemes": ["camu"]})


def test_changes_go_over_the_configuration_of_the_server() -> None:
    config = configured(small(), state(run__seed=7, data__samples_per_device=None))
    assert config == small(run__seed=7, data__samples_per_device=None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fleet.file", "/etc/passwd"),
        ("fleet.snr_file", "x.csv"),
        ("faults.dropout_trace", "../x.csv"),
        ("data.directory", "/etc"),
        ("machine.callbacks", ["mlflow"]),
        ("machine.engine", "ray"),
        ("scheme.name", "os:system"),
    ],
)
def test_files_and_machines_cannot_be_set(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{key}: a page cannot set this"):
        configured(small(), read_state({"changes": {key: value}, "schemes": ["camu"]}))


def test_every_key_that_names_a_file_is_fixed() -> None:
    texts = {
        f"{section}.{name}"
        for section in Config.model_fields
        for name, schema in section_keys(Config, section).items()
        if [kind.get("type") for kind in schema.get("anyOf", ())] == ["string", "null"]
        and "enum" not in schema["anyOf"][0]
    }
    assert {"fleet.file", "fleet.base_station_file", "data.directory"} <= texts <= FIXED
    assert set(INPUT_FILES) <= FIXED


@pytest.mark.parametrize(
    "key",
    ["data.dataset", "data.partition", "radio.path_loss", "training.model", "allocation.solver"],
)
@pytest.mark.parametrize("value", ["os:system", "./mine.py:run", "../data.npz", "a" * 100])
def test_own_code_and_paths_cannot_be_named(key: str, value: str) -> None:
    with pytest.raises(InputError, match="a page can set plain names only"):
        configured(small(), read_state({"changes": {key: value}, "schemes": ["camu"]}))


def test_what_the_server_was_started_with_is_accepted() -> None:
    base = small(training__model="helpers.toys:Anything")
    assert configured(base, state(training__model="helpers.toys:Anything")) == base


def test_a_scheme_of_ones_own_is_named_at_the_start_only() -> None:
    with pytest.raises(InputError, match="your own code is named where camu live is started"):
        configured(small(), read_state({"schemes": ["os:system"]}))


def test_a_wrong_value_comes_back_with_its_key_and_the_words_of_a_file() -> None:
    with pytest.raises(InputError) as caught:
        configured(small(), state(radio__exponent=-1, run__rounds=0))
    found = faults(caught.value)
    assert [fault["key"] for fault in found] == ["radio.exponent", "run.rounds"]
    assert found[0]["text"] == (
        "radio.exponent = -1: Input should be greater than 0; accepted: a number > 0 and <= 10"
    )


def test_a_fleet_too_large_for_a_page_is_refused() -> None:
    regions = [{"name": "all", "devices": 2001, "x": [0.0, 9.0], "y": [0.0, 9.0]}]
    with pytest.raises(InputError, match="a live page shows at most 2000"):
        configured(small(), state(fleet__regions=regions))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schemes": []},
        {"schemes": ["camu"] * 7},
        {"schemes": ["camu"], "other": 1},
        {"schemes": ["camu"], "changes": []},
        {"schemes": ["camu"], "fleet": {"moved": {"a": [1e9, 0]}}},
    ],
)
def test_another_form_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="this page"):
        read_state(document)
