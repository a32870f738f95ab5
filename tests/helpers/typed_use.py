"""A program of a user, which `mypy --strict` checks with the package's types."""

from dataclasses import dataclass

import camu


@dataclass(frozen=True)
class Equal(camu.Scheme):
    """Every device counts the same."""

    def plan(self, world: camu.World) -> camu.Plan:
        """One unit per device."""
        devices = camu.single_devices(world)
        return camu.make_plan(self, devices, [1 / len(devices)] * len(devices))


def score(preset: str) -> float:
    """The last score of two schemes together."""
    world: camu.World = camu.build_world(camu.load_config(preset=preset))
    results: list[camu.Result] = [
        camu.simulate(world, camu.schemes.Camu()),
        camu.simulate(world, Equal()),
    ]
    plan: camu.Plan = results[0].plan
    units: tuple[camu.Unit, ...] = plan.units
    assert len(units) > 0
    return max(result.history.final_score for result in results)
