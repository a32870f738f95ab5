"""camu-auto: every lever of the contract from the world's prices and a short charged pilot.

The pilot measures curvature, how much devices differ, and the shape of an update. With these the
design is searched that gets farthest for the joules and seconds of the run (`levers.py`); nothing
is trained for the search. `camu plan` shows what each lever is worth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from camu.learning.job import LocalRule
from camu.planning.air import ALIGNED
from camu.planning.codecs import parameter_count
from camu.planning.groups import make_plan
from camu.schemes.aggregation import with_momentum
from camu.schemes.auto_pilot import look_around
from camu.schemes.contract import (
    Count,
    CountFromTwo,
    NonNegative,
    Pilot,
    Plan,
    Positive,
    Scheme,
    Share,
    State,
    View,
    Weights,
    World,
)
from camu.schemes.designs import Design, Search, cohorts_of, structures
from camu.schemes.levers import UNCODED, Goal, Levers, Training

StructureKind = Literal["auto", "devices", "dual-segment", "near-iid"]

# The parameters of each lever, at the values that switch it off.
OFF: dict[str, dict[str, Any]] = {
    "structure": {"structure": "devices"},
    "participation": {"cohorts": 1},
    "gathers": {"gathers": 1},
    "steps": {"steps": 1},
    "codec": {"bits": UNCODED},
    "power": {"own_power": True},
    "frequencies": {"dvfs": False},
    "learning rate": {"rate": 1.0},
    "momentum": {"momentum": 0.0},
    "over the air": {"over_the_air": False},
}


class LeverWorth(NamedTuple):
    """A lever, where it stands, and the share of the predicted progress that is lost without it."""

    lever: str
    choice: str
    lost: float


@dataclass(frozen=True)
class CamuAuto(Scheme):
    """All levers of a plan, chosen by predicted progress within the joules and seconds of the run.

    A parameter that is given is not chosen. A run with a budget of joules, or of seconds, is
    planned for that one; with neither, for what `run.rounds` rounds of everyone would spend.
    """

    structure: StructureKind = "auto"
    cohorts: Count | None = None  # near-IID parts of the units, of which one trains in a round
    gathers: Count | None = None
    steps: Count | None = None
    bits: CountFromTwo | None = None  # per parameter on the uplink; 32: uncoded
    own_power: bool = False  # True: leaders send with their configured power
    dvfs: bool = True  # False: every device computes at its own frequency
    rate: Positive | None = None  # factor on training.learning_rate
    momentum: Share | None = None  # of the server
    over_the_air: bool = True  # at once where radio.uplink = analog; False: always in turn
    measure: bool = True  # False: no pilot, constants as assumed before one
    predictor: Literal["price", "bound"] = "price"
    drift: NonNegative = 0.16  # as that of camu-balanced
    name = "camu-auto"
    family = "clusters"
    tunable = {"training.server_momentum": None}  # this scheme's is its own
    citation = "this project: a cost model in place of a search"
    choices = [
        "units of a cohort train while the others rest; cohorts take turns",
        "over the air only where radio.uplink is analog, so that no other receiver is assumed",
        "before a pilot the learning rate stays as configured",
    ]

    def plan(self, world: World) -> Plan:
        """The design for the constants that are assumed before a pilot."""
        return self._planned(world, self.design(world))

    def pilot(self, pilot: Pilot, state: State) -> Plan | None:
        """Measure the training, and plan again for what is left of the budgets."""
        world, design = pilot.world, self.design(pilot.world)
        _note(state, design)
        if not self.measure or world.config.training.optimiser != "sgd":
            return None
        found = look_around(pilot, self)
        if found.training is None:
            return None
        goal = self.goal(world).less(found.joules, found.seconds)
        design = self.design(world, found.training, goal, (design.levers.air,))
        _note(state, design)
        return self._planned(world, design)

    def select(self, view: View, state: State) -> Iterable[int]:
        """The cohort whose turn it is; the next one where it has no power left."""
        number = int(state.get("cohorts", 1))
        if number == 1:
            return view.idle
        if len(state.get("cohort", ())) != len(view.plan.units):
            members = [unit.members for unit in view.plan.units]
            number = min(number, len(members))
            state["cohort"] = cohorts_of(view.world, members, number).copy()
        cohort = np.asarray(state["cohort"])
        for turn in range(number):
            own = [u for u in view.powered if cohort[u] == (view.round + turn) % number]
            if own:
                return own
        return view.idle

    def aggregate(self, view: View, state: State) -> Weights:
        mean, momentum = super().aggregate(view, state), float(state.get("momentum", 0.0))
        return with_momentum(view, state, mean, momentum) if momentum else mean

    def design(
        self,
        world: World,
        training: Training | None = None,
        goal: Goal | None = None,
        airs: tuple[bool, ...] | None = None,
    ) -> Design:
        """The design that gets farthest; without measured constants, for assumed ones."""
        key = ("camu-auto", self, training, goal, airs)
        return world.cached(key, lambda: self._searched(world, training, goal, airs))

    def _searched(
        self,
        world: World,
        training: Training | None,
        goal: Goal | None,
        airs: tuple[bool, ...] | None,
    ) -> Design:
        search = self._search(world, training, goal or self.goal(world), airs)
        return search.best(structures(world, self.structure))

    def goal(self, world: World) -> Goal:
        """The budgets of the run, or what its rounds would cost with all levers at rest."""
        run = world.config.run
        joules = run.max_joules or run.min_joules
        seconds = run.max_virtual_seconds or run.min_virtual_seconds
        if joules or seconds:
            both = bool(run.max_joules and run.max_virtual_seconds)
            return Goal(joules, seconds, both)
        plain = Search(world, Training.assumed(1), Goal(1.0, 1.0, False), "price", 0.0, {}, False)
        groups = structures(world, "devices")[0].groups
        each = plain.price(groups, Levers())
        return Goal(run.rounds * each[0], run.rounds * each[1], both=False)

    def worth(self, world: World) -> list[LeverWorth]:
        """What each lever is worth: the predicted progress that is lost without it."""
        design, found = self.design(world), []
        for lever, off in OFF.items():
            without = replace(self, **off).design(world)
            choice = _choice(lever, design, self.dvfs)
            found.append(LeverWorth(lever, choice, 1 - without.worth / design.worth))
        return found

    def _search(
        self, world: World, training: Training | None, goal: Goal, airs: tuple[bool, ...] | None
    ) -> Search:
        names = ("cohorts", "gathers", "steps", "bits", "rate", "momentum")
        fixed = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.own_power:
            fixed["power"] = None
        if training is None:  # nothing is known of the curvature
            fixed.setdefault("rate", 1.0)
            training = Training.assumed(parameter_count(world))
        airs = airs or ((False, True) if self.over_the_air and _may_burst(world) else (False,))
        return Search(world, training, goal, self.predictor, self.drift, fixed, self.dvfs, airs)

    def _planned(self, world: World, design: Design) -> Plan:
        """A design as a plan."""
        levers, groups = design.levers, design.groups
        rule = LocalRule(steps=levers.steps, rate=levers.rate)
        plan = make_plan(
            self,
            groups,
            groups.sample_weights,
            levers.gathers,
            design.power_watts,
            rule=rule,
            codec=design.codec,
        )
        plan = plan.over_the_air(ALIGNED).repriced(world) if levers.air else plan
        return plan.with_dvfs(world) if self.dvfs else plan


def _note(state: State, design: Design) -> None:
    """What the run needs of a design beside its plan."""
    state.update(cohorts=design.levers.cohorts, momentum=design.levers.momentum)
    state.pop("cohort", None)


def _may_burst(world: World) -> bool:
    """Whether units may transmit at once: the server receives analogue signals at one place."""
    config = world.config
    several = config.radio.cells != "one" and len(world.base_stations) > 1
    return (
        config.radio.uplink == "analog"
        and world.links.types is None
        and not several
        and config.radio.outage_snr_db is None
        and config.scheme.aggregation == "mean"
    )


def _choice(lever: str, design: Design, dvfs: bool) -> str:
    """Where a lever stands, for people."""
    own = design.levers
    power = design.power_watts
    said = {
        "structure": design.name,
        "participation": "everyone" if own.cohorts == 1 else f"1 of {own.cohorts} cohorts",
        "gathers": str(own.gathers),
        "steps": str(own.steps),
        "codec": "uncoded" if own.bits >= UNCODED else f"{own.bits} bits",
        "power": f"{power.min():.3g} to {power.max():.3g} W",
        "frequencies": "slowed where devices wait" if dvfs else "their own",
        "learning rate": f"{own.rate:.3g} x configured",
        "momentum": f"{own.momentum:g}",
        "over the air": "yes" if own.air else "no",
    }
    return said[lever]
