"""Runs a scheme on emulated links, and puts what was measured beside what the world says."""

from __future__ import annotations

import html
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camu.config import Config
from camu.deploy.emulation.network import check_machine, network
from camu.deploy.emulation.trainer import EmulatedTrainer, Transfers
from camu.errors import InputError
from camu.files import write_json, write_text
from camu.schemes import make_scheme, plans
from camu.simulation.result import build_engine, run_rounds, simulate
from camu.simulation.run import Run
from camu.world import build_world, with_data

_ROUND = ["round", "wall s", "payload bytes", "bytes on the wire", "ratio"]
KINDS = ("compute", "gather", "uplink")


@dataclass(frozen=True)
class Emulation:
    """What came out of it."""

    scheme: str
    slower: float
    rows: list[Transfers]
    rounds: list[dict[str, float]]
    same_model: bool
    virtual_seconds: float
    joules: float

    def ratios(self, kind: str) -> list[float]:
        """Measured seconds over those of the world, of each unit and round that has any."""
        pairs = [
            (getattr(row, f"measured_{kind}_seconds"), getattr(row, f"{kind}_seconds"))
            for row in self.rows
        ]
        return [found / (self.slower * said) for found, said in pairs if said > 0]

    def median_ratio(self, kind: str) -> float | None:
        """The median of these ratios; None where there are none."""
        found = self.ratios(kind)
        return statistics.median(found) if found else None

    def median_error(self, *kinds: str) -> float | None:
        """The median distance of these ratios from 1; None where there are none."""
        found = [abs(ratio - 1) for kind in kinds for ratio in self.ratios(kind)]
        return statistics.median(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        totals = [row["wire_bytes"] / row["payload_bytes"] for row in self.rounds]
        return {
            "scheme": self.scheme,
            "slower": self.slower,
            "same_model": self.same_model,
            "virtual_seconds": self.virtual_seconds,
            "joules": self.joules,
            "median_ratios": {kind: self.median_ratio(kind) for kind in KINDS},
            "median_errors": {kind: self.median_error(kind) for kind in KINDS},
            "median_error": self.median_error("gather", "uplink", "compute"),
            "wire_over_payload": statistics.median(totals) if totals else None,
            "rounds": self.rounds,
            "units": [asdict(row) for row in self.rows],
        }


def emulate(config: Config, slower: float, out: Path | None = None) -> Emulation:
    """Run the configured scheme over links of this machine; needs root and iproute2."""
    check_machine()
    scheme = make_scheme(config)
    if scheme.family == "over the air":
        raise InputError(
            f"scheme.name = {config.scheme.name}: its devices transmit at once, and sockets have "
            "no air between them; choose another scheme"
        )
    if config.training.secure_sum != "none":
        raise InputError(
            f"training.secure_sum = {config.training.secure_sum}: emulated links carry models "
            "without masks; leave it out"
        )
    world = with_data(build_world(config))
    if world.links.types is not None:
        raise InputError("camu deploy emulate: only links of the type shannon can be emulated yet")
    plan = plans.plan(scheme, world)
    with build_engine(world) as engine, network(world.devices.count + 1) as links:
        trainer = EmulatedTrainer(
            engine, world, links, world.devices.count, slower, plan.access == "tdma"
        )
        run = Run.new(world, plan, trainer.initial)
        run_rounds(run, scheme, trainer)
    history = run.history()
    alone = simulate(world, make_scheme(config))
    same = history.weights_sha256 == alone.history.weights_sha256
    last = history.final
    found = Emulation(
        *(scheme.name, slower, trainer.rows, trainer.rounds, same),
        *(last.virtual_seconds, last.total_joules),
    )
    if out is not None:
        write_json(out / "emulation.json", found.to_dict())
        write_text(out / "emulation.html", page(found))
    return found


def page(found: Emulation) -> str:
    """One page: the units of every round, as the world has them and as they were measured."""
    heads = ["round", "unit", "devices"]
    heads += [f"{kind} s{what}" for kind in KINDS for what in (", world", ", measured", ", ratio")]
    rows = []
    for row in found.rows:
        cells = [str(row.round), str(row.unit), str(row.devices)]
        for kind in KINDS:
            said = found.slower * getattr(row, f"{kind}_seconds")
            seen = getattr(row, f"measured_{kind}_seconds")
            ratio = f"{seen / said:.3f}" if said > 0 else ""
            cells += [f"{said:.4f}", f"{seen:.4f}", ratio]
        rows.append([*cells, f"{row.joules:.4g}"])
    rounds = []
    for number, one in enumerate(found.rounds, 1):
        wire, payload = one["wire_bytes"], one["payload_bytes"]
        cells = [f"{one['wall_seconds']:.3f}", f"{payload:.0f}", f"{wire:.0f}"]
        rounds.append([str(number), *cells, f"{wire / payload:.3f}"])
    said = "the same to the bit" if found.same_model else "another"
    return (
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>Emulated links</title><style>body{font:15px sans-serif;margin:2em}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}td,th{padding:2px 10px;"
        "text-align:right;border-bottom:1px solid #ccc}</style>"
        f"<h1>{html.escape(found.scheme)} on emulated links</h1><p>All seconds are "
        f"{found.slower:g} times those of the world. The model is {said} as in the simulation."
        f"</p><h2>Rounds</h2>{_table(_ROUND, rounds)}"
        f"<h2>Units</h2>{_table([*heads, 'joules'], rows)}"
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}" for c in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"
