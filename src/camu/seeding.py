"""One rule for randomness: every generator is derived from (seed, purpose, indices...).

The derivation is SHA-256 over a canonical text, so it is the same in every process, on every
platform and in every Python version, and two different keys give independent streams. Nothing in
camu draws from numpy's, torch's or Python's global generators.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


# Every purpose with its indices, so that no two uses share a stream. A question mark: the index may
# be left out. Code outside camu names its purposes own-..., with any indices.
PURPOSES: dict[str, tuple[str, ...]] = {
    "positions": (),  # places of devices in their regions
    "waypoint": (),  # random waypoints and speeds of devices that move
    "cpu": (),  # CPU frequencies that no fleet file gives
    "sight": (),  # line of sight between two devices
    "sight-uplink": (),  # line of sight to the base station
    "shadowing": (),  # shadowing between two devices
    "shadowing-uplink": (),  # shadowing to the base station
    "direction-uplink": (),  # where a device is, seen from the antennas, if nobody knows
    "phase-uplink": (),  # phase of an uplink's line of sight
    "fading": ("round",),  # block fading of all uplinks
    "csi": ("round",),  # errors of what is known of that fading
    "d2d-fading": ("round", "part"),  # block fading between two devices, real and imaginary part
    "partition": (),  # samples dealt to devices
    "validation": (),  # samples that are held back from training
    "evaluation": (),  # test samples that models are judged by, where these are not all
    "test-parts": (),  # test samples dealt to devices
    "table-split": (),  # training and test rows of a table
    "digits-split": (),  # training and test samples of the data set digits
    "tiles": ("devices", "level"),  # borders of tiles in two-level clustering
    "model": (),  # initial weights
    "tuning": ("trial?",),  # settings that are tried: even points, then those of each trial
    "count": (),  # weights of a model that is built to be measured
    "batch": ("round",),  # orders of samples, with a branch for each device and pass
    "dropout": ("round", "device?", "step?"),  # absent devices; with device and step: layers
    "full-pass-dropout": ("device",),  # dropout layers in a pass over all data
    "leader-failure": ("round",),
    "privacy": ("round", "device", "step"),  # noise on a device's gradient or update
    "straggler": ("round",),  # devices of fedprox that do partial work, and how much
    "corrupt": ("round",),
    "codec": ("round", "leader"),  # rounding of a quantised update
    "random-clusters": (),  # devices dealt to clusters of given sizes
    "label-kmeans": (),  # starts of k-means on labels
    "near-iid": ("start",),  # order in which devices are dealt to groups
    "near-iid-groups": (),  # first devices of groups whose labels look like everyone's
    "delay-groups": (),  # starts of k-means on delays and directions
    "noise": ("round", "leader"),  # noise on an uplink
    "projection": (),  # the random projection of A-DSGD
    "receive-vector": ("round",),  # random starts of a receive vector
    "burst": ("round",),  # noise and errors of uplinks that are sent at once
    "gather-burst": ("round", "leader", "update"),  # noise on what members send at once
    "packet": ("round", "leader"),  # whether an update is lost on an uplink
    "label-counts": ("label",),  # noise on a label count that a node reports
    "ppo": (),
    "dry-run": (),  # weights of a model that is only measured; losses of a second dry run
    "kernel-check": (),  # images on which compiled kernels are compared with torch
    "probe": (),  # the engine's trial of a user's model
    "theory-noise": (),
    "theory-start": (),
    "bench-model": (),
    "measure": ("samples",),  # samples of a step that `camu measure` times
    "bench-data": ("devices", "samples"),
}
OWN_PURPOSE = "own-"


@dataclass(frozen=True)
class Stream:
    """A derived source of randomness; ask it for a numpy or a torch generator at its start."""

    entropy: int

    def numpy(self, *branch: int) -> np.random.Generator:
        """A fresh numpy generator at the start of this stream, or of one of its branches.

        Whole numbers name a branch. Many branches are quicker to make than many streams.
        """
        # The words that numpy takes a large number apart into, but slowly.
        count = max(1, -(-self.entropy.bit_length() // 32))
        words = np.frombuffer(self.entropy.to_bytes(4 * count, "little"), dtype="<u4")
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words, spawn_key=branch)))

    def torch(self, device: str = "cpu") -> torch.Generator:
        """A fresh torch generator at the start of this stream."""
        import torch  # deferred: planning and configuration never pay for torch

        return torch.Generator(device=device).manual_seed(self.torch_seed)

    def mersenne_twister(self) -> np.random.RandomState:
        """A numpy generator with the random bits of the torch generator on the CPU."""
        return np.random.RandomState(self.torch_seed % 2**32)

    @property
    def torch_seed(self) -> int:
        """The seed of its torch generator."""
        # torch takes 64 bits; the high bit stays clear because manual_seed reads a signed number.
        return self.entropy & (2**63 - 1)


def derive(seed: int, purpose: str, *indices: int) -> Stream:
    """The stream for one purpose, for example ``derive(seed, "noise", round, leader)``.

    The purpose and the number of its indices must be those of `PURPOSES`; your own code uses
    purposes that begin with ``own-``.
    """
    if not purpose.startswith(OWN_PURPOSE):
        _check(purpose, len(indices))
    # Indices may be numpy integers; int() gives them one spelling. The unit separator cannot
    # occur in a number, and the purpose is length-prefixed, so no two keys share a text.
    text = "\x1f".join(
        [str(int(seed)), f"{len(purpose)}:{purpose}", *(str(int(i)) for i in indices)]
    )
    return Stream(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


def _check(purpose: str, count: int) -> None:
    names = PURPOSES.get(purpose)
    if names is None:
        raise ValueError(f"purpose {purpose!r} is not in PURPOSES; begin yours with own-")
    required = sum(not name.endswith("?") for name in names)
    if not required <= count <= len(names):
        raise ValueError(f"purpose {purpose!r} takes indices {names}, not {count} of them")
