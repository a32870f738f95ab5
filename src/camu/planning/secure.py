"""What secure sums inside a unit cost.

With `training.secure_sum = "unit"` the members of a unit mask what they send, so that whoever adds
it up, the leader or a deployment's server, sees its sum alone (`deploy/secure_sum.py`). For each
sum every member sends a signed pair of keys, a sealed pair of shares for each other member, its
vector in the ring of 32-bit numbers with one more entry for the loss, and a share of each member's
secret. Its leader sends all keys, the sealed shares that are for others, who has answered, and the
mean. Bits are those of the protocol alone, as everywhere; computing masks is not charged. A
simulated sum is the exact one: neither the fixed-point step nor the members' clipping is in it.
"""

from __future__ import annotations

import numpy as np

from camu.arrays import Int64
from camu.world import World

FEWEST = 3  # of two members, each would find the other's vector in the sum
RING_BITS = 32
KEY_BYTES, SIGNATURE_BYTES, SHARE_BYTES = 32, 96, 33
NONCE_BYTES, TAG_BYTES = 12, 16
KEYS_BYTES = 2 * KEY_BYTES + SIGNATURE_BYTES  # for the mask, for sealed shares, and their signature
SEALED_BYTES = NONCE_BYTES + 2 * SHARE_BYTES + TAG_BYTES  # of a member's two secrets


def gather_bits(world: World, sizes: Int64, parameters: int) -> tuple[Int64, Int64]:
    """What each member sends to its leader in a gather, and what the leader sends, by unit."""
    model = np.full(len(sizes), world.config.radio.bits_per_parameter * parameters, dtype=np.int64)
    if world.config.training.secure_sum == "none":
        return model, model
    vector = RING_BITS * (parameters + 1)
    sent = vector + 8 * (KEYS_BYTES + (sizes - 1) * SEALED_BYTES + sizes * SHARE_BYTES)
    shares = (sizes - 1) * (sizes - 1) * SEALED_BYTES
    answer = model + 8 * (sizes * KEYS_BYTES + shares) + sizes
    hidden = sizes >= FEWEST
    return np.where(hidden, sent, model), np.where(hidden, answer, model)
