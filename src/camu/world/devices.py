"""The devices of a fleet: where they are, what data they hold, what they can compute and send."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64, read_only_floats, read_only_ints


@dataclass(frozen=True, eq=False)
class Devices:
    """K devices, one array per property; row k of every array is device k. Arrays are read-only."""

    ids: tuple[str, ...]
    positions: Float64  # (K, 3) metres, nan where unknown
    regions: tuple[str, ...]
    label_counts: Int64  # (K, L) samples per label
    cpu_hz: Float64  # f_k
    cycles_per_sample: Float64  # l_k
    capacitance: Float64  # kappa
    power_watts: Float64  # p_k where no optimiser sets it
    max_power_watts: Float64
    battery_joules: Float64  # nan where unknown

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "label_counts":
                value = read_only_ints(value)
            elif field.name in ("ids", "regions"):
                value = tuple(value)
            else:
                value = read_only_floats(value)
            if len(value) != len(self.ids):
                raise ValueError(f"{field.name} has {len(value)} rows for {len(self.ids)} devices")
            object.__setattr__(self, field.name, value)
        if self.positions.shape != (self.count, 3) or self.label_counts.ndim != 2:
            raise ValueError("positions are (K, 3) and label_counts (K, L)")

    @property
    def count(self) -> int:
        """K, the number of devices."""
        return len(self.ids)

    @property
    def samples(self) -> Int64:
        """|D_k|, the number of samples of each device."""
        return np.asarray(self.label_counts.sum(axis=1), dtype=np.int64)

    def select(self, indices: npt.ArrayLike) -> Devices:
        """The devices with these indices, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        parts: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            texts = field.name in ("ids", "regions")
            parts[field.name] = tuple(value[row] for row in rows) if texts else value[rows]
        return Devices(**parts)
