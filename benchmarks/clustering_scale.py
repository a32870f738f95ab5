"""How clustering and planning grow with the fleet, and how near the two-level way comes.

    python benchmarks/clustering_scale.py readings      each reading in the paper's two regions
    python benchmarks/clustering_scale.py agreement     both ways on the same fleets, compared
    python benchmarks/clustering_scale.py scale         worlds of 10^3 to 10^6 devices, planned

The fleets of `agreement` are files as a user would bring them: devices spread evenly over a square
or around hot spots, each with two of ten labels. Those of `scale` fill a square with a device per
80 square metres, or the two regions of the paper, however dense they get; each comes from a process
of its own, so that its memory is its own. Seconds are wall-clock seconds of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score

from camu.clustering import Clustering, affinity, cluster_devices
from camu.clustering.affinity import TILE_DEVICES
from camu.clustering.similarity import link_similarity
from camu.config import Config, load_config
from camu.files import write_json
from camu.schemes import make_scheme, plans
from camu.seeding import derive
from camu.world import World, build_world

LAYOUTS = {"square": 0, "12 spots": 12, "40 spots": 40}
PLACES = ("square", "regions")
AREA_M2 = 80.0  # per device; the paper's regions have 7
LABELS = 10


def write_fleet(path: Path, devices: int, layout: str, data: str = "pairs", seed: int = 0) -> Path:
    """A fleet file: `data` is `pairs` (equal sizes), `sizes` (pairs, unequal) or `dirichlet`."""
    draw = derive(seed, "own-benchmark-fleet", devices).numpy()
    side, spots = float(np.sqrt(AREA_M2 * devices)), LAYOUTS[layout]
    places = draw.uniform(0.0, side, (devices, 2))
    if spots:
        centers = draw.uniform(0.0, side, (spots, 2))
        offsets = draw.normal(0.0, side / 40, (devices, 2))
        places = centers[draw.integers(spots, size=devices)] + offsets
    counts = _label_counts(draw, devices, data)
    header = ["id", "x", "y", *(f"label_{label}" for label in range(LABELS))]
    rows = (
        [f"d{k}", f"{x:.3f}", f"{y:.3f}", *map(str, counts[k])] for k, (x, y) in enumerate(places)
    )
    path.write_text("\n".join(",".join(row) for row in (header, *rows)) + "\n", "utf-8")
    return path


def _label_counts(draw: np.random.Generator, devices: int, data: str) -> npt.NDArray[np.int64]:
    if data == "dirichlet":
        shares = draw.dirichlet(np.full(LABELS, 0.5), devices)
        return np.stack([draw.multinomial(600, share) for share in shares])
    counts = np.zeros((devices, LABELS), np.int64)
    pairs = np.argsort(draw.random((devices, LABELS)), axis=1)[:, :2]
    sizes = draw.integers(50, 500, devices) if data == "sizes" else np.full(devices, 300)
    np.put_along_axis(counts, pairs, np.repeat(sizes[:, None], 2, axis=1), axis=1)
    return counts


@dataclass(frozen=True)
class Reading:
    """One reading in the paper's two regions: means over the seeds."""

    communication: str
    preference: str
    data: str
    primaries: float
    clusters: float
    alone: float  # clusters of one device
    mixed: float  # clusters that hold devices of both regions
    labels: float  # labels that a cluster of at least two devices holds


@dataclass(frozen=True)
class Agreement:
    """Both ways on one fleet: clusters, net similarity of the links, seconds."""

    layout: str
    data: str
    devices: int
    one_clusters: int
    two_clusters: int
    primary_ari: float  # adjusted Rand index of the primary clusters
    ari: float  # of the clusters
    rerun_ari: float  # of the one-level clusters at damping 0.85 in place of 0.7
    one_net: float  # net similarity of the links, which affinity propagation maximises
    two_net: float
    one_seconds: float
    two_seconds: float


@dataclass(frozen=True)
class Scale:
    """One fleet built, and planned by the scheme camu; seconds of this machine."""

    place: str
    devices: int
    units: int
    world_seconds: float
    plan_seconds: float
    file_seconds: float  # to write plan.json
    cpu_seconds: float  # of all three: what an idle machine would take
    peak_mb: float  # of world and plan
    file_mb: float
    peak_with_file_mb: float


def readings(seeds: int = 5) -> Iterator[Reading]:
    """One row per reading; the embedded digits stand for MNIST: label counts alone matter here."""
    digits = ["data.dataset=digits", "data.samples_per_device=40"]
    config = load_config(preset="paper", settings=digits)
    worlds = [build_world(config, seed) for seed in range(seeds)]
    for communication in ("snr-db", "uplink", "literal"):
        for preference in ("uplink", "quantile"):
            for data in ("xi", "pmf", "literal"):
                changes = {"communication": communication, "preference": preference, "data": data}
                reading = config.replace({f"clustering.{k}": v for k, v in changes.items()})
                rows = [_figures(w, cluster_devices(w, reading.clustering)) for w in worlds]
                yield Reading(communication, preference, data, *map(float, np.mean(rows, axis=0)))


def _figures(world: World, found: Clustering) -> tuple[float, ...]:
    regions, counts = np.array(world.devices.regions), world.devices.label_counts
    groups = [list(cluster.members) for cluster in found.clusters]
    held = [int((counts[own].sum(axis=0) > 0).sum()) for own in groups if len(own) > 1]
    return (
        len(set(found.primaries().tolist())),
        len(groups),
        sum(len(own) == 1 for own in groups),
        sum(len(set(regions[own])) > 1 for own in groups),
        float(np.mean(held)),
    )


