"""Dry runs: the real loop with a trainer that returns empty updates, to know costs beforehand.

Who starts, what it costs, when it arrives and whose battery is empty is what a run would find; only
the arithmetic of training is missing. A scheme that decides by what training shows, such as losses,
is answered with a neutral loss of 1 and updates of zeros, and the forecast says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from camu.arrays import Float64
from camu.learning.configured import model_layout
from camu.planning.batteries import Lifetime
from camu.planning.plan import Plan
from camu.schemes import plans
from camu.schemes.contract import Scheme
from camu.seeding import derive
from camu.simulation.attendance import next_multiple
from camu.simulation.dry_trainer import DryTrainer
from camu.simulation.history import History
from camu.simulation.hooks import overrides
from camu.simulation.ledger import Ledger
from camu.simulation.loop import Loop
from camu.simulation.run import Run
from camu.world import World

MOST_ROUNDS = 100  # of a forecast of round costs
MOST_UNIT_ROUNDS = 20_000  # fewer rounds where there are more units
_STRETCHES = 60  # of rounds in which batteries run down, where rounds differ
_WINDOW = 20  # rounds before each of these stretches
_MOST_STRETCHES = 5000
_TURNS = 50  # of leaders, before the first device is empty; more are taken together
_LATER_TURNS = 5  # from one empty device to the next
EXACT_DEVICES = 1000  # of more devices, several may become empty in one step


def dry_run(world: World, scheme: Scheme, rounds: int | None = None) -> History:
    """The history that a run would have, without training: seconds, joules, bits, units, faults.

    Parameters:
        world: the fleet.
        scheme: the scheme.
        rounds: how many rounds at most; by default until the run would end.

    Returns:
        The history; its records have no accuracy. It is the run's own, except for a scheme that
        decides by what training shows, and for updates that would be refused for their size.
    """
    return _DryRun(world, scheme, plans.plan(scheme, world)).history(rounds)


class _DryRun:
    """A run without training, round by round."""

    def __init__(
        self,
        world: World,
        scheme: Scheme,
        plan: Plan,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.world, self.scheme = world, scheme
        self.trainer = DryTrainer(model_layout(world.config), generator)
        self.run = Run.new(world, plan, self.trainer.initial)
        self.loop = Loop(self.run, scheme, self.trainer)
        self.trainer.keeps_arrays = not self.loop.takes_mean or overrides(scheme, "pilot")
        self.loop.begin()

    def history(self, rounds: int | None = None) -> History:
        """What happens in so many rounds, or until the run ends."""
        run = self.run
        run.check_budgets(run.records[-1])
        while run.stopped is None and (rounds is None or run.round < rounds):
            run.check_budgets(self.loop.round())
        history = run.history()
        records = (
            replace(record, accuracy=None, loss=None, metrics={}, average_score=None)
            for record in history.records
        )
        return replace(history, records=tuple(records))


def check_trace(world: World, scheme: Scheme, plan: Plan) -> None:
    """Refuse a trace of places that ends before the run does, as far as a dry run can tell."""
    if world.movement is not None and math.isfinite(world.movement.end_seconds):
        _DryRun(world, scheme, plan).history()


@dataclass(frozen=True)
class RoundCost:
    """What a round costs on average."""

    rounds: int  # of the dry run
    seconds: float  # of virtual time
    joules: float  # of all devices, the sum of the next four
    compute_joules: float
    transmit_joules: float
    receive_joules: float
    idle_joules: float
    base_station_joules: float
    uplink_bits: float  # from leaders to the base station
    downlink_bits: float  # that the base station broadcasts
    gather_bits: float  # from members to their leaders
    units: float  # updates that are aggregated
    pilot_seconds: float  # before the first round
    pilot_joules: float  # before the first round
    guessed: bool  # the scheme decides by what training shows, so that a run may differ
    co2_grams: float | None = None  # of all devices; None: nothing is known of carbon

    @property
    def megabytes(self) -> float:
        """All that is sent in a round."""
        return (self.uplink_bits + self.downlink_bits + self.gather_bits) / 8e6


def round_cost(
    world: World, scheme: Scheme, plan: Plan, most_rounds: int = MOST_ROUNDS
) -> RoundCost:
    """What a round of this plan costs on average, by a dry run of its first rounds.

    Parameters:
        world: the fleet.
        scheme: the scheme.
        plan: its plan, as `camu.plan` makes it.
        most_rounds: how many rounds to take at most.

    Returns:
        Means over the first rounds of a run, or one round where all are alike.
    """
    rounds = 1
    if not _all_alike(world, scheme) or world.config.clustering.leader == "rotating":
        rounds = max(10, min(most_rounds, MOST_UNIT_ROUNDS // len(plan.units)))
    # With an interval a round lasts until the next one begins, so the first one only begins.
    history = _DryRun(world, scheme, plan).history(rounds + _leading(world))
    guessed = overrides(scheme, "pilot") or scheme.uses_oracle
    if _chooses(scheme) and not guessed:
        generator = derive(0, "dry-run").numpy()
        other = _DryRun(world, scheme, plan, generator).history(rounds + _leading(world))
        guessed = _costs(history) != _costs(other)
    before, last = history.records[0], history.final
    skipped = _leading(world) if last.round > 1 else 0
    first, counted = history.records[skipped], history.records[skipped + 1 :]
    count = max(1, len(counted))

    grams = replace(history, records=(first, *counted)).co2_grams(world.config)
    assert first.bits is not None
    assert last.bits is not None
    joules = {f"{k}_joules": (last.joules[k] - first.joules[k]) / count for k in last.joules}
    bits = {f"{k}_bits": (last.bits[k] - first.bits[k]) / count for k in last.bits}
    return RoundCost(
        rounds=len(counted),
        seconds=(last.virtual_seconds - first.virtual_seconds) / count,
        joules=(last.total_joules - first.total_joules) / count,
        **joules,
        **bits,
        units=sum(record.units for record in counted) / count,
        pilot_seconds=before.virtual_seconds,
        pilot_joules=before.total_joules,
        guessed=guessed,
        co2_grams=None if grams is None else grams / count,
    )


def _leading(world: World) -> int:
    """Rounds at the start of a run that are not like later ones."""
    return int(world.config.run.every_seconds is not None)


def _costs(history: History) -> list[tuple[float, float]]:
    return [(record.virtual_seconds, record.total_joules) for record in history.records]


def _chooses(scheme: Scheme) -> bool:
    """Whether a scheme chooses more than its first plan."""
    hooks = ("pilot", "select", "ready", "deadline", "revise", "finished")
    return any(overrides(scheme, hook) for hook in hooks)


def _all_alike(world: World, scheme: Scheme) -> bool:
    """Whether rounds differ only where a battery is empty, or where another device leads."""
    config, faults = world.config, world.config.faults
    return not (
        _chooses(scheme)
        or config.radio.fading != "none"
        or config.radio.outage_snr_db is not None
        or config.radio.uplink == "packet"
        or world.movement is not None
        or config.clustering.replan_every is not None
        or faults != type(faults)()
    )


def first_round(world: World, scheme: Scheme, plan: Plan) -> tuple[Float64, float]:
    """What the first round costs each device (K,) where all can pay for it, and its seconds.

    With an interval it is the second one, from the end of the first: that is from start to start.
    """
    mains = np.full(world.devices.count, np.nan)
    dry = _DryRun(world.with_devices(battery_joules=mains), scheme, plan)
    for _ in range(_leading(world)):
        dry.loop.round()
    spent, began = dry.run.device_joules, dry.run.clock.now_seconds
    dry.loop.round()
    return dry.run.device_joules - spent, dry.run.clock.now_seconds - began


def battery_life(world: World, scheme: Scheme, plan: Plan) -> Lifetime:
    """When the batteries of a fleet are empty, by a dry run.

    Rounds that are all alike are taken in one step until the next device is empty, so that the
    forecast is exact; of more than 1000 devices, several leave in a step. Leaders in turn are exact
    where a device is empty within 50 turns; more turns are taken together. Where rounds differ,
    the first 100 are taken one by one, and later ones in stretches that cost what 20 of them cost.

    Parameters:
        world: the fleet.
        scheme: the scheme.
        plan: its plan, as `camu.plan` makes it.

    Returns:
        The forecast. Where a device harvests, it covers `run.rounds` rounds; otherwise it goes on
        until all batteries are empty.
    """
    return _Batteries(world, scheme, plan).lifetime()


class _Batteries(_DryRun):
    """A dry run until batteries are empty."""

    def __init__(self, world: World, scheme: Scheme, plan: Plan) -> None:
        super().__init__(world, scheme, plan)
        clustering = world.config.clustering
        self.turn = clustering.rotate_every if clustering.leader == "rotating" else 0
        self.alike = _all_alike(world, scheme) and self.turn != 1
        self.batteries = self.run.batteries
        self.battery = np.isfinite(self.batteries.capacity_joules)
        self.empty_seconds = np.full(world.devices.count, np.nan)
        self.began = 0.0  # when the last round did

    def lifetime(self) -> Lifetime:
        """Take rounds until all batteries are empty, or until nothing changes any more."""
        run, config = self.run, self.world.config
        first = 1 if self.alike else max(1, min(MOST_ROUNDS, config.run.rounds))
        self.go(_leading(self.world))
        mean, length = self.measure(first)
        length = length or run.plan.round_seconds  # nobody can pay for a round
        self.go(config.run.rounds - run.round if self.batteries.harvesting else 0)
        for _ in range(0 if self.batteries.harvesting else _MOST_STRETCHES):
            each, seconds = self.measure(1 if self.alike else _WINDOW)
            if run.stopped or not self.skip(each, seconds):
                break
        empty = self.batteries.empty_round
        return Lifetime(run.round, empty, self.empty_seconds, self.battery, mean, length)

    def measure(self, rounds: int) -> tuple[Float64, float]:
        """The joules of each device (K,) and the seconds of the next rounds, on average."""
        run = self.run
        spent, first, seconds = run.device_joules, run.round, run.clock.now_seconds
        began = self.began
        self.go(rounds)
        count = max(1, run.round - first)
        # With an interval rounds may last for another time and begin as often as before.
        length = self.began - began if _leading(self.world) else run.clock.now_seconds - seconds
        return (run.device_joules - spent) / count, length / count

    def go(self, rounds: int) -> None:
        """Take rounds one by one."""
        run = self.run
        for _ in range(rounds):
            if run.stopped is not None:
                return
            seconds, known = self.rests_until(), self.batteries.empty_round >= 0
            self.began = self.begin()
            self.loop.round()
            run.records.clear()
            new = (self.batteries.empty_round >= 0) & ~known
            self.empty_seconds[new] = np.fmin(self.empty_seconds, seconds)[new]

    def rests_until(self) -> Float64:
        """When each device (K,) is empty, if that is before it is needed; with harvest, then."""
        run, watts = self.run, self.world.devices.resting_watts
        now = run.clock.now_seconds
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts = np.where(watts > 0, self.batteries.charge_joules / watts, np.inf)
        if self.batteries.harvesting:
            lasts[:] = np.inf
        return np.asarray(np.minimum(now + lasts, self.begin()))

    def begin(self) -> float:
        """When the next round begins."""
        return next_multiple(self.run.clock.now_seconds, self.world.config.run.every_seconds)

    def skip(self, joules: Float64, seconds: float) -> bool:
        """Take as many rounds at once as all can pay for; False if nothing changes any more."""
        run, batteries = self.run, self.batteries
        pays = self.battery & ~batteries.gone & (joules > 0)
        if not pays.any():
            return False
        able = np.floor(batteries.charge_joules[pays] / joules[pays])
        rounds = self.stretch(able)
        if rounds < 1:
            return True
        devices = np.flatnonzero(pays)
        own = np.minimum(able, rounds)
        paid = Ledger.new(len(joules))
        paid.devices[0, devices] = own * joules[devices]
        run.ledger.add(paid)
        batteries.draw(devices, own * joules[devices])
        short = own < rounds
        batteries.empty[devices[short]] = True
        batteries.mark(devices[short], run.round + own[short].astype(np.int64))
        self.empty_seconds[devices[short]] = run.clock.now_seconds + own[short] * seconds
        every, passed = self.world.config.run.every_seconds, rounds * seconds
        run.clock.skip(passed if every is None else round(passed / every) * every)
        batteries.harvest_until(run.clock.now_seconds)  # what devices drew meanwhile is paid
        run.round += rounds
        self.loop.rotate()
        return True

    def stretch(self, able: Float64) -> int:
        """How many rounds to take at once, where devices can pay for so many."""
        count = self.world.devices.count
        exact = self.alike and count <= EXACT_DEVICES
        together = 1 if exact else -(-count // _STRETCHES)
        rounds = int(np.sort(able)[min(together, len(able)) - 1]) - 1
        if not self.turn:
            return rounds
        if not self.alike:
            return rounds // 8  # so that leaders change often enough
        if self.run.round % self.turn == 0:
            return 0  # other devices lead from now on
        most = _TURNS if (self.batteries.empty_round < 0).all() else _LATER_TURNS
        turns = max(1, rounds // (self.turn * most))
        return min(rounds, turns * self.turn - self.run.round % self.turn)
