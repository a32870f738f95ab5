"""The manifest of a run: everything that decides its result."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config, keys_affecting
from camu.data import is_own, load_configured
from camu.data.own import shape_spec
from camu.errors import InputError
from camu.files import read_bytes
from camu.learning.native_kernel import provenance
from camu.plugins import is_plugin, source_digest
from camu.sealed import read_sealed_json, write_sealed_json

MANIFEST = "manifest.json"
REMEDY = "restore it from a copy, or run it again in another directory"
START = "start"  # in the sources: the model that the run starts from
INPUT_FILES = (
    "fleet.file",
    "fleet.snr_file",
    "fleet.base_station_file",
    "fleet.position_trace",
    "faults.dropout_trace",
    "faults.availability_trace",
    "fleet.harvest_trace",
    "fleet.carbon_trace",
)


@dataclass(frozen=True)
class Manifest:
    """What a result depends on. Two runs with equal manifests have the same result."""

    config: dict[str, Any]  # by section.key, defaults included
    sources: dict[str, str]  # SHA-256 of the user's own code and files, by section.key
    version: str  # of camu
    provenance: dict[str, str]  # kernel, device, instruction set, compiler and torch that train

    @classmethod
    def of(cls, config: Config, start: str = "") -> Manifest:
        """The manifest of a run that starts now; `start` is the digest of its first model."""
        wanted = keys_affecting("result", "stopping")
        decide = {
            f"{section}.{key}": "inf" if value == math.inf else value  # JSON has no infinity
            for section, values in config.model_dump(mode="json").items()
            for key, value in values.items()
            if f"{section}.{key}" in wanted
        }
        sources = {**dict(_sources(config, decide)), **({START: start} if start else {})}
        return cls(decide, sources, __version__, asdict(provenance(config)))

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest of the run in a directory, also of an earlier version; None: there is none.

        Earlier versions wrote no more about the machine than the name of the kernel.
        """
        path = directory / MANIFEST
        if not path.exists():
            return None
        found = read_sealed_json(path, "the manifest of a run", REMEDY)
        kernel = {"kernel": found.get("kernel", "")}
        return cls(
            found.get("config", {}),
            found.get("sources", {}),
            found.get("version", "of an unknown version"),
            found.get("provenance", kernel),
        )

    def write(self, directory: Path) -> None:
        """Save the manifest in a run's directory."""
        write_sealed_json(directory / MANIFEST, asdict(self))

    @property
    def key(self) -> str:
        """A hash of the manifest, 16 hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check_version(self, directory: Path) -> None:
        """Refuse to continue this run, which is in a directory, with another version of camu."""
        if self.version != __version__:
            raise InputError(
                f"{directory}: this run began with camu {self.version}, and camu {__version__} "
                "may compute its rounds in another way; continue it with that version, or start a "
                "new run in another directory (camu report, export, allocate and --start can "
                "still read this one)"
            )

    def check_sources(self, before: Manifest, directory: Path) -> None:
        """Refuse to continue a run with other code or input files than it had before."""
        changed = [
            f"{key} = {self.config[key]}" if key in self.config else "the model of --start"
            for key in sorted(self.sources)
            if before.sources.get(key, None if key == START else self.sources[key])
            != self.sources[key]
        ]
        if changed:
            raise InputError(
                f"{directory}: the source of {', '.join(changed)} has changed since this run "
                "began; restore it, or start a new run in another directory"
            )

    def check_provenance(self, before: Manifest, directory: Path) -> None:
        """Refuse to continue a run with a kernel, processor or library that rounds differently."""
        if changes := differences(before.provenance, self.provenance):
            kernel = before.provenance.get("kernel")
            advice = "continue it where it began"
            if kernel == "torch" != self.provenance["kernel"]:
                advice = "continue it with --set machine.kernel=torch"
            raise InputError(
                f"{directory}: here this run would continue with other last bits: "
                f"{', '.join(changes)}; {advice}, or start a new run in another directory"
            )

    def changes_since(self, before: Manifest) -> list[str]:
        """What differs from an earlier manifest, one phrase each: "run.rounds (was 20, now 6)".

        The settings of another version have other names, so that only the version is said.
        """
        if self.version != before.version:
            return [f"camu's version (was {before.version}, now {self.version})"]
        found = differences(before.config, self.config)
        for key in sorted(self.sources.keys() & before.sources.keys()):
            if self.sources[key] != before.sources[key]:
                found.append(f"the source of {key} = {self.config.get(key, 'a model')}")
        if (START in self.sources) != (START in before.sources):
            found.append("the model that it starts from")
        return found + differences(before.provenance, self.provenance)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The entries that differ, as "run.rounds (was 20, now 6)"."""

    def say(value: Any) -> str:
        return "unset" if value in (None, "") else str(value)

    return [
        f"{key} (was {say(before.get(key))}, now {say(now.get(key))})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]


def _sources(config: Config, keys: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in keys.items():
        if not isinstance(value, str):
            continue
        if key == "data.dataset":
            # The data themselves: a function may read files that change.
            if is_own(value) and shape_spec(value) is None:
                yield key, load_configured(config.data).sha256
        elif key in INPUT_FILES:
            data = read_bytes(value, f"a file that can be read in {key}")
            yield key, hashlib.sha256(data).hexdigest()
        elif is_plugin(value) and not Path(value).exists():  # C:\data is a path
            yield key, source_digest(value, key)
