"""What one unit trains: its devices, how many local updates, and by which rule."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from camu.arrays import Float32, Mask
from camu.data.batches import batch_fault
from camu.errors import InputError

if TYPE_CHECKING:
    from camu.learning.weights import Weights


@dataclass(frozen=True)
class LocalRule:
    """How the members of a unit train; the default is one configured step per local update.

    With `steps` above 1 every member takes that many steps of its own before the members average at
    their leader, so that one local update is `steps` gradient steps and one gather. From
    `optimiser` on, None is the key of `[training]` with the same name.
    """

    rate: float = 1.0  # factor on training.learning_rate
    # In place of the configured mini-batch: an int is a number of samples, a float a fraction of a
    # device's data.
    batch: int | float | None = None
    proximal: float = 0.0  # weight m of the term (m / 2) ||w - w_start||^2 in the loss
    steps: int = 1  # local steps (or epochs) between two gathers at the leader
    # Factor on the seconds and joules of a step: the share of the model that is trained, or more
    # than 1 where a unit trains for itself besides.
    work: float = 1.0
    optimiser: str | None = None  # "sgd" or "adam"
    momentum: float | None = None
    nesterov: bool | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None

    def __init_subclass__(cls) -> None:
        own = [name for name, value in vars(cls).items() if inspect.isfunction(value)]
        if own:
            raise InputError(
                f"{cls.__name__}: camu never calls {own[0]}() of a LocalRule, which holds numbers "
                "only; change the gradients of a unit with Scheme.correction"
            )

    def faults(self) -> list[str]:
        """One sentence per number that is out of range."""
        found = []
        if not (math.isfinite(self.rate) and self.rate > 0):
            found.append(f"rule.rate = {self.rate} must be a positive number")
        if self.batch is not None and (fault := batch_fault(self.batch)):
            found.append(f"rule.batch = {fault}")
        if not (math.isfinite(self.proximal) and self.proximal >= 0):
            found.append(f"rule.proximal = {self.proximal} must be a number from 0")
        if self.steps < 1:
            found.append(f"rule.steps = {self.steps} must be at least 1")
        if not (math.isfinite(self.work) and self.work > 0):
            found.append(f"rule.work = {self.work} must be a positive number")
        return found + self._method_faults()

    def _method_faults(self) -> list[str]:
        found = []
        if self.optimiser not in (None, *OPTIMISERS):
            found.append(f'rule.optimiser = {self.optimiser!r} must be "sgd" or "adam"')
        if self.momentum is not None and not 0 <= self.momentum < 1:
            found.append(f"rule.momentum = {self.momentum} must be from 0 to below 1")
        if self.momentum and self.optimiser == "adam":
            found.append(f"rule.momentum = {self.momentum} is for sgd; Adam has means of its own")
        for name in ("weight_decay", "clip_norm"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and number >= 0):
                found.append(f"rule.{name} = {number} must be a number from 0")
        return found


PLAIN_RULE = LocalRule()
OPTIMISERS = ("sgd", "adam")


@dataclass(frozen=True, eq=False)
class OwnTraining:
    """What a unit trains for itself, beside its update: from these parameters, so many updates.

    `proximal` pulls to the model at the start of the round. Where `only` is given, just these
    parameters move. With `first` it comes before the update, which then starts with what was
    trained and leaves the parameters of `only` alone.
    """

    start: Float32  # (q,)
    updates: int = 1
    proximal: float = 0.0
    only: Mask | None = None  # (q,)
    first: bool = False


@dataclass(frozen=True)
class Job:
    """The training of one unit: its devices, their relative weights G_k, its local updates N_c.

    `first` is the number of the first local update, where earlier ones were done elsewhere.
    `correction` (q,) is added to every gradient. `anchor` (q,) is the model that the proximal term
    pulls to; None is the model that the job starts from. `all_updates` is how many updates the
    round has where the job is a part of it; 0: the job has all. `states` is what the optimiser of
    each member kept from its last steps (None: nothing), and asks for what it keeps in the end;
    without it all begin anew.
    """

    members: tuple[int, ...]
    weights: tuple[float, ...]
    updates: int = 1
    first: int = 0
    rule: LocalRule = PLAIN_RULE
    correction: Float32 | None = field(default=None, compare=False, repr=False)
    anchor: Float32 | None = field(default=None, compare=False, repr=False)
    all_updates: int = 0
    states: tuple[Float32 | None, ...] | None = field(default=None, compare=False, repr=False)
    own: OwnTraining | None = field(default=None, compare=False, repr=False)

    @property
    def shares(self) -> list[float]:
        """The members' weights, with sum 1."""
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    @property
    def numbers(self) -> range:
        """The numbers of its local updates."""
        return range(self.first, self.first + self.updates)

    @property
    def round_updates(self) -> int:
        """How many local updates its unit does in the round."""
        return self.all_updates or self.first + self.updates

    def check(self, devices: int) -> None:
        """Refuse a job that cannot be trained on so many devices."""
        members, weights = self.members, self.weights
        if not 0 < len(members) == len(weights) or self.updates < 1 or self.first < 0:
            raise InputError(
                f"job: {self} needs at least one member, one weight per member and one update."
            )
        if min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise InputError(f"job: the weights {weights} are not weights; give positive numbers.")
        if min(members) < 0 or max(members) >= devices:
            device = min(members) if min(members) < 0 else max(members)
            raise InputError(f"job: there is no device {device}; there are {devices}.")
        if self.rule is not PLAIN_RULE:
            for fault in self.rule.faults():
                raise InputError(f"job: {fault}.")


