"""Calls to the methods of a scheme, and checks of their answers.

An error in a user's own scheme is reported as theirs, with file and line. A wrong answer is
refused in words.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from camu.arrays import AnyArray, Float32
from camu.config import Config
from camu.errors import InputError
from camu.learning.job import OwnTraining
from camu.learning.metrics import Metric, compute_of_devices
from camu.learning.task import task_of
from camu.learning.weights import Weights
from camu.planning.plan import Plan
from camu.plugins import same_directory, user_code
from camu.schemes.contract import Pilot, Scheme
from camu.schemes.view import State, View
from camu.simulation.run import OnNodes, Run, Trainer

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)

_SEE_ARRIVALS = ("deadline", "ready", "aggregate", "revise")
_WITH_BUFFERS = "super().aggregate(view, state).with_parameters(...)"
_OPTIONAL = ("start", "correction", "keep", "own_training", "own_model", *_SEE_ARRIVALS)


def check_trainer(scheme: Scheme, trainer: Trainer, plan: Plan, config: Config) -> None:
    """Refuse a scheme, or a metric, that needs more than the trainer can give."""
    for metric in task_of(config).metrics:
        if metric.of_devices and isinstance(trainer, OnNodes):
            raise InputError(
                f"training.metrics: {metric.name}: nodes judge no models on test samples of their "
                "own; leave it out, or simulate"
            )
    if (plan.air or plan.gathers_together) and isinstance(trainer, OnNodes):
        raise InputError(
            f"scheme {scheme.name}: its devices transmit at once, and there is no air between the "
            "sockets of nodes; simulate it, or choose another scheme for a deployment"
        )
    if overrides(scheme, "own_model") and isinstance(trainer, OnNodes):
        log.warning(
            "scheme %s: on nodes, what is personal travels to the server and back, so it is not "
            "hidden from the server",
            scheme.name,
        )
    if scheme.uses_oracle and trainer.oracle is None:
        raise InputError(
            f"scheme {scheme.name}: it needs exact losses or gradients on all data, which only a "
            "simulation has; choose another scheme for a deployment"
        )


class Hooks:
    """The optional methods of a scheme, called with the scheme's state."""

    def __init__(self, scheme: Scheme, state: State) -> None:
        self.scheme, self.state = scheme, state
        # The methods that the scheme has in place of the contract's.
        self.own = frozenset(name for name in _OPTIONAL if overrides(scheme, name))
        # Whether the scheme's own code may see arrivals. If not, the server waits for all units and
        # takes the mean, and no update needs to be kept.
        self.shows_arrivals = not self.own.isdisjoint(_SEE_ARRIVALS)
        self._noticed = False  # whether it was said that buffers stay as they were

    def select(self, view: View) -> list[int]:
        """The units that start in this round, in order."""
        answer: Any = _call(self.scheme, self.scheme.select, view, self.state)
        wanted = "the numbers of units, chosen among view.idle"
        if not isinstance(answer, Iterable):
            raise self._wrong("select", wanted, _kind(answer))
        # A generator runs the user's code only now, and might never end.
        most = len(view.plan.units)
        chosen: list[Any] = _call(self.scheme, list, islice(answer, most + 1))
        if len(chosen) > most:
            raise self._wrong("select", wanted, f"more numbers than the {most} units of the plan")
        for unit in chosen:
            if isinstance(unit, bool) or not isinstance(unit, (int, np.integer)):
                raise self._wrong("select", wanted, f"{_kind(unit)} among them")
        units = sorted({int(unit) for unit in chosen})
        idle = set(view.idle)
        if wrong := [unit for unit in units if unit not in idle]:
            raise InputError(
                f"scheme {self.scheme.name}: select() chose unit {wrong[0]}, which is not idle; "
                "choose among view.idle"
            )
        return units

    def start(self, view: View, unit: int) -> Weights:
        """The model that a unit starts from."""
        if "start" not in self.own:
            return view.weights
        answer: Any = _call(self.scheme, self.scheme.start, view, self.state, unit)
        if answer is None:
            return view.weights
        if not isinstance(answer, Weights) or answer.layout != view.weights.layout:
            raise self._wrong("start", "the weights of a model, or None", _kind(answer))
        return answer

    def correction(self, view: View, unit: int) -> Float32 | None:
        """A vector that is added to the gradients of a unit."""
        if "correction" not in self.own:
            return None
        answer = _call(self.scheme, self.scheme.correction, view, self.state, unit)
        if answer is None:
            return None
        shape = view.weights.parameters.shape
        wanted = f"one number per parameter, shape {shape}, or None"
        try:
            vector = np.asarray(answer)
        except ValueError:  # rows that differ in length
            raise self._wrong("correction", wanted, _kind(answer)) from None
        if vector.dtype.kind not in "iuf" or vector.shape != shape:
            found = f"{vector.dtype} of shape {vector.shape}"
            raise self._wrong("correction", wanted, found)
        return np.ascontiguousarray(vector, dtype=np.float32)

    def own_training(self, view: View, unit: int) -> OwnTraining | None:
        """What a unit trains for itself."""
        if "own_training" not in self.own:
            return None
        answer = _call(self.scheme, self.scheme.own_training, view, self.state, unit)
        if answer is not None and not isinstance(answer, OwnTraining):
            raise self._wrong("own_training", "an OwnTraining, or None", _kind(answer))
        return answer

    def own_models(self, view: View) -> dict[int, Weights]:
        """The models of devices that have one of their own."""
        found: dict[int, Weights] = {}
        if "own_model" not in self.own:
            return found
        for number, unit in enumerate(view.plan.units):
            answer = _call(self.scheme, self.scheme.own_model, view, self.state, number)
            if answer is not None and not isinstance(answer, Weights):
                raise self._wrong("own_model", "Weights, or None", _kind(answer))
            if answer is not None:
                found |= dict.fromkeys(unit.members, answer)
        return found

    def of_devices(
        self, view: View, trainer: Trainer, metrics: Sequence[Metric]
    ) -> dict[str, float]:
        """The metrics for which each device judges its own model, or the global one."""
        wanted = [metric for metric in metrics if metric.of_devices]
        if not wanted:
            return {}
        found = trainer.evaluate_devices(view.weights, self.own_models(view))
        return {metric.name: compute_of_devices(metric, found) for metric in wanted}

    def keep(
        self, view: View, unit: int, change: Float32 | None, kept: AnyArray | None
    ) -> AnyArray | None:
        """What a unit keeps after this change of its own, as an array that nothing else shares."""
        if change is None:
            return None
        change.setflags(write=False)
        scheme = self.scheme
        answer = _call(scheme, scheme.keep, view, self.state, unit, change, kept)
        if answer is None:
            return None
        if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "biuf":
            raise self._wrong("keep", "a numpy array of numbers, or None", _kind(answer))
        own = answer.copy(order="C")
        own.setflags(write=False)
        return own

    def deadline(self, view: View) -> float | None:
        """When the server aggregates at the latest, on the virtual clock."""
        answer: Any = _call(self.scheme, self.scheme.deadline, view, self.state)
        if answer is None:
            return None
        try:
            seconds = float(answer)
        except (TypeError, ValueError):
            raise self._wrong("deadline", "virtual seconds or None", _kind(answer)) from None
        if math.isnan(seconds):
            raise self._wrong("deadline", "virtual seconds or None", "nan")
        if seconds < view.seconds:
            wanted = f"a time from now on (view.seconds, {view.seconds:.6g}), or None"
            raise self._wrong("deadline", wanted, f"{seconds:.6g}")
        return None if seconds == math.inf else seconds

    def ready(self, view: View) -> bool:
        """Whether the server aggregates now."""
        return self._yes_or_no("ready", _call(self.scheme, self.scheme.ready, view, self.state))

    def aggregate(self, view: View) -> Weights:
        """The new global model."""
        weights: Any = _call(self.scheme, self.scheme.aggregate, view, self.state)
        if not isinstance(weights, Weights) or weights.layout != view.weights.layout:
            wanted = f"the model's weights, for example {_WITH_BUFFERS}"
            raise self._wrong("aggregate", wanted, _kind(weights))
        if "aggregate" in self.own and not (
            np.isfinite(weights.parameters).all() and np.isfinite(weights.buffers).all()
        ):
            raise self._wrong("aggregate", "finite numbers", "weights that are not finite")
        self._notice_old_buffers(view, weights)
        return weights

    def _notice_old_buffers(self, view: View, weights: Weights) -> None:
        """Say once that a user's scheme leaves the buffers of the model as they were."""
        own = not type(self.scheme).__module__.startswith("camu.")
        if not own or self._noticed or not np.array_equal(weights.buffers, view.weights.buffers):
            return
        if any(
            share and arrival.buffers.any()
            for share, arrival in zip(view.shares, view.arrived, strict=True)
        ):
            self._noticed = True
            log.warning(
                "scheme %s: aggregate() keeps the old buffers (statistics of batch norm), although "
                "units have changed theirs; to take their mean, return %s",
                self.scheme.name,
                _WITH_BUFFERS,
            )

    def revise(self, view: View, run: Run) -> None:
        """Let the scheme change the plan after a round."""
        self._take("revise", _call(self.scheme, self.scheme.revise, view, self.state), run)
        settle_state(self.scheme, self.state)

    def finished(self, view: View, run: Run) -> None:
        """Let the scheme end the run."""
        answer = _call(self.scheme, self.scheme.finished, view, self.state)
        if self._yes_or_no("finished", answer):
            run.stop("scheme")

    def pilot(self, pilot: Pilot, run: Run) -> None:
        """Let the scheme try something out before the first round."""
        self._take("pilot", _call(self.scheme, self.scheme.pilot, pilot, self.state), run)
        settle_state(self.scheme, self.state)

    def _take(self, hook: str, plan: Any, run: Run) -> None:
        """Continue with another plan, unless it is None."""
        if plan is None:
            return
        if not isinstance(plan, Plan):
            raise self._wrong(hook, "a Plan or None", _kind(plan))
        for unit in run.in_flight:
            same = unit < len(plan.units) and (
                plan.units[unit].members == run.plan.units[unit].members
            )
            if not same:
                raise InputError(
                    f"scheme {self.scheme.name}: unit {unit} is on its way, so its members cannot "
                    "change yet; change members in a round without units in flight"
                )
        if (plan.access, plan.parameters) != (run.plan.access, run.plan.parameters):
            wanted = "a plan for the same model and the same radio.access"
            raise self._wrong(hook, wanted, "a plan for others")
        # Powers, rules, codecs and members may have changed; updates have costs of their own.
        plan = replace(plan, dvfs=run.plan.dvfs).repriced(run.world)
        run.revised = run.revised or plan != run.plan
        for unit in list(run.kept):
            members = plan.units[unit].members if unit < len(plan.units) else ()
            if members != run.plan.units[unit].members:
                del run.kept[unit]
        run.plan = plan

    def _yes_or_no(self, hook: str, answer: object) -> bool:
        if not isinstance(answer, bool | np.bool_):
            raise self._wrong(hook, "True or False", _kind(answer))
        return bool(answer)

    def _wrong(self, hook: str, wanted: str, found: str) -> InputError:
        return InputError(
            f"scheme {self.scheme.name}: {hook}() returned {found}; it must return {wanted}"
        )