def agreement(
    sizes: Sequence[int],
    layouts: Sequence[str] = tuple(LAYOUTS),
    data: str = "pairs",
    settings: Sequence[str] = (),
) -> Iterator[Agreement]:
    """One row per fleet; fleets of at most one tile would agree by construction and are refused."""
    if min(sizes) <= TILE_DEVICES:
        raise ValueError(f"compare more than {TILE_DEVICES} devices: fewer are a single tile")
    for layout in layouts:
        for devices in sizes:
            config, world = _world(devices, layout, data, settings)
            affinity.TWO_LEVELS_ABOVE = 10**9
            one, one_seconds = _timed(world, config)
            again, _ = _timed(world, config.replace({"clustering.damping": 0.85}))
            affinity.TWO_LEVELS_ABOVE = 2
            two, two_seconds = _timed(world, config)
            yield Agreement(
                layout,
                data,
                devices,
                len(one.clusters),
                len(two.clusters),
                float(adjusted_rand_score(one.primaries(), two.primaries())),
                float(adjusted_rand_score(one.labels(), two.labels())),
                float(adjusted_rand_score(one.labels(), again.labels())),
                net_similarity(world, config, one),
                net_similarity(world, config, two),
                one_seconds,
                two_seconds,
            )


def net_similarity(world: World, config: Config, found: Clustering) -> float:
    """What affinity propagation of the links maximises, at the best leader of each primary."""
    links = link_similarity(world.links, config.clustering)
    primaries = found.primaries()
    total = 0.0
    for primary in np.unique(primaries):
        members = np.flatnonzero(primaries == primary)
        matrix = links.block(members, members)
        np.fill_diagonal(matrix, links.preference[members])
        total += float(matrix.sum(axis=0).max())
    return total


def scale(devices: int, place: str, settings: Sequence[str] = ()) -> Scale:
    """Build, plan and save one fleet, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_scale, (devices, place, tuple(settings)))


def fleet_config(devices: int, place: str, settings: Sequence[str] = ()) -> Config:
    """Half of the devices hold two labels, the others all; 60 of the embedded digits each."""
    paper = load_config(preset="paper").fleet
    side = float(np.sqrt(AREA_M2 * devices))
    box = {"z": (0.0, 0.0), "x": (0.0, side), "y": (0.0, side), "name": "square"}
    regions = [box | {"devices": devices}]
    if place == "regions":
        halves = (devices // 2, devices - devices // 2)
        regions = [
            region.model_dump() | {"devices": half}
            for region, half in zip(paper.regions, halves, strict=True)
        ]
    mast = (side / 2, side / 2, 10.0) if place == "square" else paper.base_station
    overrides = {
        "fleet.regions": regions,
        "fleet.base_station": mast,
        "data.dataset": "digits",
        "data.noniid_devices": devices // 2,
        "data.samples_per_device": 60,
        "data.with_replacement": True,
    }
    return load_config(preset="paper", settings=settings, overrides=overrides)


def _scale(devices: int, place: str, settings: Sequence[str]) -> Scale:
    config = fleet_config(devices, place, settings)
    times, worked = [time.perf_counter()], time.process_time()
    world = build_world(config)
    times.append(time.perf_counter())
    plan = plans.plan(make_scheme(config), world)
    times.append(time.perf_counter())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.json"
        write_json(path, plan.to_dict(world))
        size = path.stat().st_size
    times.append(time.perf_counter())
    last = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 2**20 if sys.platform == "darwin" else 1024
    return Scale(
        place,
        devices,
        len(plan.units),
        *np.diff(times).tolist(),
        time.process_time() - worked,
        peak / unit,
        size / 1e6,
        last / unit,
    )


def _world(devices: int, layout: str, data: str, settings: Sequence[str]) -> tuple[Config, World]:
    with tempfile.TemporaryDirectory() as directory:
        path = write_fleet(Path(directory) / "fleet.csv", devices, layout, data)
        config = load_config(settings=[f"fleet.file={path}", *settings])
        return config, build_world(config)


def _timed(world: World, config: Config) -> tuple[Clustering, float]:
    start = time.perf_counter()
    found = cluster_devices(world, config.clustering)
    return found, time.perf_counter() - start


def _show(rows: Iterator[Reading] | Iterator[Agreement] | Iterator[Scale]) -> None:
    """A table, row by row as it is measured."""
    header = False
    for row in rows:
        names = [field.name for field in fields(row)]
        if not header:
            print("| " + " | ".join(name.replace("_", " ") for name in names) + " |")
            print("|" + "---|" * len(names))
            header = True
        values = [getattr(row, name) for name in names]
        cells = [_cell(name, value) for name, value in zip(names, values, strict=True)]
        print("| " + " | ".join(cells) + " |", flush=True)


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return (
        f"{value:.3f}"
        if name.endswith("ari")
        else f"{value:.5g}"
        if "net" in name
        else f"{value:.1f}"
    )


def main() -> None:
    """Print the table that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["readings", "agreement", "scale"])
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of devices")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--data", choices=["pairs", "sizes", "dirichlet"], default="pairs")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    if chosen.what == "readings":
        _show(readings())
    elif chosen.what == "agreement":
        sizes = chosen.sizes or [750, 1500, 3000]
        _show(agreement(sizes, chosen.layouts, chosen.data, chosen.settings))
    else:
        sizes = chosen.sizes or [10**3, 10**4, 10**5, 10**6]
        _show(scale(n, place, chosen.settings) for place in chosen.places for n in sizes)


if __name__ == "__main__":
    main()