def one_update(
    job: Job,
    device: int,
    update: int,
    start: Weights,
    kept: Sequence[Float32 | None] | None = None,
) -> Job:
    """The part of a job that one of its devices does in one of its local updates.

    The proximal term pulls to the model at the start of the round, not of the update. `kept` is
    what the optimiser of each member keeps.
    """
    anchor = job.anchor
    if anchor is None and job.rule.proximal > 0 and update > 0:
        anchor = start.parameters
    return replace(
        job,
        members=(device,),
        weights=(1.0,),
        updates=1,
        first=job.first + update,
        anchor=anchor,
        all_updates=job.round_updates,
        states=None if kept is None else (kept[job.members.index(device)],),
    )


class Trained(NamedTuple):
    """The outcome of a job: the trained model, and the mean training loss over its steps."""

    weights: Weights
    loss: float
    # What the members' optimisers keep, if the job asked for it; None: it was lost at a node.
    states: tuple[Float32 | None, ...] = ()
    own: Float32 | None = None  # parameters that the unit trained for itself


@dataclass(frozen=True)
class Evaluation:
    """A model on the test samples."""

    accuracy: float | None  # the share of classes, or tokens, that it names; None for numbers
    loss: float  # the mean over the samples
    label_accuracy: tuple[float | None, ...] = ()  # None: no sample has this label
    metrics: dict[str, float] = field(default_factory=dict, hash=False)  # the task's others

    def value(self, name: str) -> float | None:
        """The value of a metric, if it is a number."""
        known = {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}
        value = known.get(name)
        return value if value is not None and math.isfinite(value) else None

    def finite_metrics(self, more: Mapping[str, float]) -> dict[str, float | None]:
        """The other metrics and these, as JSON takes them: after a blow-up there is none."""
        found = {**self.metrics, **more}
        return {name: value if math.isfinite(value) else None for name, value in found.items()}


NOT_EVALUATED = Evaluation(None, math.nan)


def training_of(members: Sequence[int], round_number: int) -> str:
    """A short name of the training of some devices, for error messages."""
    return f"Training devices {brief(members)} in round {round_number}"


def brief(members: Sequence[int]) -> str:
    """The first few devices, for a message."""
    named = ", ".join(str(member) for member in members[:5])
    return named if len(members) <= 5 else f"{named} and {len(members) - 5} more"
