"""What a report shows, as plain rows: a scene per world, with its schemes' curves and plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from camu.config import Config
from camu.report import device_rows, rows
from camu.report.frontier import COSTS, frontier_rows
from camu.report.groups import Group
from camu.report.placeholders import AXES
from camu.report.rows import Rows, curve_rows, energy_rows
from camu.report.runs import SavedRun
from camu.simulation.ledger import DeviceEnergy
from camu.world import Links


@dataclass(frozen=True)
class PlanView:
    """The plan of one scheme in one world, that of its first seed."""

    text: str
    tables: dict[str, Rows]


@dataclass(frozen=True)
class Scene:
    """One world: all schemes that ran in it."""

    dataset: str
    setting: str
    groups: tuple[Group, ...]
    curves: dict[str, Rows]  # by axis
    energy: Rows
    alive: Rows
    frontier: dict[str, Rows]  # by cost
    plans: dict[str, PlanView]  # by label


def scenes_of(groups: Sequence[Group]) -> list[Scene]:
    """The scenes of these groups, in their order."""
    places: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        places.setdefault((group.dataset, group.setting), []).append(group)
    matrices: dict[str, Rows] = {}
    return [
        Scene(
            dataset=dataset,
            setting=setting,
            groups=tuple(own),
            curves={axis: curve_rows(own, axis) for axis in AXES},
            energy=energy_rows(own),
            alive=device_rows.alive_rows(own),
            frontier={cost: frontier_rows(own, cost) for cost in COSTS if len(own) > 1},
            plans={group.label: _plan_view(group.counted[0], matrices) for group in own},
        )
        for (dataset, setting), own in places.items()
    ]


def _plan_view(run: SavedRun, matrices: dict[str, Rows]) -> PlanView:
    config, plan = run.config, run.plan
    key = f"{config.fleet!r} {config.radio!r} {run.seed}"
    if len(plan["devices"]) > rows.LARGEST_MAP:  # then the matrix depends on the plan
        key += plan["scheme"]
    links = rows.links_of(config, plan)
    if key not in matrices:
        matrices[key] = [] if links is None else rows.snr_rows(plan, links)
    tables: dict[str, Rows] = {
        **rows.plan_rows(plan, _stations(config, links), links),
        "threshold": rows.threshold_rows(config, plan),
        "snr": matrices[key],
        "ppo": [] if run.ppo is None else rows.ppo_rows(run.ppo),
        "spending": device_rows.spending_rows(run.devices, plan),
    }
    tables["devices"] = device_rows.with_batteries(tables["devices"], run.devices, plan)
    return PlanView(_sentence(plan, run.seed, links is not None, run.devices), tables)


def _stations(config: Config, links: Links | None) -> Sequence[Sequence[float]]:
    if links is None or links.stations is None:
        return [config.fleet.base_station]
    return cast(list[list[float]], links.stations.tolist())


def _sentence(plan: dict[str, Any], seed: int, linked: bool, spent: DeviceEnergy | None) -> str:
    units, devices = plan["units"], plan["devices"]
    repeated = sum(unit["local_updates"] > 1 for unit in units)
    clusters = "1 cluster" if len(units) == 1 else f"{len(units)} clusters"
    text = (
        f"{clusters} of {len(devices)} devices (seed {seed}). A round takes "
        f"{plan['round_seconds']:.3g} virtual seconds and {plan['round_joules']:.3g} J; "
        f"{repeated or 'no'} cluster{'' if repeated == 1 else 's'} with more than one local update."
    )
    if spent is not None and (empty := int((spent.empty_round >= 0).sum())):
        text += f" At the end of the run {empty} of {len(devices)} devices had been empty."
    if len(units) > rows.LARGEST_BARS:
        text += f" Charts per cluster show {rows.LARGEST_BARS} clusters at equal steps."
    if len(devices) > rows.LARGEST_MATRIX:
        text += f" The SNR matrix shows {rows.LARGEST_MATRIX} devices."
    if len(devices) > rows.LARGEST_MAP:
        text += f" The map shows the devices of every n-th cluster, about {rows.LARGEST_MAP}."
    if not linked:
        text += " SNR is left out: the links cannot be rebuilt from the run's configuration."
    return text
