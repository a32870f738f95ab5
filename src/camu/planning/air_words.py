"""Words on keys of over-the-air aggregation that change nothing in a plan."""

from __future__ import annotations

from camu.planning.plan import Plan
from camu.world import World


def unused_errors(plan: Plan, world: World) -> list[str]:
    """A sentence where errors of phase or time are set, and no devices transmit at once."""
    if plan.air is not None or plan.gathers_together:
        return []
    radio, names = world.config.radio, ("phase_error_rad", "time_offset_symbols")
    return [
        f"radio.{name} = {getattr(radio, name):g} has no effect on schemes whose devices do not "
        "transmit at once (family over the air)"
        for name in names
        if getattr(radio, name)
    ]
