"""How `camu plan` shows batteries: when devices are empty, and who carries the energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from camu.cli.console import counted, print_table

if TYPE_CHECKING:
    from camu.planning.lifetime import Lifetime
    from camu.schemes import Plan
    from camu.world import World

_MOST_LEADERS = 40
_MOST_NAMES = 5


def lifetime_of(plan: Plan, world: World) -> Lifetime | None:
    """The forecast of a fleet's batteries; None if all devices are on mains power."""
    import numpy as np

    from camu.planning.lifetime import forecast_lifetime

    if np.isnan(world.devices.battery_joules).all():
        return None
    return forecast_lifetime(plan, world, world.config.run.rounds)


def leaders_that_end(found: Lifetime, plan: Plan, world: World) -> list[str]:
    """A sentence if leaders cannot finish the configured rounds; with turns, nobody is a leader."""
    clustering, rounds = world.config.clustering, world.config.run.rounds
    if clustering.leader == "rotating":
        return []
    short = [
        (int(found.empty_round[unit.leader]), index, world.devices.ids[unit.leader])
        for index, unit in enumerate(plan.units)
        if 0 <= found.empty_round[unit.leader] < rounds
    ]
    if not short:
        return []
    shown = [f"{name} of unit {index} (round {at})" for at, index, name in sorted(short)]
    more = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    one = len(shown) == 1
    return [
        f"the leader{'' if one else 's'} {', '.join(shown[:_MOST_NAMES])}{more} "
        f"{'is' if one else 'are'} empty before the {rounds} rounds of run.rounds are done; "
        "clustering.leader=rotating shares the load"
    ]


def show_lifetime(found: Lifetime, plan: Plan, world: World, console: Console) -> None:
    """When the first, the median and the last device is empty, and what leaders carry."""
    ids = world.devices.ids
    table = Table(title="Batteries", title_justify="left", box=None, header_style="bold")
    for name in ("empty", "device"):
        table.add_column(name)
    for name in ("rounds", "hours"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, device in found.milestones().items():
        if device is None:
            table.add_row(name, "none", f"not within {found.rounds}", "")
            continue
        hours = found.empty_seconds[device] / 3600
        table.add_row(name, ids[device], f"{found.empty_round[device]}", f"{hours:.4g}")
    console.print()
    print_table(table, console)
    console.print()
    print_table(_leaders(found, plan, world), console)
    console.print(
        f"\nJain's fairness of the joules per device: {found.fairness:.3f} (1: all pay the same). "
        "Forecast without fading and faults.",
        highlight=False,
        soft_wrap=True,
    )


def _leaders(found: Lifetime, plan: Plan, world: World) -> Table:
    """The share of each leader, the largest first."""
    share, most = found.share, min(len(plan.units), _MOST_LEADERS)
    order = sorted(range(len(plan.units)), key=lambda u: -share[plan.units[u].leader])
    title = "Leaders" if most == len(plan.units) else f"The {most} leaders that carry most"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("leader")
    for name in ("unit", "% of the energy", "empty after"):
        table.add_column(name, justify="right", no_wrap=True)
    for index in order[:most]:
        leader = plan.units[index].leader
        end = int(found.empty_round[leader])
        table.add_row(
            world.devices.ids[leader],
            str(index),
            f"{100 * share[leader]:.1f}",
            counted(end, "round") if end >= 0 else "",
        )
    return table
