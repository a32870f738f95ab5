"""Time and energy that one local update costs a device and a cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from camu.arrays import Float64, Int64
from camu.config import FleetConfig, TrainingConfig
from camu.data.batches import batch_samples
from camu.world.devices import Devices


def update_samples(devices: Devices, training: TrainingConfig) -> Int64:
    """Samples that each device processes in one local update: a batch, or all once (`epoch`)."""
    if training.local_update == "epoch":
        return devices.samples
    return batch_samples(training.batch, devices.samples)


def update_seconds(devices: Devices, training: TrainingConfig) -> Float64:
    """Time of one local update of each device: cycles * samples / f (K,)."""
    work = devices.cycles_per_sample * update_samples(devices, training)
    return np.asarray(work / devices.cpu_hz, dtype=np.float64)


def update_joules(
    devices: Devices, fleet: FleetConfig, training: TrainingConfig, parameters: int
) -> Float64:
    """Energy of one local update of each device (K,).

    `cycles`: kappa * cycles * samples * f^2. `literal`: l_k q / f_k * p_cmp as printed in P1, with
    q the number of model parameters; the printed formula does not know how many samples are used.
    """
    if fleet.compute_model == "literal":
        seconds = devices.cycles_per_sample * parameters / devices.cpu_hz
        return np.asarray(seconds * fleet.compute_watts, dtype=np.float64)
    work = devices.cycles_per_sample * update_samples(devices, training)
    return np.asarray(devices.capacitance * work * devices.cpu_hz**2, dtype=np.float64)


def cluster_seconds(seconds: Float64, members: npt.ArrayLike) -> float:
    """Time of one local update of a cluster: its slowest member's."""
    return float(seconds[np.asarray(members, dtype=np.int64)].max())


def cluster_joules(joules: Float64, members: npt.ArrayLike) -> float:
    """Energy of one local update of a cluster: the sum over its members."""
    return float(joules[np.asarray(members, dtype=np.int64)].sum())
