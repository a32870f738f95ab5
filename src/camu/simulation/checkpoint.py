"""Checkpoints: one file with everything a run needs to go on as if nothing had happened.

A safetensors file holds the weights and the updates on their way; its metadata holds the rest as
JSON, with the configuration it belongs to, and a digest of the whole file. One file, renamed into
place, is complete or absent. The one before it is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from camu import __version__
from camu.config import Config, keys_affecting
from camu.errors import CamuError, InputError
from camu.learning.weights import Weights
from camu.planning.batteries import Batteries
from camu.planning.plan import Plan
from camu.sealed import DamagedError, check_tensors, write_sealed_tensors
from camu.simulation.clock import Clock
from camu.simulation.history import Record
from camu.simulation.ledger import Ledger
from camu.simulation.manifest import differences
from camu.simulation.privacy import releases_from_list, releases_to_list
from camu.simulation.run import Run, Update
from camu.world import World

# Of an update on its way, besides its arrays.
_NUMBERS = (
    *("unit", "round", "leader", "members", "started_seconds", "busy_seconds", "loss", "lost"),
    "fault",
)


_DAMAGED = "delete it to go on from the checkpoint before it, or from round 0 if there is none"


def save_checkpoint(run: Run, path: Path, wall_seconds: float, records_sha256: str = "") -> None:
    """Write the run's state; the checkpoint that was here becomes the previous one.

    `records_sha256` is the digest of the lines of rounds.jsonl up to now.
    """
    arrays: dict[str, Any] = {
        "parameters": run.weights.parameters,
        "buffers": run.weights.buffers,
        "device_joules": run.ledger.devices,
    }
    for name, array in run.batteries.state().items():
        arrays[f"battery.{name}"] = array
    if run.velocity is not None:
        arrays["velocity"] = run.velocity
    if run.average is not None:
        _put_weights(arrays, "average", run.average)
    for device, memory in run.memory.items():
        arrays[f"memory.{device}"] = memory
    for device, own in run.optimisers.items():
        arrays[f"optimiser.{device}"] = own
    for unit, kept in run.kept.items():
        arrays[f"kept.{unit}"] = kept
    # Numbers of numpy are arrays without dimensions: their precision is part of the state.
    own_arrays = {k: v for k, v in run.state.items() if isinstance(v, np.ndarray | np.generic)}
    for name, value in own_arrays.items():
        arrays[f"scheme.{name}"] = value
    state = {
        "round": run.round,
        "joules": run.ledger.totals,
        "bits": run.ledger.bits,
        "clock": run.clock.state(),
        "plan": run.plan.to_dict(run.world) if run.revised else None,
        "in_flight": _put_updates(run, arrays),
        "scheme": run.state | dict.fromkeys(own_arrays),  # None: an array
        "kept_units": list(run.kept),
        "releases": releases_to_list(run.releases),
        "wall_seconds": wall_seconds,
        "config": run.world.cached("toml", run.world.config.to_toml),
        "notes": run.notes,
        "records_sha256": records_sha256,
        "version": __version__,
    }
    metadata = {"camu": json.dumps(state)}
    write_sealed_tensors(path, arrays, metadata, lambda: _keep_previous(path))


def _put_updates(run: Run, arrays: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers of the updates on their way; their arrays go to `arrays`."""
    found = []
    starts: dict[int, int] = {}  # each model that units started from is saved once
    for unit, update in sorted(run.in_flight.items()):
        start = starts.setdefault(id(update.start), len(starts))
        _put_weights(arrays, f"start.{start}", update.start)
        found.append({name: getattr(update, name) for name in _NUMBERS} | {"start": start})
        arrays[f"update.{unit}.update"] = update.update
        arrays[f"update.{unit}.buffers"] = update.buffers
        if update.kept is not None:
            arrays[f"update.{unit}.kept"] = update.kept
        if update.trained is not None:
            _put_weights(arrays, f"update.{unit}.trained", update.trained)
    return found


def _put_weights(arrays: dict[str, Any], name: str, weights: Weights) -> None:
    arrays[f"{name}.parameters"], arrays[f"{name}.buffers"] = weights.parameters, weights.buffers


def previous_checkpoint(path: Path) -> Path:
    """Where the checkpoint before the newest one is kept."""
    return path.with_name("previous.safetensors")


