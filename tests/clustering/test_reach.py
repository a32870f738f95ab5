"""No cluster over a link that cannot carry anything: members reach their leader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from camu.clustering import Clustering, affinity, cluster_devices
from camu.config import load_config
from camu.errors import InputError
from camu.planning.prices import unit_costs
from camu.schemes import Clustered
from camu.world import World, build_world
from helpers.small_fleets import random_world

NO_LINK_DB = -200.0


def nine(tmp_path: Path, *settings: str) -> World:
    """g0-g2 and g3-g5 hear each other at 25 dB; g6, g7 and g8 hear nobody."""
    names = [f"g{k}" for k in range(9)]
    rows = [f"{name},{-80 - k},100" for k, name in enumerate(names)]
    (tmp_path / "f.csv").write_text("\n".join(["id,gain_db,samples", *rows]))
    snr = np.full((9, 9), NO_LINK_DB)
    snr[:3, :3] = snr[3:6, 3:6] = 25.0
    np.savetxt(tmp_path / "snr.csv", snr, delimiter=",")
    files = {"fleet.file": str(tmp_path / "f.csv"), "fleet.snr_file": str(tmp_path / "snr.csv")}
    return build_world(load_config(preset="paper", settings=settings).replace(files))


def weakest_db(world: World, found: Clustering) -> float:
    links = [
        world.links.device_snr_db([member], [cluster.leader])[0, 0]
        for cluster in found.clusters
        for member in cluster.members
        if member != cluster.leader
    ]
    return float(min(links, default=np.inf))


def groups(found: Clustering) -> list[tuple[int, ...]]:
    return [cluster.members for cluster in found.clusters]


@pytest.mark.parametrize("leader", ["exemplar", "best-uplink"])
def test_devices_that_hear_nobody_are_alone(tmp_path: Path, leader: str) -> None:
    world = nine(tmp_path, f"clustering.leader={leader}")
    found = cluster_devices(world)
    assert weakest_db(world, found) >= -10.0
    assert groups(found)[-3:] == [(6,), (7,), (8,)]
    assert set(groups(found)[:-3]) == {(0, 1, 2), (3, 4, 5)}
    leaders = [cluster.leader for cluster in found.clusters]
    costs = unit_costs(world, groups(found), leaders, np.full(5, 0.5), 700_160, 21_880)
    assert costs.gather_seconds.max() < 10.0  # 1.5e20 when g6, g7 and g8 were members of g0


def test_without_a_floor_they_were_members(tmp_path: Path) -> None:
    found = cluster_devices(nine(tmp_path, "clustering.min_link_snr_db=-300"))
    assert max(len(members) for members in groups(found)) > 3


def test_sixty_devices_that_hear_nobody_are_sixty_clusters(tmp_path: Path) -> None:
    rows = [f"d{k},{-80 - 0.1 * k},100" for k in range(60)]
    (tmp_path / "f.csv").write_text("\n".join(["id,gain_db,samples", *rows]))
    np.savetxt(tmp_path / "snr.csv", np.full((60, 60), NO_LINK_DB), delimiter=",")
    files = {"fleet.file": str(tmp_path / "f.csv"), "fleet.snr_file": str(tmp_path / "snr.csv")}
    world = build_world(load_config(preset="paper", overrides=files))
    assert groups(cluster_devices(world)) == [(k,) for k in range(60)]


def test_a_fleet_of_which_most_reach_nobody_is_refused(tmp_path: Path) -> None:
    rows = [f"d{k},{k if k < 2 else 9000 + 100 * k},0,wifi-n,100" for k in range(5)]
    (tmp_path / "f.csv").write_text("\n".join(["id,x,y,link,samples", *rows]))
    files = {"fleet.file": str(tmp_path / "f.csv")}
    with pytest.raises(InputError, match="3 of 5 devices reach nobody; place your base stations"):
        build_world(load_config(preset="demo", overrides=files))


def test_one_typo_in_a_position_is_named_and_left_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    places = draw.uniform(-10, 10, (60, 2)).round(2)
    rows = [f"gw-{k:03},{x},{y},100" for k, (x, y) in enumerate(places)]
    rows.insert(30, "typo,9000,9000,100")
    (tmp_path / "f.csv").write_text("\n".join(["id,x,y,samples", *rows]))
    files = {"fleet.file": str(tmp_path / "f.csv")}
    config = load_config(preset="paper", overrides=files)
    world = build_world(config)
    assert world.left_out == ("typo",)
    assert world.devices.count == 60
    (warning,) = world.warnings()
    assert "device typo reaches nobody and is left out" in warning
    assert "fleet.unreachable=keep" in warning
    kept = build_world(config.replace({"fleet.unreachable": "keep"}))
    found = cluster_devices(kept)
    assert (30,) in groups(found)
    assert weakest_db(kept, found) >= -10.0
    (warning,) = kept.warnings()
    assert warning.startswith("device typo (")
    assert "1000 times as long as the median" in warning
    assert "gw-" not in warning


def chain(tmp_path: Path) -> World:
    """Devices a and b cannot send, but a hears d0; b hears only a."""
    rows = ["a,-250,900", "b,-250,900", *(f"d{k},{-80 - k},100" for k in range(4))]
    (tmp_path / "f.csv").write_text("\n".join(["id,gain_db,samples", *rows]))
    snr = np.full((6, 6), NO_LINK_DB)
    snr[2:, 2:] = 25.0
    snr[0, 1] = snr[1, 0] = 60.0
    snr[0, 2] = snr[2, 0] = 30.0
    np.savetxt(tmp_path / "snr.csv", snr, delimiter=",")
    files = {"fleet.file": str(tmp_path / "f.csv"), "fleet.snr_file": str(tmp_path / "snr.csv")}
    return build_world(load_config(preset="paper", overrides=files))


@pytest.mark.parametrize("leader", ["exemplar", "best-uplink"])
def test_who_cannot_send_is_led_or_left_out(tmp_path: Path, leader: str) -> None:
    world = chain(tmp_path)
    assert world.left_out == ("b",)
    assert world.devices.ids == ("a", "d0", "d1", "d2", "d3")
    config = world.config.replace({"clustering.leader": leader}).clustering
    found = cluster_devices(world, config)
    (own,) = (cluster for cluster in found.clusters if 0 in cluster.members)
    assert own.leader == 1  # d0
    assert Clustered().plan(world).round_seconds < 60.0


def test_label_counts_of_all_devices_keep_all(tmp_path: Path) -> None:
    """A deployment's nodes report every device of the file."""
    world = chain(tmp_path)
    again = build_world(world.config, label_counts=np.ones((6, 2), int))
    assert again.devices.count == 6
    assert again.left_out == ()
    assert build_world(world.config, label_counts=np.ones((5, 2), int)).left_out == ("b",)


@pytest.mark.parametrize("reading", ["snr-db", "uplink", "literal"])
@pytest.mark.parametrize("tile", [20, 500])
@pytest.mark.parametrize("floor_db", [-10.0, 40.0, 45.0, 300.0])
def test_every_member_reaches_its_leader(
    reading: str, tile: int, floor_db: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity, "TILE_DEVICES", tile)
    monkeypatch.setattr(affinity, "TWO_LEVELS_ABOVE", tile)
    world = random_world(
        40,
        7,
        (
            f"clustering.communication={reading}",
            f"clustering.min_link_snr_db={floor_db}",
        ),
    )
    found = cluster_devices(world)
    assert sorted(device for members in groups(found) for device in members) == list(range(40))
    assert weakest_db(world, found) >= floor_db
    if floor_db == 300.0:
        assert len(found.clusters) == 40
