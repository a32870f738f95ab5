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


@dataclass(frozen=True)
class Stream:
    """A derived source of randomness; ask it for a numpy or a torch generator at its start."""

    entropy: int

    def numpy(self) -> np.random.Generator:
        """A fresh numpy generator at the start of this stream."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.entropy)))

    def torch(self, device: str = "cpu") -> torch.Generator:
        """A fresh torch generator at the start of this stream."""
        import torch  # deferred: planning and configuration never pay for torch

        # torch takes 64 bits; the high bit stays clear because manual_seed reads a signed number.
        return torch.Generator(device=device).manual_seed(self.entropy & (2**63 - 1))


def derive(seed: int, purpose: str, *indices: int) -> Stream:
    """The stream for one purpose, for example ``derive(seed, "batch", round, device)``."""
    # Indices may be numpy integers; int() gives them one spelling. The unit separator cannot
    # occur in a number, and the purpose is length-prefixed, so no two keys share a text.
    text = "\x1f".join(
        [str(int(seed)), f"{len(purpose)}:{purpose}", *(str(int(i)) for i in indices)]
    )
    return Stream(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