def _keep_previous(path: Path) -> None:
    """Give the newest checkpoint a second name, which stays when the next one takes its place."""
    if not path.exists():
        return
    spare = path.with_name(".previous")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:  # no hard links here: for a moment only the previous one is there
        os.replace(path, spare)
    os.replace(spare, previous_checkpoint(path))


def load_checkpoint(
    path: Path, world: World, plan: Plan, initial: Weights, records: list[Record]
) -> tuple[Run, float]:
    """The run as it was, and the wall-clock seconds it had taken."""
    state, arrays = _read(path)
    try:
        check_same(Config.from_saved(state["config"], str(path)), world.config, path)
        return _restored(state, arrays, path, world, plan, initial, records), state["wall_seconds"]
    except (KeyError, TypeError, AttributeError) as error:
        raise _foreign(path, state, error) from None


def _foreign(path: Path, state: dict[str, Any], error: Exception) -> CamuError:
    return CamuError(
        f"{path}: this checkpoint of camu {state.get('version', '?')} does not fit camu "
        f"{__version__} ({type(error).__name__}: {error}); resume it with that version, or start a "
        "new run in another directory"
    )


def _restored(
    state: dict[str, Any],
    arrays: dict[str, Any],
    path: Path,
    world: World,
    plan: Plan,
    initial: Weights,
    records: list[Record],
) -> Run:
    """The run that a checkpoint describes."""
    revised = state["plan"] is not None
    run = Run(
        world=world,
        plan=Plan.from_dict(state["plan"], str(path)) if revised else plan,
        weights=Weights(arrays["parameters"], arrays["buffers"], initial.layout),
        clock=Clock.restore(plan.access == "tdma", state["clock"]),
        ledger=Ledger(arrays["device_joules"].copy(), state["joules"], state["bits"]),
        batteries=Batteries(world),
        round=state["round"],
        state={
            name: arrays[f"scheme.{name}"][()] if value is None else value
            for name, value in state["scheme"].items()
        },
        kept={unit: arrays[f"kept.{unit}"] for unit in state["kept_units"]},
        releases=releases_from_list(state["releases"]),
        records=records,
        revised=revised,
        notes=list(state["notes"]),
        velocity=arrays.get("velocity"),
        average=_weights(arrays, "average", initial) if "average.buffers" in arrays else None,
    )
    battery = {}
    for name, array in arrays.items():
        kind, _, key = name.partition(".")
        if kind == "memory":
            run.memory[int(key)] = array
        elif kind == "optimiser":
            run.optimisers[int(key)] = array
        elif kind == "battery":
            battery[key] = array
    run.batteries.restore(battery)
    starts: dict[int, Weights] = {}
    for numbers in state["in_flight"]:
        name, start = f"update.{numbers['unit']}", numbers.pop("start")
        numbers["members"] = tuple(numbers.get("members", ()))
        if start not in starts:
            starts[start] = _weights(arrays, f"start.{start}", initial)
        has_trained = f"{name}.trained.parameters" in arrays
        run.in_flight[numbers["unit"]] = update = Update(
            **numbers,
            update=arrays[f"{name}.update"],
            buffers=arrays[f"{name}.buffers"],
            kept=arrays.get(f"{name}.kept"),
            trained=_weights(arrays, f"{name}.trained", initial) if has_trained else None,
        )
        update.start = starts[start]
    return run


def _weights(arrays: dict[str, Any], name: str, initial: Weights) -> Weights:
    """A model among the arrays of a checkpoint."""
    return Weights(arrays[f"{name}.parameters"], arrays[f"{name}.buffers"], initial.layout)


def checkpoint_place(path: Path) -> tuple[int, str]:
    """The number of rounds in a checkpoint, and the digest of their lines in rounds.jsonl."""
    state, _ = _read(path)
    try:
        return int(state["round"]), str(state["records_sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(path, state, error) from None


def check_same(before: Config, now: Config, path: Path) -> None:
    """Refuse a checkpoint of another configuration, with the keys that differ."""
    keys = keys_affecting("result")
    decide = [{key: config.flat()[key] for key in keys} for config in (before, now)]
    if differing := differences(*decide):
        raise InputError(
            f"{path} belongs to another configuration; these keys differ: {', '.join(differing)}; "
            "resume with the same configuration, or start a new run in another directory"
        )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    check_tensors(path, _DAMAGED)
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata() or {}
            state: dict[str, Any] = json.loads(metadata["camu"])
            return state, {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise DamagedError(f"{path}: is not a checkpoint of camu ({error}); {_DAMAGED}") from None
