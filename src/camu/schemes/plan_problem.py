"""Problem P1 of a plan that was made before: of a file by `camu plan --json`, or of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from camu.allocation.problem import Problem
from camu.config import Config, load_config
from camu.errors import InputError
from camu.files import read_json
from camu.planning.groups import Groups, assess
from camu.planning.plan import Plan
from camu.schemes.joint import CamuJoint
from camu.sealed import read_sealed_json
from camu.world import build_world, with_data

_WANTED = "the output of `camu plan --json`, or a run directory"


def problem_of_groups(groups: Groups) -> Problem:
    """P1 as `camu-joint` states it for these groups, with the configured scheme's threshold."""
    scheme = groups.world.config.scheme
    joint = CamuJoint(scheme.threshold, scheme.threshold_quantile, scheme.max_extra_updates)
    return joint.problem(groups)


def problem_of_plan(path: Path) -> Problem:
    """P1 of the units of a saved plan, with their members and leaders as they are there."""
    return problem_of_groups(groups_of_plan(path)[1])


def groups_of_plan(path: Path, with_samples: bool = False) -> tuple[Plan, Groups]:
    """A saved plan, and its units as groups in the world that it was made for.

    The world has training data only `with_samples`.
    """
    folder = path if path.is_dir() else path.parent
    file = path / "plan.json" if path.is_dir() else path
    document: Any
    if path.is_dir():  # a run's own plan carries a digest
        document = read_sealed_json(file, _WANTED, "plan or run it again")
    else:
        document = read_json(file, _WANTED)
    plan = Plan.from_dict(document if isinstance(document, dict) else {}, str(file))
    config = _config(document, file, folder)
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
    members = [unit.members for unit in plan.units]
    return plan, assess(world, members, [unit.leader for unit in plan.units])


def _config(document: dict[str, Any], file: Path, folder: Path) -> Config:
    """The configuration that the plan was made with."""
    text = document.get("config_toml")
    if isinstance(text, str):
        return Config.from_toml(text, f"{file}, key config_toml")
    if (folder / "config.toml").exists():
        return load_config(folder / "config.toml")
    raise InputError(f"{file}, key config_toml: is missing; give {_WANTED}")
