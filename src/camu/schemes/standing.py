"""Who has long sent the opposite of what others send is left out; near-copies count once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from camu.arrays import Float32, Float64

FEWEST = 8  # updates without which no opinion is formed
WATCHED = 5  # updates of a sender before it can be left out
MEMORY = 0.9  # of the standing before an update, in that after it
MOST = 0.25  # of the senders of an update that can be left out
COPY = 0.9  # cosine from which on two updates are near-copies


@dataclass(eq=False)
class Standing:
    """How far each sender has agreed with the others, averaged over its updates.

    An update agrees by the cosine between it and the sum of the others' directions. Near-copies
    count once in that sum, so that colluding senders do not vouch for each other, and who is left
    out has no voice. Honest devices whose labels nobody else has can oppose the others too, so
    never more than a quarter is left out; limits of norms and weights hold for all in any case.
    """

    agreement: dict[int, float] = field(default_factory=dict)
    watched: dict[int, int] = field(default_factory=dict)

    def judge(self, senders: Sequence[int], changes: Sequence[Float32]) -> list[float]:
        """How much of each of these updates to use, 0 to 1; they were sent at the same time.

        An update with more near-copies than the median one is used in part, so that all of them
        together count as one where nobody else's has any.
        """
        norms = np.array([np.linalg.norm(change.astype(np.float64)) for change in changes])
        known = np.flatnonzero(np.isfinite(norms) & (norms > 0)).tolist()
        shares = [1.0] * len(senders)
        if len(known) >= FEWEST:
            rows = np.stack([changes[n] / np.float32(norms[n]) for n in known])
            cosines = (rows @ rows.T).astype(np.float64)
            np.fill_diagonal(cosines, 1.0)
            copies = (cosines > COPY).sum(axis=1)
            out = self._left_out([senders[n] for n in known])
            voices = np.array([senders[n] not in out for n in known], dtype=np.float64)
            for place, cosine in enumerate(agreements(cosines, voices)):
                self._note(senders[known[place]], float(cosine))
                shares[known[place]] = min(1.0, float(np.median(copies) / copies[place]))
        out = self._left_out(senders)
        return [
            0.0 if sender in out else share for share, sender in zip(shares, senders, strict=True)
        ]

    def _left_out(self, senders: Sequence[int]) -> set[int]:
        """Those who have opposed the others for long; of many, the quarter that did so most."""
        against = [
            (self.agreement[sender], sender)
            for sender in senders
            if self.watched.get(sender, 0) >= WATCHED and self.agreement[sender] < 0
        ]
        return {sender for _, sender in sorted(against)[: int(MOST * len(senders))]}

    def _note(self, sender: int, cosine: float) -> None:
        before = self.agreement.get(sender, 0.0)
        self.agreement[sender] = MEMORY * before + (1 - MEMORY) * cosine
        self.watched[sender] = self.watched.get(sender, 0) + 1


def agreements(cosines: Float64, voices: Float64) -> Float64:
    """The cosine of each unit vector with the sum of the others, from their cosines (n, n).

    `voices` are 1, or 0 for who has none.
    """
    weights = voices / np.square(np.maximum(cosines, 0.0)).sum(axis=1)  # n copies: 1/n each
    along = cosines @ weights
    own = along - weights
    squares = weights @ along - 2 * weights * along + np.square(weights)
    lengths = np.sqrt(np.maximum(squares, 0.0))
    return np.asarray(np.where(lengths > 1e-9, own / np.maximum(lengths, 1e-9), 0.0))
