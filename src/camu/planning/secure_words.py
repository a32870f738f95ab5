"""Whom secure sums hide, and plans in which they would hide nobody."""

from __future__ import annotations

from camu.errors import InputError
from camu.planning.plan import Plan
from camu.planning.secure import FEWEST
from camu.world import World


def check_secure(name: str, plan: Plan, world: World) -> None:
    """Refuse a scheme whose units have no sum that could hide anything."""
    if world.config.training.secure_sum == "none":
        return
    key = f"scheme {name}: training.secure_sum = {world.config.training.secure_sum}"
    if plan.gathers_together:
        raise InputError(
            f"{key}: members transmit to their leader at once, and a signal on the air has no "
            "masks; leave it out, or choose a scheme whose members send bits"
        )
    if all(len(unit.members) < FEWEST for unit in plan.units):
        raise InputError(
            f"{key}: no unit has {FEWEST} members, and fewer have no sum that hides them; leave "
            "it out, or choose a scheme with clusters"
        )


def not_hidden(plan: Plan, world: World) -> list[str]:
    """A sentence on the devices that no secure sum hides, if it is asked for."""
    small = [unit.members for unit in plan.units if len(unit.members) < FEWEST]
    if world.config.training.secure_sum == "none" or not small:
        return []
    devices = sum(len(members) for members in small)
    whole = sum(len(unit.members) for unit in plan.units)
    return [
        f"training.secure_sum hides nothing of {devices} of {whole} devices: their {len(small)} "
        f"units have fewer than {FEWEST} members (clustering.count sets how many units there are)"
    ]
