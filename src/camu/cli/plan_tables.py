"""What `camu plan` prints: units, costs of a round, labels, and how long batteries last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from camu.cli.answer_page import energy, span
from camu.cli.console import counted, fits, number_table, print_table

if TYPE_CHECKING:
    from camu.planning.batteries import Lifetime
    from camu.schemes import Plan
    from camu.schemes.camu_auto import LeverWorth
    from camu.simulation.dry_run import RoundCost
    from camu.world import World

_MOST_ROWS = 40
_MOST_MEMBERS = 8
_MOST_LEADERS = 5  # in a warning
_BAR_CHARACTERS = 20
_LONG = 1e5  # numbers from here on have an exponent
_MINUTES = 120.0  # seconds from here on are shown in larger units, too
_TENTH_KWH = 3.6e5
_LEGEND = (
    "W: distance of its labels to everyone's; theta: contribution; multi: may update repeatedly; "
    "N: local updates a round."
)


def show_plan(plan: Plan, world: World, cost: RoundCost, console: Console) -> None:
    """The plan as two tables: who the units are, and what a round costs each of them.

    Of many units it shows how their numbers are spread.
    """
    if len(plan.units) > _MOST_ROWS:
        print_table(_spread(plan), console)
        if plan.queues is not None:
            links = Counter(unit.link for unit in plan.units).most_common()
            shown = ", ".join(f"{number} {name}" for name, number in links)
            console.print(f"Units by link type: {shown}.")
        console.print("--json and --csv list every unit.")
    else:
        print_table(_who(plan, world), console)
        console.print()
        costs = _costs(plan)
        print_table(costs if fits(costs, console) else _costs(plan, bars=False), console)
        console.print(_LEGEND, style="dim")
    from camu.planning.carbon import JOULES_PER_KWH

    # What is radiated over the air depends on the updates.
    most = "at most " if plan.air or plan.gathers_together else ""
    console.print(
        f"\n{plan.scheme}: {counted(len(plan.units), 'unit')} of "
        f"{counted(world.devices.count, 'device')}. A round takes "
        f"{_long(cost.seconds)}, {most}{_large(cost.joules)} and {cost.megabytes:.3g} MB."
    )
    received = f", {cost.receive_joules:.3g} receiving" if cost.receive_joules else ""
    idle = f", {cost.idle_joules:.3g} idle" if cost.idle_joules else ""
    station = cost.base_station_joules
    console.print(
        f"Joules: {cost.compute_joules:.3g} computing, {cost.transmit_joules:.3g} sending"
        f"{received}{idle}." + (f" The base station spends {station:.3g} J." if station else "")
    )
    if cost.co2_grams is not None:
        kwh = cost.joules / JOULES_PER_KWH
        console.print(f"Carbon: {kwh:.3g} kWh and {cost.co2_grams:.3g} g of CO2 in a round.")
    if (every := world.config.run.every_seconds) is not None:
        console.print(_interval(every, plan, cost))
    console.print(_computing(world))
    console.print(_sending(world))
    if cost.rounds > 1:
        console.print(
            f"That is the mean of {cost.rounds} rounds without training, in which "
            f"{cost.units:.4g} of {counted(len(plan.units), 'unit')} are aggregated."
        )
    if cost.pilot_joules:
        console.print(
            f"Before the first round it tries things out for {cost.pilot_seconds:.4g} s and "
            f"{cost.pilot_joules:.4g} J."
        )
    if cost.guessed:
        console.print(
            f"{plan.scheme} decides by what training shows; here every loss is 1 and updates are "
            "zeros, so a run may cost something else."
        )
    if plan.dvfs != "none":
        full = plan.round_joules + plan.saved_joules
        console.print(
            f"Slow-down saves {plan.saved_joules:.3g} J ({plan.saved_joules / full:.0%}) of the "
            f"{full:.4g} J that a round costs at full speed; it takes no longer."
        )


def _interval(every: float, plan: Plan, cost: RoundCost) -> str:
    """A sentence on rounds at an interval."""
    began = f"Rounds begin every {cost.seconds:,.6g} s and work for {plan.round_seconds:.4g} s"
    if cost.seconds > every * 1.001 and plan.round_seconds > every:
        began += f", longer than run.every_seconds = {every:g}"
    return began + "; devices rest in between, which is part of the idle joules."


def _sending(world: World) -> str:
    """A sentence on what sending all data once would cost."""
    from camu.planning.central import send_data

    sent = send_data(world)
    bill, samples = sent.bill, int(world.devices.samples.sum())
    return (
        f"Sending all data once ({samples:,} samples of {sent.sample_bytes:.6g} bytes) would take "
        f"{_long(bill.seconds)}, {_large(bill.joules)} and {bill.megabytes:.3g} MB: "
        "see camu answer."
    )


def _long(seconds: float) -> str:
    """A time in seconds; a long one for people, too."""
    return f"{seconds:.4g} s" + (f" ({span(seconds)})" if seconds >= _MINUTES else "")


def _large(joules: float) -> str:
    """An energy in joules; a large one for people, too."""
    return f"{joules:.4g} J" + (f" ({energy(joules)})" if joules >= _TENTH_KWH else "")


def _computing(world: World) -> str:
    """A sentence on what a sample takes, and on the boards."""
    devices = world.devices
    cycles = sorted({f"{value:.4g}" for value in devices.cycles_per_sample.tolist()}, key=float)
    shown = cycles[0] if len(cycles) == 1 else f"{cycles[0]} to {cycles[-1]}"
    boards = Counter(name for name in devices.board if name).most_common()
    named = ", ".join(f"{number} {name}" for name, number in boards)
    return f"A sample takes {shown} cycles{f'; boards: {named}' if named else ''}."


def show_unsendable(plan: Plan, world: World, console: Console) -> None:
    """A sentence on each link type that can hardly send the model."""
    from camu.planning.link_words import unsendable

    for sentence in unsendable(plan, world):
        console.print("\n" + sentence.replace("; ", ";\n") + ".")


def _spread(plan: Plan) -> Table:
    """The smallest, the largest and three quantiles of each number, over all units."""
    import numpy as np

    units = plan.units
    numbers: dict[str, list[float]] = {
        "members": [len(unit.members) for unit in units],
        "samples": [unit.samples for unit in units],
        "W": [unit.wasserstein for unit in units],
        "theta": [unit.contribution for unit in units],
        "weight": [unit.weight for unit in units],
        "N": [unit.local_updates for unit in units],
        "power W": [unit.power_watts for unit in units],
        "compute s": [unit.compute_seconds + unit.dvfs_seconds for unit in units],
        "send s": [unit.transmit_seconds for unit in units],
        "wait s": [plan.idle_seconds(index) for index in range(len(units))],
        "J": [plan.unit_joules(index) for index in range(len(units))],
    }
    rows = []
    for name, values in numbers.items():
        shown = np.quantile(values, (0.0, 0.1, 0.5, 0.9, 1.0), method="nearest")
        rows.append([name, *(f"{value:.4g}" for value in shown.tolist())])
    names = ("of a unit", "smallest", "10 %", "median", "90 %", "largest")
    title = f"{len(units)} units, from the smallest number to the largest"
    return number_table(names, rows, title, text=names[:1])


def _who(plan: Plan, world: World) -> Table:
    from camu.world.link_types import SHANNON

    ids, regions = world.devices.ids, world.devices.regions
    typed = any(unit.link != SHANNON for unit in plan.units)  # all of one link type need no column
    rows = []
    for index, unit in enumerate(plan.units):
        more = len(unit.members) - _MOST_MEMBERS
        members = [ids[device] for device in unit.members[:_MOST_MEMBERS]]
        rows.append(
            (
                str(index),
                ", ".join(sorted({regions[device] for device in unit.members})),
                " ".join([*members, *([f"+{more}"] if more > 0 else [])]),
                ids[unit.leader],
                *([unit.link] if typed else []),
                f"{unit.samples:,}",
                f"{unit.wasserstein:.2f}",
                f"{unit.contribution:.4g}",
                "yes" if unit.multi_update else "no",
                f"{unit.weight:.4f}",
            )
        )
    text = ("unit", "where", "members", "leader", *(["link"] if typed else []))
    names = (*text, "samples", "W", "theta", "multi", "weight")
    return number_table(names, rows, "Units", text)


def _costs(plan: Plan, bars: bool = True) -> Table:
    names = ["unit", "N", "power W", "compute s", "send s", "wait s", "J"]
    table = number_table(names, title="A round")
    if bars:
        table.add_column(_parts("compute ", "send ", "wait"), no_wrap=True)
    for index, unit in enumerate(plan.units):
        compute, send = unit.compute_seconds + unit.dvfs_seconds, unit.transmit_seconds
        numbers = (compute, send, plan.idle_seconds(index), plan.unit_joules(index))
        table.add_row(
            str(index),
            str(unit.local_updates),
            f"{unit.power_watts:.3g}",
            *(f"{n:.3f}" if n < _LONG else f"{n:.4g}" for n in numbers),
            *([_bar(compute, send, plan.round_seconds)] if bars else []),
        )
    return table


def _bar(compute: float, send: float, total: float) -> Text:
    first = round(_BAR_CHARACTERS * compute / total)
    second = min(max(1, round(_BAR_CHARACTERS * send / total)), _BAR_CHARACTERS - first)
    return _parts("█" * first, "▓" * second, "░" * (_BAR_CHARACTERS - first - second))


def _parts(compute: str, send: str, wait: str) -> Text:
    return Text.assemble((compute, "blue"), (send, "yellow"), (wait, "dim"))


def show_bias(bias: dict[str, Any], console: Console) -> None:
    """What the model is trained on: label shares by weights and updates, and everyone's."""
    shown = [" ".join(f"{100 * share:.1f}" for share in bias[n]) for n in ("everyone", "trained")]
    console.print("\nLabels in %, by unit weight and number of steps", style="bold")
    console.print(f"  everyone's  {shown[0]}\n  trained on  {shown[1]}")
    console.print(
        f"Distance to everyone's {bias['distance']:.3f} (total variation); by weights alone "
        f"{bias['distance_of_weights']:.3f}."
    )
    if "distance_without_gate" in bias:
        without, here = bias["distance_without_gate"], bias["distance"]
        words = "more" if here > without else "less" if here < without else "neither more nor less"
        console.print(
            f"Without the gate it would be {without:.3f}: the gate makes the training {words} "
            "lopsided."
        )
    if bias["size_rank"] is not None:
        console.print(
            f"Rank correlation of contribution and samples: {bias['size_rank']:.2f} (Spearman)."
        )


