"""The whole configuration as one frozen, validated value, and the layers that it is loaded from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import tomli_w
from pydantic import model_validator

from camu.config.fields import Affects, Section, field, rule_error
from camu.config.former import translated
from camu.config.layers import (
    compose,
    document_layers,
    nested,
    parse_setting,
    parse_toml,
    preset_layers,
    short,
)
from camu.config.presets import DEFAULT_PRESET
from camu.config.radio_section import RadioConfig
from camu.config.run_sections import (
    AllocationConfig,
    ClusteringConfig,
    ContributionConfig,
    MachineConfig,
    ReadingsConfig,
    RunConfig,
    SchemeConfig,
)
from camu.config.training_section import TrainingConfig
from camu.config.words import section_model
from camu.config.world_sections import DataConfig, FaultsConfig, FleetConfig
from camu.errors import InputError
from camu.files import read_text, shown

_MOST_TOML_BYTES = 64 << 20  # regions of a million devices would fit


class Config(Section):
    """Everything a user may set, in twelve sections; a value that never changes.

    `camu config keys` and the page on configuration explain every key. `load_config` makes one,
    and `replace` makes a changed copy.
    """

    data: DataConfig = field(DataConfig(), "Data set and partition.")
    fleet: FleetConfig = field(FleetConfig(), "Devices and base station.")
    radio: RadioConfig = field(RadioConfig(), "Channel.")
    clustering: ClusteringConfig = field(ClusteringConfig(), "Dual-segment clustering.")
    training: TrainingConfig = field(TrainingConfig(), "Model and local training.")
    contribution: ContributionConfig = field(ContributionConfig(), "Contribution of a unit.")
    scheme: SchemeConfig = field(SchemeConfig(), "Scheme.")
    allocation: AllocationConfig = field(AllocationConfig(), "Joint optimisation.")
    readings: ReadingsConfig = field(ReadingsConfig(), "The paper's formulas, read or as printed.")
    run: RunConfig = field(RunConfig(), "Run.")
    faults: FaultsConfig = field(FaultsConfig(), "Devices and updates that fail.")
    machine: MachineConfig = field(MachineConfig(), "How this machine works; no part of a result.")

    @model_validator(mode="after")
    def _fits(self) -> Config:
        wanted, devices = self.data.noniid_devices or 0, self.fleet.devices
        if self.fleet.file is None and self.data.partition == "mixed" and wanted > devices:
            raise rule_error(
                f"data.noniid_devices = {wanted}: at most the {devices} devices of fleet.regions",
                "data.noniid_devices",
                "data.partition",
                "fleet.regions",
                "fleet.file",
            )
        return self

    def to_toml(self) -> str:
        """The configuration as TOML that loads to an equal value; unset keys are left out."""
        text = tomli_w.dumps(self.model_dump(exclude_none=True))
        # Short lists of numbers read better on one line.
        return re.sub(
            r"\[\n((?: +[^\n\[\]{}]+,\n)+) *\]",
            lambda match: "[" + " ".join(match[1].split()).rstrip(",") + "]",
            text,
        )

    @classmethod
    def from_toml(cls, text: str, source: str = "configuration") -> Config:
        """The configuration of a TOML text; `source` names the text in errors."""
        if text.endswith(".toml") and not set(text) & set("=\n"):
            raise InputError(f'{text}: this is a path; load a file with camu.load_config("{text}")')
        return compose(cls, document_layers(source, parse_toml(text, source)))

    @classmethod
    def from_saved(cls, text: str, source: str) -> Config:
        """The configuration that this or an earlier version of camu wrote into a run directory."""
        return compose(cls, document_layers(source, translated(parse_toml(text, source))))

    def replace(self, changes: Mapping[str, Any]) -> Config:
        """A validated copy with keys replaced: ``config.replace({"run.seed": 3})``.

        None unsets a key, and ``scheme.parameters`` are merged one by one.
        """
        base = self.model_dump(exclude_none=True)
        return compose(type(self), [("replace", nested(changes))], base)

    def flat(self) -> dict[str, Any]:
        """Every key as ``section.key`` with its value; None where it is unset."""
        return {
            f"{section}.{key}": value
            for section, keys in self.model_dump().items()
            for key, value in keys.items()
        }


def keys_affecting(*what: Affects) -> frozenset[str]:
    """The keys, as ``section.key``, that affect one of these: "result", "stopping" or "none"."""
    return frozenset(
        f"{section}.{name}"
        for section in Config.model_fields
        for name, key in section_model(Config, section).model_fields.items()
        if cast(dict[str, Any], key.json_schema_extra)["affects"] in what
    )


def load_config(
    file: str | Path | None = None,
    preset: str | None = None,
    settings: Iterable[str] = (),
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """Compose a preset, a TOML file, settings and overrides, each over the one before.

    Parameters:
        file: a TOML file. It names its preset with ``extends = "paper"``; without one it starts
            from the defaults.
        preset: demo, paper, study, literal, battery or devices. With neither a file nor a preset it
            is demo.
        settings: texts ``section.key=value``, as `--set` takes them.
        overrides: Python values by ``section.key``.

    Returns:
        The validated configuration. An `InputError` names a wrong key and where it came from.
    """
    if file is None:
        layers = preset_layers(DEFAULT_PRESET if preset is None else preset, "--preset")
    else:
        layers = document_layers(
            shown(file),
            parse_toml(read_text(file, "a TOML file", _MOST_TOML_BYTES), shown(file)),
            preset,
        )
    layers.extend((f"--set {short(text)}", parse_setting(text)) for text in settings)
    layers.append(("overrides", nested(overrides)))
    return compose(Config, layers)