def settle_state(scheme: Scheme, state: State) -> None:
    """Refuse a state that a checkpoint could not hold; leave each array with memory of its own.

    Arrays come back from a checkpoint in C order and share nothing, so that a resumed run would
    differ if they were otherwise before.
    """
    seen: set[int] = set()
    for name, value in list(state.items()):
        if not isinstance(name, str):
            raise InputError(
                f"scheme {scheme.name}: state[{name!r}]: the names in a state are text; write "
                f'state["{name}"]'
            )
        numbers = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf"
        if not (numbers or isinstance(value, bool | int | float | str)):
            raise InputError(
                f"scheme {scheme.name}: state[{name!r}] is {_kind(value)}; a state holds numpy "
                "arrays of numbers, numbers, text and booleans"
            )
        if isinstance(value, np.ndarray):
            shared = value.base is not None or id(value) in seen
            if shared or not value.flags.c_contiguous:
                state[name] = value.copy(order="C")
            seen.add(id(state[name]))


def _call(scheme: Scheme, hook: Callable[..., Answer], *arguments: object) -> Answer:
    """Call a method of the scheme; an error in a user's own scheme names their line."""
    with user_code(f"scheme {scheme.name}", scheme), same_directory(f"scheme {scheme.name}"):
        try:
            return hook(*arguments)
        except InputError as error:  # a wrong argument to one of camu's functions
            name = f"scheme {scheme.name}"
            if str(error).startswith(name):
                raise
            raise InputError(f"{name}: {error}") from error


def overrides(scheme: Scheme, name: str) -> bool:
    """Whether a scheme has a method of its own in place of the contract's."""
    method = getattr(scheme, name)
    return getattr(method, "__func__", method) is not getattr(Scheme, name)


def _kind(value: object) -> str:
    """The type of a value, for a message."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