def show_levers(levers: Sequence[LeverWorth], console: Console) -> None:
    """Each lever, where it stands, and what of the predicted progress is lost without it."""
    rows = [(one.lever, one.choice, f"{100 * one.lost:.1f}") for one in levers]
    names = ("lever", "choice", "% lost without it")
    console.print()
    print_table(number_table(names, rows, "Why: what each lever is worth", names[:2]), console)
    console.print(
        "Predicted progress within the budget, before the pilot; without a lever the others are "
        "chosen anew. A run measures its constants first, and may choose other values.",
        style="dim",
    )


def leaders_that_end(found: Lifetime, plan: Plan, world: World) -> str | None:
    """A sentence if leaders cannot finish the configured rounds; with turns, nobody is a leader."""
    rounds = world.config.run.rounds
    if world.config.clustering.leader == "rotating":
        return None
    short = sorted(
        (int(found.empty_round[unit.leader]), index, world.devices.ids[unit.leader])
        for index, unit in enumerate(plan.units)
        if 0 <= found.empty_round[unit.leader] < rounds
    )
    if not short:
        return None
    shown = [f"{name} of unit {index} (round {at})" for at, index, name in short[:_MOST_LEADERS]]
    more = f" and {len(short) - _MOST_LEADERS} more" if len(short) > _MOST_LEADERS else ""
    plural, verb = ("", "is") if len(short) == 1 else ("s", "are")
    return (
        f"the leader{plural} {', '.join(shown)}{more} {verb} empty before the {rounds} rounds of "
        "run.rounds are done; clustering.leader=rotating shares the load"
    )


