"""Secure sums at a node: what it signs, masks and reveals, each once.

The server decides who is in a sum, so a node checks what would show its own part: that three
members weigh enough, that all agree to the same members, weights and model, and that of one local
update it helps to reveal one sum only, also when the server asks again after a restart.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from camu.arrays import Float32, Float64
from camu.config import Config
from camu.deploy.messages import Task
from camu.deploy.secure_keys import verifier
from camu.deploy.secure_messages import (
    WEIGHTY,
    Answered,
    Asked,
    Sum,
    WrittenKeys,
    digest,
    hexed,
    unhexed,
    weighty,
)
from camu.deploy.secure_sum import Keys, MaskError, Member, Ring, threshold, to_ring
from camu.learning.job import Job, Trained
from camu.learning.weights import Weights
from camu.planning.secure import FEWEST

log = logging.getLogger(__name__)

LARGEST_LOSS = 1000.0  # of what is sent in a sum
KEPT = 64  # sums under way
REMEMBERED = 100_000  # local updates of which a sum was revealed

Train = Callable[[], tuple[Task, Sequence[Weights], Sequence[Trained]]]


@dataclass
class _UnderWay:
    """A sum that this node takes part in."""

    sum: Sum
    member: Member
    keys: dict[str, Keys] = field(default_factory=dict)
    dealt: dict[str, bytes] = field(default_factory=dict)  # what others have sealed for it
    masked: bool = False


@dataclass(frozen=True)
class SecureSums:
    """The sums of a node in a run."""

    name: str  # of the node
    clip: float
    sign: Callable[[bytes], bytes]
    peers: frozenset[bytes] | None
    under_way: OrderedDict[bytes, _UnderWay] = field(default_factory=OrderedDict)
    revealed: OrderedDict[tuple[int, int, int], bytes] = field(default_factory=OrderedDict)

    def answer(self, asked: Asked, train: Train) -> tuple[Answered, Ring | None]:
        """The answer to a step, with a vector if it masks; `train` trains the message's task."""
        if asked.step == "mask":
            return self._mask(asked, train)
        steps = {"keys": self._begin, "deal": self._deal, "reveal": self._reveal}
        return steps[asked.step](asked), None

    def _begin(self, asked: Asked) -> Answered:
        """Agree to a sum: the keys for it are signed with all that is known of it."""
        own = asked.sum
        if self.name not in own.devices or own.context in self.under_way:
            raise MaskError("this node is not among the members, or the sum has begun")
        held = [device for devices in own.devices.values() for device in devices]
        if len(set(held)) < len(held) or set(held) != own.weights.keys():
            raise MaskError("a sum needs each device once, with its weight")
        if not weighty(own, FEWEST):
            raise MaskError(
                f"fewer than {FEWEST} nodes weigh a tenth of the one that weighs most, so that the "
                "sum would show its part"
            )
        member = Member(own.context, self.name, secrets.token_bytes(32), 1)
        self.under_way[own.context] = _UnderWay(own, member)
        while len(self.under_way) > KEPT:
            self.under_way.popitem(last=False)
        return Answered(own.nonce, keys=WrittenKeys.of(member.keys(self.sign)))

    def _known(self, asked: Asked) -> _UnderWay:
        found = self.under_way.get(asked.sum.context)
        if found is None:
            raise MaskError("this sum has not begun here; the node may have been started again")
        return found

    def _deal(self, asked: Asked) -> Answered:
        """Check everybody's keys and seal shares for each."""
        mine = self._known(asked)
        if mine.keys:
            raise MaskError("shares are dealt once")
        keys = {name: written.keys for name, written in asked.keys.items()}
        if not keys.keys() <= mine.sum.devices.keys():
            raise MaskError("there are keys of strangers")
        verify = verifier({name: asked.registered.get(name, "") for name in keys}, self.peers)
        sealed = mine.member.deal(keys, verify)
        mine.keys = keys
        mine.dealt[self.name] = sealed.pop(self.name)
        return Answered(mine.sum.nonce, sealed=hexed(sealed))

    def _mask(self, asked: Asked, train: Train) -> tuple[Answered, Ring]:
        """Train, clip, and mask against all that take part."""
        mine = self._known(asked)
        if mine.masked or not mine.keys:
            raise MaskError("a sum is masked once, after its keys")
        others = unhexed(asked.sealed)
        taking_part = {*others, self.name}
        if self.name in others or not taking_part <= mine.keys.keys():
            raise MaskError("there are shares of strangers")
        if len(taking_part) < max(FEWEST, threshold(len(mine.keys))):
            raise MaskError(f"only {len(taking_part)} of {len(mine.keys)} members take part")
        mine.masked = True
        mine.dealt.update(others)
        task, starts, found = train()
        own, trained = mine.sum.devices[self.name], zip(task.jobs, starts, found, strict=True)
        rows = [row for row in trained if set(row[0].members) & {*own}]
        if sorted(k for job, *_ in rows for k in job.members) != sorted(own) or (
            task.round != mine.sum.round
        ):
            raise MaskError("the task is not that of the sum")
        if any(digest(start) != mine.sum.start for _, start, _ in rows):
            raise MaskError("the model is not the one that the members agreed to")
        ring = to_ring(self._part(mine.sum, task, rows), self.clip)
        keys = {name: mine.keys[name] for name in taking_part}
        return Answered(mine.sum.nonce), mine.member.mask(0, ring, keys)

    def _part(self, own: Sum, task: Task, found: Sequence[tuple[Job, Weights, Trained]]) -> Float64:
        """The weighted sum of what this node's devices have learned, each clipped."""
        whole = sum(own.weights.values())
        rows = []
        for job, start, one in found:
            (device,) = job.members
            row, share = clipped_update(one, start, self.clip)
            if share < 1:
                what = (task.round + 1, task.ids.get(device, str(device)), self.clip)
                log.warning("round %d: the update of %s is clipped to norm %g", *what)
            rows.append(own.weights[device] / whole * row)
        return np.asarray(np.sum(rows, axis=0))

    def _reveal(self, asked: Asked) -> Answered:
        """The shares that unmask the sum of those that answered."""
        mine = self._known(asked)
        everyone = sorted((*asked.answered, *asked.silent))
        if not mine.masked or everyone != sorted(mine.dealt):
            raise MaskError("the members are not those that the vector is masked against")
        if len(asked.answered) < FEWEST:
            raise MaskError(f"of fewer than {FEWEST} members, each would find another's part")
        about = replace(mine.sum, nonce="").context + repr(sorted(asked.answered)).encode()
        seen = hashlib.sha256(about).digest()
        places = [
            (mine.sum.round, mine.sum.update, device) for device in mine.sum.devices[self.name]
        ]
        if any(self.revealed.get(place, seen) != seen for place in places):
            raise MaskError("another sum of this local update was revealed already")
        names = asked.answered, asked.silent
        shares = mine.member.reveal(0, *names, mine.keys, mine.dealt)
        del self.under_way[mine.sum.context]  # once
        self.revealed.update(dict.fromkeys(places, seen))
        while len(self.revealed) > REMEMBERED:
            self.revealed.popitem(last=False)
        return Answered(mine.sum.nonce, shares=hexed(shares))


