"""The answer for a fleet: learning, or sending the data, what decides it, and what would change it.

Nothing is trained here: plans, dry runs and the price of links; rounds to a target score are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from camu.answers.assumptions import Moved, moved
from camu.answers.budget import Budget, Option, options
from camu.answers.dry import DryPlan
from camu.answers.leaders import Leader, Rule, leaders, rules
from camu.answers.upgrades import Purchase, Upgrade, holdups, purchase, reference
from camu.errors import InputError, suggest
from camu.learning.chance import largest_class
from camu.planning.batteries import Lifetime
from camu.planning.battery_days import BatteryDays, battery_days
from camu.planning.carbon import JOULES_PER_KWH, Grid
from camu.planning.central import (
    Bill,
    Sending,
    ServerTraining,
    break_even_bytes,
    samples_of_round,
    send_data,
    train_at_server,
)
from camu.simulation.dry_run import battery_life
from camu.work import Progress, silent
from camu.world import World
from camu.world.boards import find_board
from camu.world.fleet_file import label_names

NO_LIMIT = Budget()
SERVER = "laptop-core"  # the board that trains at the server unless another one is named


@dataclass(frozen=True)
class Rounds:
    """For how many rounds the costs are, and where this number comes from."""

    number: float
    how: str  # in words
    low: float | None = None  # of the 95 % interval, where they were measured
    high: float | None = None
    target: float | None = None  # the score that takes so many; None: none was asked for

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, if it has both ends."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Comparison:
    """Learning and sending the data once, side by side."""

    learning: Bill
    sending: Bill  # with the time of training at the server
    server: ServerTraining | None
    # Sending the data costs as much as so many rounds of learning, and as learning costs if a
    # sample has so many bytes.
    even_rounds: Bill
    even_bytes: Bill

    @property
    def cheaper(self) -> dict[str, str]:
        """For each cost, which way costs less: `learning`, `sending`, or `equal`."""
        found = {}
        for name, one, other in zip(Bill._fields, self.learning, self.sending, strict=True):
            alike = abs(one - other) <= 1e-9 * max(one, other)
            found[name] = "equal" if alike else "learning" if one < other else "sending"
        return found


@dataclass(frozen=True, eq=False)
class Answer:
    """Everything that `camu answer` says of a fleet."""

    dry: DryPlan
    working: DryPlan  # the same without an interval between rounds
    rounds: Rounds
    sent: Sending
    comparison: Comparison
    leaders: list[Leader]
    rules: list[Rule]
    like: int  # the device that an upgrade makes of another
    holdups: list[Upgrade]
    purchase: Purchase | None
    budget: Budget
    fitting_rounds: float  # of the plan within the budget
    options: list[Option]  # only where the budget is too small
    moved: list[Moved]
    largest_class: tuple[int, float] | None
    lifetime: Lifetime | None  # None: no device has a battery
    days: BatteryDays | None

    @property
    def class_name(self) -> str:
        """The name of the largest class in the fleet's file, or its number."""
        assert self.largest_class is not None
        label, path = self.largest_class[0], self.world.config.fleet.file
        names = [] if path is None else label_names(Path(path))
        return names[label] if label < len(names) else str(label)

    @property
    def world(self) -> World:
        """The fleet."""
        return self.dry.world

    @property
    def co2_grams(self) -> dict[str, float] | None:
        """Grams of CO2 of a round, of learning and of sending; None if nothing is known of them."""
        if (grid := Grid.of(self.world.config)) is None:
            return None
        a_round, learning, sent = self.dry.cost, self.comparison.learning, self.sent.bill
        found = {
            "round": (a_round.seconds, self.dry.round_joules),
            "learning": (learning.seconds, learning.joules),
            "sending": (sent.seconds, sent.joules),
        }
        return {
            name: grid.mean(seconds) * joules / JOULES_PER_KWH
            for name, (seconds, joules) in found.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, devices by their ids."""
        ids = self.world.devices.ids
        cost, cheaper = self.dry.cost, self.comparison.cheaper
        sent = self.dry.device_megabytes
        return {
            "scheme": self.dry.plan.scheme,
            "devices": self.world.devices.count,
            "left_out": list(self.world.left_out),
            "parameters": self.dry.plan.parameters,
            "rounds": asdict(self.rounds),
            "round": {
                "seconds": cost.seconds,
                "joules": cost.joules,
                "megabytes": cost.megabytes,
                "working_seconds": self.working.cost.seconds,
                "device_megabytes": {"mean": float(sent.mean()), "most": float(sent.max())},
            },
            "learning": self.comparison.learning._asdict(),
            "sending": {
                **self.comparison.sending._asdict(),
                "sample_bytes": self.sent.sample_bytes,
                "arrival_seconds": self.sent.bill.seconds,
                "server": None
                if self.comparison.server is None
                else asdict(self.comparison.server),
            },
            "co2_grams": self.co2_grams,
            "cheaper": cheaper,
            "break_even": {
                "rounds": _finite(self.comparison.even_rounds),
                "sample_bytes": _finite(self.comparison.even_bytes),
            },
            "leaders": [{**asdict(one), "device": ids[one.device]} for one in self.leaders],
            "rules": [asdict(one) for one in self.rules],
            "upgrade_like": ids[self.like],
            "holdups": [{**asdict(one), "device": ids[one.device]} for one in self.holdups],
            "purchase": None
            if self.purchase is None
            else {**asdict(self.purchase), "devices": [ids[k] for k in self.purchase.devices]},
            "budget": {**asdict(self.budget), "rounds": _number(self.fitting_rounds)},
            "options": [
                {**asdict(one), "rounds": _number(one.rounds), "bill": one.bill._asdict()}
                for one in self.options
            ],
            "assumptions": [
                {
                    **asdict(one),
                    "learning": [bill._asdict() for bill in one.learning],
                    "sending": [bill._asdict() for bill in one.sending],
                }
                for one in self.moved
            ],
            "largest_class": None
            if self.largest_class is None
            else {"class": self.largest_class[0], "name": self.class_name}
            | {"share": self.largest_class[1]},
            "batteries": self._batteries(),
        }

    def _batteries(self) -> dict[str, Any] | None:
        if self.lifetime is None or self.days is None:
            return None
        return {
            "days": {
                name: {"device": self.world.devices.ids[k], **self.battery(k)}
                for name, k in self.first_median_last().items()
            },
            **self.lifetime.to_dict(self.dry.plan, list(self.world.devices.ids)),
        }

    def first_median_last(self) -> dict[str, int]:
        """The devices whose batteries are empty first, in the middle and last."""
        if self.days is None:
            return {}
        days = self.days.days_with_learning
        own = np.flatnonzero(~np.isnan(days))
        order = own[np.argsort(days[own], kind="stable")].tolist()
        places = {"first": 0, "median": (len(order) - 1) // 2, "last": len(order) - 1}
        return {name: order[place] for name, place in places.items()}

    def battery(self, device: int) -> dict[str, float | None]:
        """Days with learning and without, learning's share, and batteries for all rounds.

        None: never empty. Of rounds at an interval, what resting takes in between is left out.
        """
        assert self.days is not None
        assert self.lifetime is not None
        spent = self.rounds.number * self.lifetime.round_joules[device]
        if self.world.config.run.every_seconds is not None:
            spent *= self.days.learning_share[device]
        return {
            "days_with_learning": _number(float(self.days.days_with_learning[device])),
            "days_without_learning": _number(float(self.days.days_without_learning[device])),
            "learning_share": float(self.days.learning_share[device]),
            "batteries": float(spent / self.world.devices.battery_joules[device]),
        }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _finite(bill: Bill) -> dict[str, float | None]:
    return {name: _number(value) for name, value in bill._asdict().items()}


def compare_with_sending(dry: DryPlan, rounds: float, server: str = SERVER) -> Comparison:
    """Learning for so many rounds against sending the data once and training at the server.

    The server trains on as many samples as the devices together in these rounds.
    """
    world, sent = dry.world, send_data(dry.world)
    share = min(1.0, dry.cost.units / len(dry.plan.units))
    samples = share * samples_of_round(dry.plan, world)
    board = find_board(server, "--server")
    training = train_at_server(world, server, board, rounds * samples)
    own = 0.0 if training is None else training.seconds
    learning, sending = dry.bill(rounds), sent.bill
    start, one = dry.bill(0.0), dry.bill(1.0)
    each = Bill(*(total - fixed for total, fixed in zip(one, start, strict=True)))
    each = each._replace(seconds=each.seconds - own / rounds)  # the server needs time per round
    parts = zip(sending, start, each, strict=True)
    return Comparison(
        learning=learning,
        sending=sending._replace(seconds=sending.seconds + own),
        server=training,
        even_rounds=Bill(
            *(
                max(0.0, total - fixed) / slope if slope > 0 else math.inf
                for total, fixed, slope in parts
            )
        ),
        even_bytes=break_even_bytes(world, learning._replace(seconds=learning.seconds - own)),
    )


def answer(
    dry: DryPlan,
    rounds: Rounds,
    budget: Budget = NO_LIMIT,
    *,
    server: str = SERVER,
    like: str | None = None,
    buy: int = 0,
    progress: Progress = silent,
) -> Answer:
    """Everything that an owner asks, for a plan.

    Parameters:
        dry: the plan of a scheme in the owner's world, and what a round costs.
        rounds: for how many rounds the costs are.
        budget: what may be spent.
        server: the board that would train at the server.
        like: id of the device that an upgrade makes of another; by default the slowest of the
            fastest quarter of the fleet.
        buy: how many devices to replace together.
        progress: called along the way.

    Returns:
        The answer.
    """
    world = dry.world
    model = reference(world, dry.plan) if like is None else _device(world, like)
    fits = budget.rounds(dry)
    other = options(dry, budget, rounds.number, progress) if fits < rounds.number else []
    powered = bool(np.isnan(world.devices.battery_joules).all())
    life = None if powered else battery_life(world, dry.scheme, dry.plan)
    counts = world.devices.label_counts
    working = dry.at_once()
    return Answer(
        dry=dry,
        working=working,
        rounds=rounds,
        sent=send_data(world),
        comparison=compare_with_sending(dry, rounds.number, server),
        leaders=leaders(dry),
        rules=rules(working),
        like=model,
        holdups=holdups(working, model, progress=progress),
        purchase=purchase(working, model, buy, progress) if buy else None,
        budget=budget,
        fitting_rounds=fits,
        options=other,
        moved=moved(dry, rounds.number, rounds.interval, progress),
        largest_class=largest_class(counts.sum(axis=0)),
        lifetime=life,
        days=None if life is None else battery_days(world, life),
    )


def _device(world: World, name: str) -> int:
    """The place of a device by its id."""
    places: Mapping[str, int] = {one: k for k, one in enumerate(world.devices.ids)}
    if name not in places:
        raise InputError(f"--like {name}: no device has this id{suggest(name, places)}")
    return places[name]
