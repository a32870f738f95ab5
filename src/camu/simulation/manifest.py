"""Everything that decides the result of a run, so that a result is only reused for the same run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu import __version__
from camu.config import Config, keys_that_decide
from camu.errors import InputError
from camu.files import write_json
from camu.plugins import is_plugin, source_digest

FILE = "manifest.json"
KERNEL = "torch"
_FILES = ("fleet.file", "fleet.snr_file", "fleet.dropout_trace")


@dataclass(frozen=True)
class Manifest:
    """What a result depends on. Two runs with equal manifests have the same result."""

    config: dict[str, Any]  # by section.key, defaults included
    sources: dict[str, str]  # SHA-256 of the user's own code and files, by section.key
    version: str  # of camu
    kernel: str  # which code computes gradients

    @classmethod
    def of(cls, config: Config) -> Manifest:
        """The manifest of a run that starts now."""
        wanted = keys_that_decide("bits", "end")
        decide = {
            f"{section}.{key}": "inf" if value == math.inf else value  # JSON has no infinity
            for section, values in config.model_dump(mode="json").items()
            for key, value in values.items()
            if f"{section}.{key}" in wanted
        }
        return cls(decide, dict(_sources(decide)), __version__, KERNEL)

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The manifest of the run in a directory; None if there is none that can be read."""
        try:
            document = json.loads((directory / FILE).read_text(encoding="utf-8"))
            return cls(**document)
        except (OSError, ValueError, TypeError):
            return None

    def write(self, directory: Path) -> None:
        """Save the manifest in a run's directory."""
        write_json(directory / FILE, asdict(self))

    @property
    def key(self) -> str:
        """A hash of the manifest, 16 hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check_resume(self, directory: Path) -> None:
        """Refuse to continue a run in a directory with other code or input files than it had."""
        before = Manifest.read(directory)
        if before is None:
            return
        changed = [
            f"{key} = {self.config[key]}"
            for key in sorted(self.sources)
            if before.sources.get(key, self.sources[key]) != self.sources[key]
        ]
        if before.kernel != self.kernel:
            changed.append(f"the kernel (was {before.kernel}, now {self.kernel})")
        if changed:
            raise InputError(
                f"{directory}: the source of {', '.join(changed)} has changed since this run "
                "began; restore it, or start a new run in another directory"
            )

    def changes_since(self, before: Manifest) -> list[str]:
        """What differs from an earlier manifest, one phrase each: "run.rounds (was 20, now 6)"."""
        found = [
            f"{key} (was {before.config.get(key)}, now {self.config.get(key)})"
            for key in sorted(self.config.keys() | before.config.keys())
            if self.config.get(key) != before.config.get(key)
        ]
        for key in sorted(self.sources.keys() & before.sources.keys()):
            if self.sources[key] != before.sources[key]:
                found.append(f"the source of {key} = {self.config[key]}")
        for name in ("version", "kernel"):
            old, new = getattr(before, name), getattr(self, name)
            if old != new:
                found.append(f"camu's {name} (was {old}, now {new})")
        return found


def _sources(keys: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in keys.items():
        if not isinstance(value, str):
            continue
        if key in _FILES:
            try:
                yield key, hashlib.sha256(Path(value).read_bytes()).hexdigest()
            except OSError as error:
                raise InputError(f"{key} = {value}: cannot be read ({error.strerror})") from None
        elif is_plugin(value) and not Path(value).exists():  # C:\data is a path
            yield key, source_digest(value, key)