def show_lifetime(found: Lifetime, plan: Plan, world: World, console: Console) -> None:
    """When the first, the median and the last device is empty, and what leaders carry."""
    from camu.planning.battery_days import battery_days

    ids, days = world.devices.ids, battery_days(world, found)
    rows: list[tuple[str, ...]] = []
    # Those that are not empty within the forecast follow by their days.
    order = days.days_with_learning.argsort(kind="stable")[: int(found.battery.sum())].tolist()
    places = (0, (len(order) - 1) // 2, len(order) - 1)
    for (name, known), place in zip(found.milestones().items(), places, strict=True):
        device = order[place] if known is None else known
        rounds = f"not within {found.rounds}" if known is None else str(found.empty_round[device])
        numbers = (days.days_with_learning[device], days.days_without_learning[device])
        share = f"{100 * days.learning_share[device]:.3g}"
        rows.append((name, ids[device], rounds, *map(_days, numbers), share))
    names = ("empty", "device", "rounds", "days", "without learning", "learning %")
    console.print()
    print_table(number_table(names, rows, "Batteries", text=names[:2]), console)
    console.print()
    print_table(_leaders(found, plan, world), console)
    console.print(
        f"\nJain's fairness of the joules per device: {found.fairness:.3f} (1: all pay the same)."
    )


def _days(number: float) -> str:
    return "never" if math.isinf(number) else f"{number:.3g}"


def _leaders(found: Lifetime, plan: Plan, world: World) -> Table:
    """The share of each leader, the largest first."""
    order = sorted(range(len(plan.units)), key=lambda u: -found.share[plan.units[u].leader])
    rows = []
    for index in order[:_MOST_ROWS]:
        leader = plan.units[index].leader
        end, share = int(found.empty_round[leader]), f"{100 * found.share[leader]:.1f}"
        left = counted(end, "round") if end >= 0 else ""
        rows.append((world.devices.ids[leader], str(index), share, left))
    many = len(order) > _MOST_ROWS
    title = f"The {_MOST_ROWS} leaders that carry most" if many else "Leaders"
    names = ("leader", "unit", "% of the energy", "empty after")
    return number_table(names, rows, title, text=names[:1])