def clipped_update(found: Trained, start: Weights, bound: float) -> tuple[Float64, float]:
    """A device's update with its loss, clipped, and the factor on its parameters.

    Parameters are clipped by their norm, what goes with them (statistics of batch norm) by its
    largest entry, and the loss is a share of the largest.
    """
    frozen = start.layout.frozen_count

    def change(last: Float32, first: Float32) -> Float64:
        return np.asarray(last.astype(np.float64) - first)

    parameters = change(found.weights.parameters, start.parameters)
    buffers = change(found.weights.buffers[frozen:], start.buffers[frozen:])
    norm = math.sqrt(float(np.square(parameters).sum()))
    largest = float(np.abs(buffers).max()) if len(buffers) else 0.0
    if not (math.isfinite(norm) and math.isfinite(largest)):
        raise MaskError("the update has entries that are not numbers")
    share = min(1.0, bound / norm) if norm else 1.0
    buffers *= min(1.0, bound / largest) if largest else 1.0
    loss = found.loss if math.isfinite(found.loss) else 0.0
    loss = max(-LARGEST_LOSS, min(LARGEST_LOSS, loss)) * bound / LARGEST_LOSS
    return np.concatenate((share * parameters, buffers, [loss])), share


def check_open(config: Config, task: Task) -> None:
    """Refuse to send an update that stands for fewer than three devices, where sums hide them."""
    if config.training.secure_sum == "none":
        return
    for job in task.jobs:
        most = max(job.weights, default=0.0)
        if sum(weight >= WEIGHTY * most > 0 for weight in job.weights) < FEWEST:
            raise MaskError(
                f"training.secure_sum = {config.training.secure_sum}: the server asks for what "
                f"fewer than {FEWEST} devices have learned"
            )
