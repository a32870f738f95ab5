"""The plan that runs: a scheme's own, with first leaders and CPU frequencies; and saved plans."""

from pathlib import Path
from typing import Any

import numpy as np

from camu.allocation.p1 import Problem
from camu.config import Config
from camu.errors import InputError
from camu.files import read_json, read_text
from camu.planning.cells import refuse_cells
from camu.planning.codecs import Raw
from camu.planning.groups import Groups, assess
from camu.planning.rotation import rotated
from camu.planning.secure_words import check_secure
from camu.plugins import is_plugin, user_code
from camu.schemes.camu_joint import CamuJoint
from camu.schemes.contract import Plan, Scheme, World, waits_for_all
from camu.schemes.registry import make_scheme
from camu.sealed import read_sealed_json
from camu.world import build_world, with_data

_WANTED = "the output of `camu plan --json`, or a run directory"


def plan(scheme: Scheme, world: World) -> Plan:
    """The plan with which a run of this scheme starts.

    The method `plan` of a scheme is a hook: it knows neither `clustering.leader = "rotating"` nor
    `fleet.dvfs`. This function calls it and applies both. `simulate`, the command line, the live
    page and a deployment start with its answer.

    Parameters:
        scheme: the scheme.
        world: the fleet.

    Returns:
        The plan, with the seconds and joules of every unit.
    """
    with user_code(f"scheme {scheme.name}", scheme):
        made: Any = scheme.plan(world)
    if not isinstance(made, Plan):
        found = "None" if made is None else f"a value of type {type(made).__name__}"
        raise InputError(
            f"scheme {scheme.name}: plan() returned {found}; it must return a Plan, for example "
            "from make_plan(...)"
        )
    _check_uplink(scheme, made, world)
    _check_air(scheme, made, world)
    check_secure(scheme.name, made, world)
    # A plan may hold units that were changed after make_plan; their costs must follow.
    priced = _first_leaders(made, world).repriced(world)
    return priced.with_dvfs(world, waits_for_all(scheme)) if world.config.fleet.dvfs else priced


def _check_uplink(scheme: Scheme, plan: Plan, world: World) -> None:
    """Refuse a codec where no bits are sent."""
    coded = any(type(unit.codec) is not Raw for unit in plan.units)
    if world.config.radio.uplink == "analog" and coded:
        raise InputError(
            f'scheme {scheme.name}: its updates are encoded, and radio.uplink = "analog" sends no '
            "bits; set radio.uplink to digital or packet, or take another scheme"
        )


def _check_air(scheme: Scheme, plan: Plan, world: World) -> None:
    """Refuse what has no meaning where all units transmit at once."""
    if world.links.types is not None and (plan.air or plan.gathers_together):
        raise InputError(
            f"scheme {scheme.name}: its devices transmit at once with one modulation, which radios "
            "of other link types do not have; leave out radio.link and the column link of the fleet"
        )
    if plan.air is None:
        return
    config, name = world.config, f"scheme {scheme.name}: its units transmit at once"
    if not waits_for_all(scheme):
        raise InputError(f"{name}, so a method ready or deadline has no meaning; leave it out")
    if scheme.uses_oracle:
        raise InputError(f"{name}, so no model of a single unit is received; unset uses_oracle")
    if config.scheme.aggregation != "mean":
        raise InputError(
            f'{name} and the server receives their sum, so scheme.aggregation = "'
            f'{config.scheme.aggregation}" is impossible; set it to mean'
        )
    if config.radio.uplink == "packet" or is_plugin(config.radio.uplink):
        raise InputError(
            f'{name} and radio.uplink = "{config.radio.uplink}" is for updates that are sent one '
            "by one; set it to digital"
        )
    refuse_cells(world, f"{name} to one receiver")
    if plan.air.combines and not config.radio.knows_channels:
        raise InputError(
            f"{name} and antennas are combined, which needs the channels; unset "
            "radio.pilot_symbols and radio.csi_correlation"
        )
    if config.radio.outage_snr_db is not None:
        raise InputError(f"{name}, and no single uplink can fail; unset radio.outage_snr_db")


def _first_leaders(plan: Plan, world: World) -> Plan:
    """The plan with the leaders that begin where leaders take turns."""
    if world.config.clustering.leader != "rotating":
        return plan
    battery = world.devices.battery_joules
    charge = np.where(np.isnan(battery), np.inf, battery)
    return rotated(plan, world, charge, np.zeros(len(battery)), np.zeros(len(battery), dtype=bool))


def joint_of(config: Config) -> CamuJoint:
    """The scheme `camu-joint` with those of the configured parameters that it has."""
    scheme = make_scheme(config, CamuJoint.name)
    assert isinstance(scheme, CamuJoint)
    return scheme


def problem_of_groups(groups: Groups) -> Problem:
    """P1 as `camu-joint` states it for these groups, with the configured scheme's threshold."""
    return joint_of(groups.world.config).problem(groups)


def groups_of_plan(path: Path, with_samples: bool = False) -> tuple[Plan, Groups]:
    """A saved plan, and its units as groups in the world that it was made for.

    The world has training data only `with_samples`.
    """
    document, file = _read(path)
    plan = Plan.from_dict(document, str(file))
    config = _config(document, file)
    try:
        counts = np.array([device["label_counts"] for device in document["devices"]], np.int64)
        if counts.ndim != 2 or counts.min() < 0 or not counts.sum(axis=1).all():
            raise ValueError("label_counts are not whole numbers from 0, some above 0")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{file}, key devices: {error}; give {_WANTED}") from None
    changed = f"{file}: the fleet has changed since this plan was made; plan it again"
    try:
        known = None if with_samples else counts
        world = build_world(config, plan.seed, known)
        world = with_data(world) if with_samples else world
    except ValueError:  # another number of devices
        raise InputError(changed) from None
    names = [str(device["id"]) for device in document["devices"]]
    if names != list(world.devices.ids):
        raise InputError(changed)
    if plan.air or plan.gathers_together:
        raise InputError(
            f"{file}: devices of {plan.scheme} transmit at once, and the problems are about those "
            "that send in turn or on bands of their own; plan another scheme"
        )
    members = [unit.members for unit in plan.units]
    return plan, assess(world, members, [unit.leader for unit in plan.units])


def config_of_plan(path: Path) -> Config:
    """The configuration that a saved plan was made with."""
    return _config(*_read(path))


def _read(path: Path) -> tuple[dict[str, Any], Path]:
    """The document of a saved plan, and its file."""
    file = path / "plan.json" if path.is_dir() else path
    document: Any
    if path.is_dir():  # a run's own plan carries a digest
        document = read_sealed_json(file, _WANTED, "plan or run it again")
    else:
        document = read_json(file, _WANTED)
    return document if isinstance(document, dict) else {}, file


def _config(document: dict[str, Any], file: Path) -> Config:
    text = document.get("config_toml")
    if isinstance(text, str):
        return Config.from_saved(text, f"{file}, key config_toml")
    if (saved := file.parent / "config.toml").exists():
        return Config.from_saved(read_text(saved, "a saved configuration"), str(saved))
    raise InputError(f"{file}, key config_toml: is missing; give {_WANTED}")
